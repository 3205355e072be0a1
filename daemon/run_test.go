package daemon

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A daemon that cannot get its socket contacts no node, and logs nothing.
func TestNodesAreNotContactedWithoutASocket(t *testing.T) {
	d := startDaemon(t, 1, nil)
	fresh := redlocktest.StartRedis(t, 1).Servers[0]
	for path, want := range map[string]string{
		d.Cfg.Socket.Path:                              fmt.Sprintf("another redlockd (pid %d) serves it", os.Getpid()),
		filepath.Join(t.TempDir(), "no/s"):             "does its directory exist",
		filepath.Join(daemontest.ShortDir(t), "group"): "groupadd --system no-such-group",
	} {
		var log daemontest.Log
		cfg := *d.Cfg
		cfg.Quorum.Nodes = []config.Node{{Name: "fresh", Address: fresh.Addr()}}
		cfg.Socket.Path = path
		if filepath.Base(path) == "group" {
			cfg.Socket.Group = "no-such-group"
		}
		err := Run(context.Background(), &cfg, logging.New(&log, hclog.Info, logging.Text), RunOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that says %q", path, err, want)
		}
		if log.String() != "" {
			t.Errorf("%s: logged:\n%s", path, log.String())
		}
	}
	if keys, err := fresh.Do("DBSIZE"); err != nil || keys.Int != 0 {
		t.Errorf("the node has %d keys, %v; want none", keys.Int, err)
	}
	d.dial().Say("PING", `OK`)
}

// If a start fails later, the log does not say that nodes are down, and the next start can lock the
// socket.
func TestFailedStartLogsNoNodeAsDown(t *testing.T) {
	var log daemontest.Log
	d := startDaemon(t, 3, nil)
	cfg := *d.Cfg
	dir := dirOfLength(t, filepath.Dir(cfg.Socket.Path), 4087)
	cfg.Socket.Path = filepath.Join(dir, "s") // short enough for the lock file, too long for a socket
	for range 2 {
		err := Run(context.Background(), &cfg, logging.New(&log, hclog.Info, logging.Text), RunOptions{})
		if err == nil || !strings.Contains(err.Error(), "file name too long: its path has 4089 bytes, and may have ") {
			t.Errorf("got %v, want an error of the socket", err)
		}
	}
	if strings.Contains(log.String(), "node is down") {
		t.Errorf("logged:\n%s", log.String())
	}
}

// dirOfLength makes a directory somewhere below another one, with a path of that length.
func dirOfLength(t *testing.T, dir string, length int) string {
	t.Helper()
	for left := length - len(dir); left > 0; left = length - len(dir) {
		name := min(left-1, 200)
		if left-1-name == 1 { // the next directory needs two bytes: a / and a letter
			name--
		}
		dir += "/" + strings.Repeat("d", name)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A socket can have any path that the config allows, although its temporary path is longer.
func TestLongestSocketPath(t *testing.T) {
	for length := ipc.MaxSocketPath - 15; length <= ipc.MaxSocketPath; length++ {
		cfg := &config.Socket{Path: filepath.Join(dirOfLength(t, daemontest.ShortDir(t), length-2), "s"), Mode: 0o600}
		socket, err := (&claim{path: cfg.Path}).listen(cfg)
		if err != nil {
			t.Errorf("%d bytes: got %v, want a socket", length, err)
			continue
		}
		if conn, err := net.Dial("unix", cfg.Path); err != nil {
			t.Errorf("%d bytes: got %v, want a connection", length, err)
		} else {
			conn.Close()
		}
		if left, err := os.ReadDir(filepath.Dir(cfg.Path)); err != nil || len(left) != 1 {
			t.Errorf("%d bytes: the directory has %v, %v; want only the socket", length, left, err)
		}
		socket.release(true)
	}
}

// lateListener accepts a connection just after it was closed.
type lateListener struct {
	conn        net.Conn
	asked, told chan struct{}
	closing     sync.Once
}

func (l *lateListener) Accept() (net.Conn, error) {
	conn := l.conn
	if l.conn = nil; conn == nil {
		return nil, net.ErrClosed
	}
	close(l.asked)
	<-l.told
	time.Sleep(20 * time.Millisecond) // real time: a daemon that does not wait for Accept has stopped by then
	return conn, nil
}

func (l *lateListener) Close() error {
	l.closing.Do(func() { close(l.told) })
	return nil
}

func (l *lateListener) Addr() net.Addr { return nil }

// A client that connects at the moment of the stop gets BYE: the daemon waits until it accepts no more
// connections.
func TestStopWaitsForTheLastAccept(t *testing.T) {
	d, closeNodes := embeddedDaemon(t, io.Discard)
	defer closeNodes()
	defer d.Close()
	client, accepted, err := devnodes.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(t.Context())
	late := &lateListener{conn: accepted, asked: make(chan struct{}), told: make(chan struct{})}
	ready := func() {
		<-late.asked
		stop()
	}
	d.listener = newSocket(&claim{}, late, false)
	if err := d.serve(ctx, state.Inherited{}, RunOptions{Dev: true, Ready: ready}); err != nil {
		t.Fatal(err)
	}
	client.SetReadDeadline(time.Now().Add(daemontest.Patience))
	if line, err := bufio.NewReader(client).ReadString('\n'); !strings.HasPrefix(line, "BYE resume=0") {
		t.Errorf("got %q, %v; want BYE", line, err)
	}
}
