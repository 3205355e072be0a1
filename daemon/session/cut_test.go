package session

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/redlock"
)

// TestCutConnectionKeepsItsLocks: a client that the daemon hangs up on may be
// at work: its lock stays taken until the deadline that it was told, and is listed.
func TestCutConnectionKeepsItsLocks(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, impatient, cut := d.dialImpatient()
	deadline := duration(t, w.Say("LOCK a ttl=700ms", granted5)[2])
	cut()
	if listed := impatient.Leases.all(); len(listed) != 1 || listed[0].lease.Left() <= 0 {
		t.Errorf("listed while others cannot have it: %v, want a lost lease", listed)
	}
	d.dial().Say("LOCK a", granted5)
	if now := redlock.BootTime(); now < deadline {
		t.Errorf("granted to another at %v, before the deadline %v", now, deadline)
	}
	daemontest.Eventually(t, "it is listed no more", func() bool { return len(impatient.Leases.all()) == 0 })
	daemontest.Eventually(t, "nobody waits behind it there", func() bool { return impatient.Queue.Len() == 0 })
}

// One that the daemon hangs up on as it stops has lost nothing by that: it may come back to
// the next one, as it may to one that comes after a crash.
func TestConnectionCutByTheEndCanResume(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, impatient, cut := d.dialImpatient()
	w.Say("LOCK a", granted5)
	impatient.Stopping.Store(true)
	cut()
	if listed := impatient.Leases.all(); len(listed) != 1 || listed[0].lease.Err() != nil {
		t.Errorf("got %v, want a lease that stands", listed)
	}
}

// What was taken with a lock that was forced away stays taken as well: the client has
// neither said that it has stopped, nor hung up.
func TestCutConnectionKeepsTheRest(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, patientNodes)
	w, _, cut := d.dialImpatient()
	admin := d.dial()
	w.Say("LOCK a,b ttl=30s", granted(`a,b`))
	admin.Say("FORCE a", `OK lock=a n=1 .*`)
	w.Want(`LOST lock=a,b .*`)
	cut()
	admin.Say("LOCK b wait=500ms", `ERR HELD .*`)
}

// dialImpatient is a connection to another daemon over the same nodes, which hangs up on
// whoever does not read for a moment: cut has it do so.
func (d *testDaemon) dialImpatient() (w *wire, impatient *Host, cut func()) {
	t := d.T
	t.Helper()
	impatient, err := newTestHost(d.Cfg, hclog.NewNullLogger(), testNodes(d.Cfg), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(impatient.Nodes.Close)
	impatient.Nodes.Settle(t.Context())
	server := impatient.NewServer()
	server.WriteTimeout = 50 * time.Millisecond
	ours, theirs, err := devnodes.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() }) // not before: the client is alive
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.ServeConn(theirs)
	}()
	w = &wire{daemontest.NewWire(t, ours.(*net.UnixConn))}
	return w, impatient, func() {
		w.Send("%s", strings.Repeat("HELP\n", 2000)) // whose answers nobody reads
		<-served
	}
}
