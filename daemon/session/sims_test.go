package session

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// simDaemon is a daemon on fake time, with simulated nodes. Clients connect through pipes, so the
// daemon does not know their processes. It has no state file.
type simDaemon struct {
	*daemontest.Daemon
	sims []*redlocktest.Sim
	now  func() time.Duration // the host's clock
}

// startSims starts a daemon with n simulated nodes that may vote. The test runs in a synctest
// bubble: a wait for a ttl takes no time, and instants are exact. change may alter the config first.
func startSims(t *testing.T, n int, change func(*config.Config)) *simDaemon {
	t.Helper()
	boot := time.Now().Add(-time.Hour)
	d := &simDaemon{now: func() time.Duration { return time.Since(boot) }}
	d.Daemon = daemontest.NewDev(t, d.serve)
	d.Cfg.Quorum.Nodes, d.Cfg.Quorum.NodeTimeout = nil, 250*time.Millisecond
	for i := range n {
		sim := redlocktest.NewSim(string(rune('a' + i)))
		t.Cleanup(sim.Close)
		d.sims = append(d.sims, sim)
		d.Cfg.Quorum.Nodes = append(d.Cfg.Quorum.Nodes, config.Node{Name: string(rune('a' + i)), Address: "simulated"})
	}
	if change != nil {
		change(d.Cfg)
	}
	d.Start()
	return d
}

// another starts a daemon of another host, over the same nodes.
func (d *simDaemon) another() *simDaemon {
	d.T.Helper()
	return &simDaemon{Daemon: d.Another(nil), sims: d.sims, now: d.now}
}

func (d *simDaemon) dial() *wire {
	d.T.Helper()
	return &wire{d.Dial()}
}

// serve runs a Host until ctx ends.
func (d *simDaemon) serve(ctx context.Context, td *daemontest.Daemon, ready func()) error {
	host, err := d.newHost(td)
	if err != nil {
		return err
	}
	defer host.Close()
	host.Nodes.Settle(ctx)
	srv := newPipeServer(host)
	var serving sync.WaitGroup
	defer serving.Wait()
	td.Connect = func() (net.Conn, error) {
		ours, theirs := net.Pipe()
		serving.Go(func() { srv.ServeConn(theirs) })
		return ours, nil
	}
	ready()
	for {
		select {
		case cfg := <-td.Reload:
			host.Reload(cfg)
		case <-ctx.Done():
			host.Shutdown(srv)
			return nil
		}
	}
}

// newHost makes a Host with the simulated nodes and their clock.
func (d *simDaemon) newHost(td *daemontest.Daemon) (*Host, error) {
	var nodes []redlock.Node
	for _, sim := range d.sims {
		nodes = append(nodes, sim.Node())
	}
	host := NewHost(HostOptions{Config: td.Cfg, Log: td.Log, Version: "test"})
	host.Clock = d.now
	return host, host.Connect(redlock.Options{
		Nodes: nodes, Prefix: td.Cfg.Quorum.KeyPrefix, NodeTimeout: td.Cfg.Quorum.NodeTimeout, MaxTTL: td.Cfg.Quorum.MaxTTL,
		Clock: d.now, NoQuarantine: true,
	})
}

// newPipeServer returns a server whose clients are this user, as on a socket: they may use FORCE.
func newPipeServer(host *Host) *server.Server {
	srv := host.NewServer()
	srv.Open = func(conn *server.Conn) (server.Session, error) {
		s, err := host.open(conn)
		s.(*session).requester.UID = os.Getuid()
		return s, err
	}
	return srv
}

// keys returns the keys of locks on all nodes together.
func (d *simDaemon) keys() (all []string) {
	for _, sim := range d.sims {
		for _, key := range sim.Keys() {
			if strings.HasPrefix(key, d.Cfg.Quorum.KeyPrefix) {
				all = append(all, key)
			}
		}
	}
	return all
}

// awaitNoKeys waits until no node has a key of a lock.
func (d *simDaemon) awaitNoKeys() {
	d.T.Helper()
	daemontest.Eventually(d.T, "no keys are left", func() bool { return len(d.keys()) == 0 })
}
