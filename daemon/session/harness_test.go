package session

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// patience is how long a test waits for what must happen at once: it bounds a
// failing test, never a passing one.
const patience = 20 * time.Second

// testDaemon is a daemon in this process, over real redis-servers.
type testDaemon struct {
	t      *testing.T
	cfg    *config.Config
	nodes  *redlocktest.Cluster
	stop   func() error // ends it as SIGTERM does, and returns what Run returned
	reload chan *config.Config
	dev    bool         // nodes are embedded, and nothing outlasts the daemon
	log    hclog.Logger // nil: to nowhere, but for defects
}

// startDaemon serves over n redis-servers; change may alter the config first.
func startDaemon(t *testing.T, n int, change func(*config.Config)) *testDaemon {
	t.Helper()
	cluster := redlocktest.StartRedis(t, n)
	cluster.Admit(t)
	cfg := config.Dev()
	cfg.Quorum.Nodes, cfg.Quorum.NodeTimeout = nil, 250*time.Millisecond
	for i, server := range cluster.Servers {
		cfg.Quorum.Nodes = append(cfg.Quorum.Nodes, config.Node{Name: string(rune('a' + i)), Address: server.Addr()})
	}
	cfg.Socket = config.Socket{Path: filepath.Join(shortDir(t), "s"), Mode: 0o600}
	if change != nil {
		change(cfg)
	}
	d := &testDaemon{t: t, cfg: cfg, nodes: cluster, reload: make(chan *config.Config)}
	d.start()
	return d
}

// shortDir is for sockets, whose paths may have about a hundred bytes at most.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rld")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// another is a daemon of another host, over the same nodes.
func (d *testDaemon) another() *testDaemon {
	d.t.Helper()
	return d.anotherThatLogs(nil)
}

func (d *testDaemon) anotherThatLogs(log hclog.Logger) *testDaemon {
	d.t.Helper()
	cfg := *d.cfg
	cfg.Socket.Path += "2"
	other := &testDaemon{t: d.t, cfg: &cfg, nodes: d.nodes, reload: make(chan *config.Config), log: log}
	other.start()
	return other
}

func (d *testDaemon) start() {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if d.log == nil {
		d.log = hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: defects{d.t}})
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- d.serve(ctx, func() { close(ready) })
	}()
	d.stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	d.t.Cleanup(func() {
		if err := d.stop(); err != nil {
			d.t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		d.t.Fatalf("Run: %v", err)
	case <-time.After(patience):
		d.t.Fatal("the daemon is not ready")
	}
}

// defects has a test fail where a daemon logs one.
type defects struct{ t *testing.T }

func (to defects) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("a defect in redlockd")) {
		to.t.Errorf("logged: %s", line)
	}
	return len(line), nil
}

// wire is a person with nc -U.
type wire struct {
	t    *testing.T
	conn *net.UnixConn
	in   *bufio.Reader
}

func (d *testDaemon) dial() *wire {
	d.t.Helper()
	conn, err := net.Dial("unix", d.cfg.Socket.Path)
	if err != nil {
		d.t.Fatal(err)
	}
	w := &wire{t: d.t, conn: conn.(*net.UnixConn), in: bufio.NewReader(conn)}
	d.t.Cleanup(func() { conn.Close() })
	return w
}

func (w *wire) send(format string, args ...any) {
	w.t.Helper()
	if _, err := fmt.Fprintf(w.conn, format+"\n", args...); err != nil {
		w.t.Fatalf("send: %v", err)
	}
}

