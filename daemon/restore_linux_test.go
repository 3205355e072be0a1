package daemon

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// succeeding is a daemon that goes on with the table at a path, for a moment.
func succeeding(t *testing.T, path string, do func(d *daemon, p *past)) {
	t.Helper()
	d, closeNodes := embeddedDaemon(t, io.Discard)
	defer closeNodes()
	defer d.nodes.Close()
	p, whole := d.openLedger(path)
	if d.ledger == nil {
		t.Fatal("there is no table")
	}
	defer d.ledger.leave()
	r := restoration{d: d, past: p, whole: whole, conns: map[uint64]*returned{}}
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
	succeeding(t, path, func(d *daemon, _ *past) {
		d.ledger.conn(1, false)
		d.ledger.ask(&pastAsk{number: 2, conn: 1, line: []byte("LOCK a")})
		d.ledger.lease(recTaking, &pastLease{number: 2, lease: target("a")})
		d.ledger.ask(&pastAsk{number: 3, conn: 1, line: []byte("LOCK b")})
		d.ledger.lease(recTaking, &pastLease{number: 3, lease: target("b")})
		d.ledger.lease(recLost, &pastLease{number: 3, reason: redlock.LostMax})
		released := target("c")
		released.Fence, released.Deadline, released.Since, released.Keep = 1, d.clock()+time.Second, d.clock(), true // as it was held
		d.ledger.lease(recHeld, &pastLease{number: 4, phase: phaseReleased, lease: released})
		d.ledger.last.Store(4)
	})
	for range 2 {
		succeeding(t, path, func(*daemon, *past) {})
	}
	succeeding(t, path, func(_ *daemon, p *past) {
		noted := map[string]phase{}
		for number, l := range p.leases {
			noted[l.lease.Token] = l.phase
			if number == 2 || number == 3 {
				t.Errorf("noted under the number of its LOCK, %d, which may begin anew", number)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			if noted[target(name).Token] != phaseReleased {
				t.Errorf("of %s is noted %v, want that it is given back", name, noted[target(name).Token])
			}
		}
		if len(p.leases) != 3 || len(p.asks) != 0 {
			t.Errorf("noted are %d leases and %d requests, want 3 and none", len(p.leases), len(p.asks))
		}
	})
}
