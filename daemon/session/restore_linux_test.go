package session

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/redlock"
)

// restoreFrom runs a daemon that restores the state file at path, and calls do.
func restoreFrom(t *testing.T, path string, do func(d *Host, p *state.Recovered)) {
	t.Helper()
	d, closeNodes := embeddedHost(t, io.Discard)
	defer closeNodes()
	defer d.Nodes.Close()
	p := d.Journal.Open(d.journalOptions(path))
	if !d.Journal.IsOpen() {
		t.Fatal("there is no state file")
	}
	defer d.Journal.Close()
	r := restoration{d: d, recovered: p, conns: map[uint64]*restoredConn{}}
	r.takeLeases()
	r.beginAgain()
	do(d, p)
}

// The releases that a restart begins are recorded under their tokens for the daemon after it. They
// include attempts whose LOCKs have no client any more. A further restart adds no records.
func TestAbandonedAttemptStaysRecorded(t *testing.T) {
	t.Parallel() // it mostly waits
	path := filepath.Join(t.TempDir(), "s")
	target := func(name string) redlock.Record {
		return redlock.Record{Names: []string{name}, TTL: 5 * time.Second, Token: strings.Repeat(name, 22)}
	}
	restoreFrom(t, path, func(d *Host, _ *state.Recovered) {
		for d.Journal.NextNumber() < 4 {
		}
		d.Journal.ConnOpened(1, false)
		d.Journal.RequestBegun(&state.Request{Number: 2, Conn: 1, Line: []byte("LOCK a")}, nil)
		d.Journal.Lease(&state.Lease{Number: 2, Record: target("a")}, 0)
		d.Journal.RequestBegun(&state.Request{Number: 3, Conn: 1, Line: []byte("LOCK b")}, nil)
		d.Journal.Lease(&state.Lease{Number: 3, Record: target("b")}, 0)
		released := target("c")
		released.Fence, released.Deadline, released.Since, released.Keep = 1, d.Clock()+time.Second, d.Clock(), true // like a lease that was held
		d.Journal.Lease(&state.Lease{Number: 4, Life: locktable.Life{State: locktable.Releasing}, Record: released}, 4)
	})
	for range 2 {
		restoreFrom(t, path, func(*Host, *state.Recovered) {})
	}
	restoreFrom(t, path, func(_ *Host, p *state.Recovered) {
		noted := map[string]locktable.State{}
		for number, l := range p.Leases {
			noted[l.Record.Token] = l.Life.State
			if number == 2 || number == 3 {
				t.Errorf("recorded under the number of its LOCK, %d, which may start again", number)
			}
		}
		for name, want := range map[string]locktable.State{"a": locktable.Acquiring, "b": locktable.Acquiring, "c": locktable.Releasing} {
			if got, found := noted[target(name).Token]; !found || got != want {
				t.Errorf("%s is recorded: %v, in state %v, want %v", name, found, got, want)
			}
		}
		if len(p.Leases) != 3 || len(p.Requests) != 0 {
			t.Errorf("%d leases and %d requests are recorded, want 3 and none", len(p.Leases), len(p.Requests))
		}
	})
}
