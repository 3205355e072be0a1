package daemon

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// BenchmarkNotes is what the table costs for a LOCK and its UNLOCK: their six
// records, and the merging of what they leave.
func BenchmarkNotes(b *testing.B) {
	d := &daemon{cfg: config.Dev(), log: hclog.NewNullLogger(), clock: redlock.BootTime, limits: newLimits(config.Limits{})}
	if d.openLedger(filepath.Join(b.TempDir(), "s")); d.ledger == nil {
		b.Skip("the table needs Linux")
	}
	s := &session{d: d, number: d.ledger.next()}
	d.ledger.conn(s.number, true)
	lease := redlock.Record{Names: []string{"bench-12"}, Token: "k3Ud9PqzRw5nXyTg host 4711 0 root 1795247588294", TTL: 10 * time.Second}
	lock, unlock := []byte("@17 LOCK bench-12"), []byte("@18 UNLOCK bench-12")
	b.ReportAllocs()
	for b.Loop() {
		var call, back server.Call
		s.Asked(&call, lock, nil)
		taken := lease
		d.ledger.lease(recTaking, &pastLease{number: call.Number, lease: taken})
		held := pastLease{number: call.Number, phase: phaseHeld, lease: taken, conn: s.number,
			holder: heldBy{pid: 4711, user: "root", since: time.Hour}}
		held.lease.Fence, held.lease.Deadline, held.lease.Since = 1<<50, time.Hour, time.Hour
		d.ledger.lease(recHeld, &held)
		s.Asked(&back, unlock, nil)
		d.ledger.lease(recReleased, &pastLease{number: call.Number, by: back.Number})
		d.ledger.lease(recForgot, &pastLease{number: call.Number, by: back.Number})
	}
	b.StopTimer()
	d.ledger.leave()
}
