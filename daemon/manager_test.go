package daemon

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/systemd"
)

// manager is a service manager that receives the messages of a daemon.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

// newManager starts a manager with a watchdog of 4 s. seen is what a daemon finds in the
// environment.
func newManager(t *testing.T) (m *manager, seen *systemd.Manager) {
	t.Helper()
	path := filepath.Join(daemontest.ShortDir(t), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "4000000")
	seen, err = systemd.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	return &manager{t: t, conn: conn}, seen
}

// await returns the messages up to the first that begins with want.
func (m *manager) await(want string) (received []string) {
	m.t.Helper()
	m.conn.SetReadDeadline(time.Now().Add(daemontest.Patience))
	buffer := make([]byte, 4096)
	for {
		n, err := m.conn.Read(buffer)
		if err != nil {
			m.t.Fatalf("no message %s: %v; received %q", want, err, received)
		}
		received = append(received, string(buffer[:n]))
		if strings.HasPrefix(received[len(received)-1], want) {
			return received
		}
	}
}

// The daemon tells the manager that it is ready, its status, that it lives, that it has reloaded,
// and that it stops.
func TestManagerIsTold(t *testing.T) {
	m, seen := newManager(t)
	cfg := config.Dev()
	cfg.Socket = config.Socket{Path: filepath.Join(t.TempDir(), "s"), Mode: 0o600}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reload, ended := make(chan *config.Config), make(chan error, 1)
	go func() {
		ended <- Run(ctx, cfg, hclog.NewNullLogger(), RunOptions{Dev: true, Reload: reload, Manager: seen})
	}()
	m.await("READY=1")
	m.await("STATUS=5 of 5 nodes ready; leases 0, waiters 0, connections 0")
	m.await("WATCHDOG=1")
	conn, err := net.Dial("unix", cfg.Socket.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("LOCK a\n")); err != nil {
		t.Fatal(err)
	}
	m.await("STATUS=5 of 5 nodes ready; leases 1, waiters 0, connections 1")
	reload <- cfg
	m.await("READY=1")
	cancel()
	m.await("STOPPING=1")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// After a daemon was frozen, another one in the same process can serve at its socket. No goroutine
// of the first one still waits for its journal.
func TestRunAgainAfterAFreeze(t *testing.T) {
	t.Setenv("FDSTORE", "10")
	m, seen := newManager(t)
	cfg := config.Dev()
	cfg.Socket = config.Socket{Path: filepath.Join(daemontest.ShortDir(t), "s"), Mode: 0o600}
	for i := range cfg.Quorum.Nodes {
		cfg.Quorum.Nodes[i].Address = "unix:/nowhere/" + cfg.Quorum.Nodes[i].Name
	}
	for range 2 {
		if err := seen.Status("another one starts"); err != nil { // the manager omits a status that has not changed
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- Run(ctx, cfg, hclog.NewNullLogger(), RunOptions{Manager: seen}) }()
		m.await("READY=1")
		conn, err := net.Dial("unix", cfg.Socket.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("LOCK a ttl=20s\n")); err != nil { // it waits, also in the next daemon
			t.Fatal(err)
		}
		m.await("STATUS=NO LOCKS: 0 of 5 nodes ready")
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	daemontest.Eventually(t, "no goroutine waits for the journal", func() bool {
		stacks := make([]byte, 1<<20)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("statefile.(*File).Append"))
	})
}

// If the loops that extend leases run, the watchdog gets messages. If they hang, it gets none, and
// the log says why, once.
func TestWatchdog(t *testing.T) {
	m, seen := newManager(t)
	var log bytes.Buffer
	d, closeNodes := embeddedDaemon(t, &log)
	defer closeNodes()
	a := &statusReporter{d: d, m: seen, lastReport: d.Clock()}
	d.Nodes.Settle(t.Context())
	a.report()
	m.await("WATCHDOG=1")

	d.Nodes.Close() // from now on no loop runs
	d.LogManagerError(seen.Status("marked"))
	m.await("STATUS=marked") // skips the messages before
	a.lastPulse = d.Nodes.Pulse()
	a.hungFor = seen.Watchdog()
	a.report()
	a.report()
	d.LogManagerError(seen.Status("marked"))
	if received := m.await("STATUS=marked"); slices.Contains(received, "WATCHDOG=1") {
		t.Errorf("received %q, want no WATCHDOG=1", received)
	}
	if got := strings.Count(log.String(), "leases are no longer extended"); got != 1 {
		t.Errorf("logged %d times, want once:\n%s", got, log.String())
	}
}

// If the process was stopped or the host suspended, the loops could not run, and the log reports no
// defect. If they still hang afterwards, it does.
func TestWatchdogAfterSuspension(t *testing.T) {
	_, seen := newManager(t)
	var log bytes.Buffer
	d, closeNodes := embeddedDaemon(t, &log)
	defer closeNodes()
	d.Nodes.Close() // no loop runs
	const fault = "leases are no longer extended"
	a := &statusReporter{d: d, m: seen, lastPulse: d.Nodes.Pulse(), lastReport: d.Clock() - time.Hour}
	a.report()
	if strings.Contains(log.String(), fault) {
		t.Errorf("a defect is logged after a suspension of an hour:\n%s", log.String())
	}
	for range 3 {
		a.lastReport -= seen.Watchdog() / 4
		a.report()
	}
	if !strings.Contains(log.String(), fault) {
		t.Errorf("the hanging loops are not logged:\n%s", log.String())
	}
}

func embeddedDaemon(t *testing.T, log io.Writer) (d *daemon, closeNodes func()) {
	t.Helper()
	cfg := config.Dev()
	e, nodes, err := devnodes.Start(&cfg.Quorum)
	if err != nil {
		t.Fatal(err)
	}
	d, err = newDaemon(cfg, logging.New(log, cfg.Log.Level, cfg.Log.Format), nodes, true)
	if err != nil {
		t.Fatal(err)
	}
	return d, e.Close
}

func TestStatusLineWithoutQuorum(t *testing.T) {
	cfg := config.Dev()
	cfg.Quorum.Nodes = nil
	for _, name := range []string{"a", "b", "c"} {
		cfg.Quorum.Nodes = append(cfg.Quorum.Nodes, config.Node{Name: name, Address: "unix:" + filepath.Join(t.TempDir(), "none")})
	}
	nodes, _, err := nodesOf(cfg, false)
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDaemon(cfg, hclog.NewNullLogger(), nodes, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Nodes.Close()
	d.Nodes.Settle(t.Context())
	const want = "NO LOCKS: 0 of 3 nodes ready, 2 needed (a down, b down, c down); leases 0, waiters 0, connections 0"
	if got := d.statusLine(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
