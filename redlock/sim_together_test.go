package redlock_test

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// togetherTest runs body with two leases that are extended together and decided separately. The
// nodes answer in their order.
func togetherTest(t *testing.T, body func(t *testing.T, f *fleet, x, y *redlock.Lease)) {
	t.Helper()
	simTest(t, 5, func(t *testing.T, f *fleet) {
		x, y := f.acquire(kept3s), f.acquire(redlock.Request{Name: "y", TTL: 3 * time.Second, Keep: true})
		f.delay(each(ms), each(0))
		body(t, f, x, y)
	})
}

// deleted returns a function that deletes a lock on a node.
func deleted(key string) func(*redlocktest.Sim) {
	return func(s *redlocktest.Sim) { s.Do("DEL", key) }
}

// A lease that the nodes have lost is lost once, whatever else they report for it. The other
// lease, which is undecided, is extended again. Guards extension.isDecidedLocked: refused.
func TestExtendedBesideLostLease(t *testing.T) {
	togetherTest(t, func(t *testing.T, f *fleet, x, y *redlock.Lease) {
		every(f.sims, deleted("redlock:x"))
		every(f.sims[:2], deleted("redlock:y"))
		f.at(y.Since(), 900*ms)
		f.sims[4].DropRequests(1) // without its answer, y is undecided
		f.at(y.Since(), 1200*ms)
		wantErr(t, "x", x.Err(), redlock.ErrLost)
		f.at(y.Since(), 10*time.Second)
		want(t, "y", y.Err(), nil)
		f.release(y)
	})
}

// A confirmed lease is set again on a node that answers later, even if the other lease is still
// undecided. Guards countRepliesLocked: toRepairLocked.
func TestRepairedBesideUndecidedLease(t *testing.T) {
	togetherTest(t, func(t *testing.T, f *fleet, x, y *redlock.Lease) {
		every(f.sims[:2], deleted("redlock:y")) // the last answer decides y
		f.sims[3].Do("DEL", "redlock:x")
		f.at(x.Since(), 1200*ms)
		want(t, "keys of x and y", len(f.keys()), 10)
		f.release(x)
		f.release(y)
	})
}
