package daemon

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/redlock"
)

// succeeding is a daemon that goes on with the table at a path, for a moment.
func succeeding(t *testing.T, path string, do func(d *daemon, p *state.Recovered)) {
	t.Helper()
	d, closeNodes := embeddedDaemon(t, io.Discard)
	defer closeNodes()
	defer d.nodes.Close()
	p := d.journal.Open(d.journalOptions(path))
	if !d.journal.IsOpen() {
		t.Fatal("there is no table")
	}
	defer d.journal.Close()
	r := restoration{d: d, past: p, conns: map[uint64]*returned{}}
	r.takeLeases()
	r.beginAgain()
	do(d, p)
}

// What a restart gives back, attempts whose LOCKs nobody waits for any more, too, is noted for the one after it, by its
// token, and does not become more with each.
func TestAbandonedStaysNoted(t *testing.T) {
	t.Parallel() // it mostly waits
	path := filepath.Join(t.TempDir(), "s")
	target := func(name string) redlock.Record {
		return redlock.Record{Names: []string{name}, TTL: 5 * time.Second, Token: strings.Repeat(name, 22)}
	}
	succeeding(t, path, func(d *daemon, _ *state.Recovered) {
		for d.journal.NextNumber() < 4 {
		}
		d.journal.ConnOpened(1, false)
		d.journal.RequestBegun(&state.Request{Number: 2, Conn: 1, Line: []byte("LOCK a")}, nil)
		d.journal.Acquiring(2, target("a"))
		d.journal.RequestBegun(&state.Request{Number: 3, Conn: 1, Line: []byte("LOCK b")}, nil)
		d.journal.Acquiring(3, target("b"))
		d.journal.Lost(3, redlock.LostMax)
		released := target("c")
		released.Fence, released.Deadline, released.Since, released.Keep = 1, d.clock()+time.Second, d.clock(), true // as it was held
		d.journal.Granted(&state.Lease{Number: 4, Phase: state.PhaseReleased, Record: released})
	})
	for range 2 {
		succeeding(t, path, func(*daemon, *state.Recovered) {})
	}
	succeeding(t, path, func(_ *daemon, p *state.Recovered) {
		noted := map[string]state.Phase{}
		for number, l := range p.Leases {
			noted[l.Record.Token] = l.Phase
			if number == 2 || number == 3 {
				t.Errorf("noted under the number of its LOCK, %d, which may begin anew", number)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			if noted[target(name).Token] != state.PhaseReleased {
				t.Errorf("of %s is noted %v, want that it is given back", name, noted[target(name).Token])
			}
		}
		if len(p.Leases) != 3 || len(p.Requests) != 0 {
			t.Errorf("noted are %d leases and %d requests, want 3 and none", len(p.Leases), len(p.Requests))
		}
	})
}