// line reads one line.
func (w *wire) line() string {
	w.t.Helper()
	w.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := w.in.ReadString('\n')
	if err != nil {
		w.t.Fatalf("no line: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

// want reads one line and holds it against a pattern; it returns the groups.
func (w *wire) want(pattern string) []string {
	w.t.Helper()
	return matches(w.t, w.line(), pattern)
}

// matches holds a line against a pattern; it returns the groups.
func matches(t *testing.T, line, pattern string) []string {
	t.Helper()
	groups := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(line)
	if groups == nil {
		t.Fatalf("got  %s\nwant %s", line, pattern)
	}
	return groups[1:]
}

// say sends a request and holds its answer against a pattern.
func (w *wire) say(request, pattern string) []string {
	w.t.Helper()
	w.send("%s", request)
	return w.want(pattern)
}

// ends reads until the other side closes.
func (w *wire) ends() {
	w.t.Helper()
	w.conn.SetReadDeadline(time.Now().Add(patience))
	if line, err := w.in.ReadString('\n'); err == nil || os.IsTimeout(err) {
		w.t.Fatalf("got %q, %v; want the end of the connection", line, err)
	}
}

// eventually asks until it is so.
func eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !isSo() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// keys lists what is on the nodes, all of them together.
func (d *testDaemon) keys() []string {
	d.t.Helper()
	var all []string
	for _, server := range d.nodes.Servers {
		keys, err := server.Keys("redlock:*")
		if err != nil {
			d.t.Fatal(err)
		}
		all = append(all, keys...)
	}
	return all
}

// until asks the daemon until the answer matches.
func (w *wire) until(request, pattern string) {
	w.t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(w.t, request+" answers "+pattern, func() bool {
		w.send("%s", request)
		var all strings.Builder
		for {
			line := w.line()
			all.WriteString(line + "\n")
			if strings.HasPrefix(line, "OK") || strings.HasPrefix(line, "ERR") {
				return re.MatchString(all.String())
			}
		}
	})
}

const granted5 = `OK lock=\S+ lease=(\S+) fence=\d+ ttl=(\d+) deadline=(\d+)(?: guard=\d+)?`

// serve serves a Host until ctx ends, as package daemon does it without a service manager.
func (td *testDaemon) serve(ctx context.Context, ready func()) error {
	cfg, nodes := td.cfg, testNodes(td.cfg)
	if td.dev {
		e, embedded, err := devnodes.Start(&cfg.Quorum)
		if err != nil {
			return err
		}
		defer e.Close()
		nodes = embedded
	}
	d, err := newTestHost(cfg, td.log, nodes, td.dev)
	if err != nil {
		return err
	}
	defer d.Nodes.Close()
	stopWatching, err := d.Processes.Watch()
	if err != nil {
		return err
	}
	defer stopWatching()
	settling, cancel := context.WithTimeout(ctx, time.Second)
	d.Nodes.Settle(settling)
	cancel()
	listener, err := net.Listen("unix", cfg.Socket.Path)
	if err != nil {
		return err
	}
	defer os.Remove(cfg.Socket.Path)
	if err := os.Chmod(cfg.Socket.Path, cfg.Socket.Mode); err != nil {
		return err
	}
	srv := d.NewServer()
	if !td.dev {
		d.Restore(srv, nil, state.Inherited{}, cfg.Socket.Path)
	}
	accepting, stop := context.WithCancel(ctx)
	var attending sync.WaitGroup
	defer attending.Wait()
	defer stop()
	attending.Go(func() { d.Journal.Watch(accepting) })
	served := make(chan error, 1)
	go func() { served <- srv.Serve(accepting, listener) }()
	ready()
	for {
		select {
		case cfg := <-td.reload:
			d.Reload(cfg)
			continue
		case <-ctx.Done():
			err = nil
		case err = <-served:
		}
		stop()
		d.Shutdown(srv)
		return err
	}
}

// newTestHost makes a Host; embedded: its nodes live and die with the test.
func newTestHost(cfg *config.Config, log hclog.Logger, nodes []redlock.Node, embedded bool) (*Host, error) {
	d := NewHost(HostOptions{Config: cfg, Log: log, Version: "test"})
	return d, d.Connect(redlock.Options{
		Nodes: nodes, Prefix: cfg.Quorum.KeyPrefix, NodeTimeout: cfg.Quorum.NodeTimeout, MaxTTL: cfg.Quorum.MaxTTL, NoQuarantine: embedded,
	})
}

// testNodes are the nodes of a config without passwords.
func testNodes(cfg *config.Config) (nodes []redlock.Node) {
	for _, node := range cfg.Quorum.Nodes {
		nodes = append(nodes, redlock.RedisNode(redlock.NodeOptions{Name: node.Name, Address: node.Address, Durable: node.Durable}))
	}
	return nodes
}

// embeddedHost is one with embedded nodes, into which a test can look.
func embeddedHost(t *testing.T, log io.Writer) (d *Host, closeNodes func()) {
	t.Helper()
	cfg := config.Dev()
	e, nodes, err := devnodes.Start(&cfg.Quorum)
	if err != nil {
		t.Fatal(err)
	}
	d, err = newTestHost(cfg, logging.New(log, cfg.Log.Level, cfg.Log.Format), nodes, true)
	if err != nil {
		t.Fatal(err)
	}
	return d, e.Close
}

// startDev serves with embedded nodes.
func startDev(t *testing.T) *testDaemon {
	t.Helper()
	cfg := config.Dev()
	cfg.Socket = config.Socket{Path: filepath.Join(shortDir(t), "s"), Mode: 0o600}
	d := &testDaemon{t: t, cfg: cfg, reload: make(chan *config.Config), dev: true}
	d.start()
	return d
}
