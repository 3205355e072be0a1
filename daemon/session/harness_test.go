package session

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/redlock"
)

// testDaemon is a test's daemon: it serves a Host.
type testDaemon struct{ *daemontest.Daemon }

// wire is a client of a testDaemon.
type wire struct{ *daemontest.Wire }

const granted5 = daemontest.AnyGrant

var granted = daemontest.GrantOf

// startDaemon serves over n redis-servers; change may alter the config first.
func startDaemon(t *testing.T, n int, change func(*config.Config)) *testDaemon {
	t.Helper()
	d := &testDaemon{daemontest.New(t, n, serve, change)}
	d.Start()
	return d
}

// another starts a daemon of another host, over the same nodes.
func (d *testDaemon) another() *testDaemon {
	d.T.Helper()
	return d.anotherWithLog(nil)
}

func (d *testDaemon) anotherWithLog(log hclog.Logger) *testDaemon {
	d.T.Helper()
	return &testDaemon{d.Another(log)}
}

func (d *testDaemon) dial() *wire {
	d.T.Helper()
	return &wire{d.Dial()}
}

// serve runs a Host until ctx ends, as package daemon does without a service manager.
func serve(ctx context.Context, td *daemontest.Daemon, ready func()) error {
	cfg, nodes, embedded := td.Cfg, testNodes(td.Cfg), td.Nodes == nil
	if embedded {
		e, inProcess, err := devnodes.Start(&cfg.Quorum)
		if err != nil {
			return err
		}
		defer e.Close()
		nodes = inProcess
	}
	d, err := newTestHost(cfg, td.Log, nodes, embedded)
	if err != nil {
		return err
	}
	if td.Hostname != "" {
		d.hostname = td.Hostname
	}
	defer d.Nodes.Close()
	stopWatching, err := d.Processes.Watch()
	if err != nil {
		return err
	}
	defer stopWatching()
	settling, cancel := context.WithTimeout(ctx, daemontest.Patience)
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
	if !embedded {
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
		case cfg := <-td.Reload:
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

// newTestHost makes a Host. embedded means that its nodes live only as long as the test.
func newTestHost(cfg *config.Config, log hclog.Logger, nodes []redlock.Node, embedded bool) (*Host, error) {
	d := NewHost(HostOptions{Config: cfg, Log: log, Version: "test"})
	return d, d.Connect(redlock.Options{
		Nodes: nodes, Prefix: cfg.Quorum.KeyPrefix, NodeTimeout: cfg.Quorum.NodeTimeout, MaxTTL: cfg.Quorum.MaxTTL, NoQuarantine: embedded,
	})
}

// testNodes returns the nodes of a config without passwords.
func testNodes(cfg *config.Config) (nodes []redlock.Node) {
	for _, node := range cfg.Quorum.Nodes {
		nodes = append(nodes, redlock.RedisNode(redlock.NodeOptions{Name: node.Name, Address: node.Address, Durable: node.Durable}))
	}
	return nodes
}

// queued returns how many names are held or waited for.
func queued(d *Host) int {
	d.queueMu.Lock()
	defer d.queueMu.Unlock()
	return d.queue.Len()
}

// change applies an event to the life of a lease that no other goroutine has.
func change(h *heldLease, event locktable.Event) (do locktable.Effects) {
	h.Life, do = h.Life.After(event, h.Reporter() != nil)
	return do
}

// embeddedHost returns a Host with embedded nodes, whose fields the test can read.
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

// startDev starts a daemon with embedded nodes.
func startDev(t *testing.T) *testDaemon {
	t.Helper()
	d := &testDaemon{daemontest.NewDev(t, serve)}
	d.Start()
	return d
}

// newTestLease returns a lease of names that nobody else knows, on a connection.
func newTestLease(on *session, names ...string) *heldLease {
	h := &heldLease{recording: &recording{}}
	h.Init(names, locktable.Kind{}, false, h)
	h.SetHolder(&on.client, &on.client)
	return h
}

// newTestSession returns a session without a connection.
func newTestSession(d *Host) *session {
	s := &session{host: d}
	s.client.Of = s
	return s
}
