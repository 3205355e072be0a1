package daemontest

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Daemon is a daemon in this process.
type Daemon struct {
	T      *testing.T
	Cfg    *config.Config
	Nodes  *redlocktest.Cluster // the redis-servers; nil: the nodes are embedded, and end with the daemon
	Log    hclog.Logger         // set it before Start; nil: only defects are logged
	Stop   func() error         // stops the daemon as SIGTERM does, and returns the error of Serve
	Reload chan *config.Config
	// Connect connects a client. Serve may set it before it calls ready; nil: through the socket.
	Connect func() (net.Conn, error)
	// Hostname replaces the name of this host, if Serve does so; "": it does not.
	Hostname string
	serve    Serve
}

// Serve serves until ctx ends. It calls ready when clients can connect.
type Serve func(ctx context.Context, d *Daemon, ready func()) error

// New makes a daemon over n redis-servers that may vote. change may change the config; it may be nil.
func New(t *testing.T, n int, serve Serve, change func(*config.Config)) *Daemon {
	t.Helper()
	cluster := redlocktest.StartRedis(t, n)
	cluster.Admit(t)
	d := NewDev(t, serve)
	d.Nodes = cluster
	d.Cfg.Quorum.Nodes, d.Cfg.Quorum.NodeTimeout = nil, 2*time.Second
	for i, server := range cluster.Servers {
		d.Cfg.Quorum.Nodes = append(d.Cfg.Quorum.Nodes, config.Node{Name: string(rune('a' + i)), Address: server.Addr()})
	}
	if change != nil {
		change(d.Cfg)
	}
	return d
}

// NewDev makes a daemon with embedded nodes.
func NewDev(t *testing.T, serve Serve) *Daemon {
	t.Helper()
	cfg := config.Dev()
	cfg.Socket = config.Socket{Path: filepath.Join(ShortDir(t), "s"), Mode: 0o600}
	return &Daemon{T: t, Cfg: cfg, Reload: make(chan *config.Config), serve: serve}
}

// ShortDir returns a directory for sockets: their paths may have at most about 100 bytes.
func ShortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rld")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Another starts a second daemon over the same nodes, as on another host. log may be nil.
func (d *Daemon) Another(log hclog.Logger) *Daemon {
	d.T.Helper()
	return d.another("2", &Daemon{Log: log})
}

// On starts another daemon over the same nodes, as on a host of that name.
func (d *Daemon) On(hostname string) *Daemon {
	d.T.Helper()
	return d.another(hostname, &Daemon{Hostname: hostname})
}

func (d *Daemon) another(suffix string, other *Daemon) *Daemon {
	d.T.Helper()
	cfg := *d.Cfg
	cfg.Socket.Path += suffix
	other.T, other.Cfg, other.Nodes, other.Reload, other.serve = d.T, &cfg, d.Nodes, make(chan *config.Config), d.serve
	other.Start()
	return other
}

// Start starts the daemon, and returns when clients can connect. The end of the test stops it.
func (d *Daemon) Start() {
	d.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if d.Log == nil {
		d.Log = hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: Defects{T: d.T}})
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { // Stop ends it and waits for it
		ended <- d.serve(ctx, d, func() { close(ready) })
	}()
	d.Stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	d.T.Cleanup(func() {
		if err := d.Stop(); err != nil {
			d.T.Errorf("the daemon ended: %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		d.T.Fatalf("the daemon ended: %v", err)
	case <-time.After(Patience):
		d.T.Fatal("the daemon is not ready")
	}
}

// Defects makes a test fail if a daemon logs a defect.
type Defects struct{ T *testing.T }

// Write takes lines of the log.
func (to Defects) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("a defect in redlockd")) {
		to.T.Errorf("logged: %s", line)
	}
	return len(line), nil
}

// Dial connects to the daemon. The end of the test closes the connection.
func (d *Daemon) Dial() *Wire {
	d.T.Helper()
	connect := d.Connect
	if connect == nil {
		connect = func() (net.Conn, error) { return net.Dial("unix", d.Cfg.Socket.Path) }
	}
	conn, err := connect()
	if err != nil {
		d.T.Fatal(err)
	}
	d.T.Cleanup(func() { conn.Close() })
	return NewWire(d.T, conn)
}

// Keys returns the keys of locks on all nodes together.
func (d *Daemon) Keys() []string {
	d.T.Helper()
	var all []string
	for _, server := range d.Nodes.Servers {
		keys, err := server.Keys("redlock:*")
		if err != nil {
			d.T.Fatal(err)
		}
		all = append(all, keys...)
	}
	return all
}

// AwaitNoKeys waits until no node has a key of a lock. It polls: Redis can report changes of keys,
// but only with a setting that these nodes do not have.
func (d *Daemon) AwaitNoKeys() {
	d.T.Helper()
	Eventually(d.T, "no keys are left", func() bool { return len(d.Keys()) == 0 })
}
