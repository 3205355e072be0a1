package session

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/daemon/daemontest"
)

// If the daemon cuts a client's connection, the client may still work. Its lock stays taken and
// listed until the last deadline that the client was given.
func TestCutConnectionKeepsItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w, host, cut := d.dialShortTimeout()
		deadline := duration(t, w.Say("LOCK a ttl=700ms", granted5)[2])
		cut()
		if listed := host.allLeases(); len(listed) != 1 || listed[0].lease.TimeToRelease() <= 0 {
			t.Errorf("listed before the deadline: %v, want a lost lease", listed)
		}
		d.dial().Say("LOCK a", granted5)
		if now := d.now(); now < deadline {
			t.Errorf("granted to another client at %v, before the deadline %v", now, deadline)
		}
		daemontest.Eventually(t, "the lease is no longer listed", func() bool { return len(host.allLeases()) == 0 })
		daemontest.Eventually(t, "the wait queue is empty", func() bool { return queued(host) == 0 })
	})
}

// If the daemon cuts a connection while it stops, the lease is not lost. The client may resume it
// at the next daemon, as after a crash.
func TestConnectionCutByShutdownCanResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w, host, cut := d.dialShortTimeout()
		w.Say("LOCK a", granted5)
		host.Stopping.Store(true)
		cut()
		if listed := host.allLeases(); len(listed) != 1 || listed[0].lease.Err() != nil {
			t.Errorf("got %v, want a valid lease", listed)
		}
	})
}

// FORCE took one of several names, and the daemon cuts the connection. The other names stay taken,
// because the client has neither confirmed that it stopped nor hung up.
func TestCutConnectionKeepsOtherNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, longNodeTimeout)
		w, _, cut := d.dialShortTimeout()
		admin := d.dial()
		w.Say("LOCK a,b ttl=30s", granted(`a,b`))
		admin.Say("FORCE a", `OK lock=a n=1 .*`)
		w.Want(`LOST lock=a,b .*`)
		cut()
		admin.Say("LOCK b wait=500ms", `ERR HELD .*`)
	})
}

// dialShortTimeout connects to another daemon over the same nodes, which soon cuts clients that do
// not read. cut makes it cut this connection.
func (d *simDaemon) dialShortTimeout() (w *wire, host *Host, cut func()) {
	t := d.T
	t.Helper()
	host, err := d.newHost(d.Daemon)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	host.Nodes.Settle(t.Context())
	server := newPipeServer(host)
	server.WriteTimeout = 50 * time.Millisecond
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close() }) // not before: the client must stay connected
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.ServeConn(theirs)
	}()
	w = &wire{daemontest.NewWire(t, ours)}
	return w, host, func() {
		_, _ = io.WriteString(ours, strings.Repeat("HELP\n", 2000)) // fails when it is cut; the test does not read the answers
		<-served
	}
}
