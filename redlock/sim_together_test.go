package redlock_test

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Leases that are extended together are decided one by one: x at one answer, y at another.
// Nodes answer in their order.
func togetherTest(t *testing.T, body func(t *testing.T, f *fleet, x, y *redlock.Lease)) {
	t.Helper()
	simTest(t, 5, func(t *testing.T, f *fleet) {
		x, y := f.acquire(kept3s), f.acquire(redlock.Request{Name: "y", TTL: 3 * time.Second, Keep: true})
		f.delay(each(ms), each(0))
		body(t, f, x, y)
	})
}

// deleted has a node forget one lock.
func deleted(key string) func(*redlocktest.Sim) {
	return func(s *redlocktest.Sim) { s.Do("DEL", key) }
}

// One that the nodes have forgotten is gone once, whatever else they say of it: the other
// one, which nobody decided, is tried again. Guards extension.isDecided: refused.
func TestExtendedBesideOneThatIsGone(t *testing.T) {
	togetherTest(t, func(t *testing.T, f *fleet, x, y *redlock.Lease) {
		every(f.sims, deleted("redlock:x"))
		every(f.sims[:2], deleted("redlock:y"))
		f.at(y.Since(), 900*ms)
		f.sims[4].DropRequests(1) // without it, nothing of y is decided
		f.at(y.Since(), 1200*ms)
		wantErr(t, "x", x.Err(), redlock.ErrLost)
		f.at(y.Since(), 10*time.Second)
		want(t, "y", y.Err(), nil)
		f.release(y)
	})
}

// One that is confirmed is set again on a node that answers later, though the other one
// is not decided by then. Guards countReplies: toRepair.
func TestRepairedBesideOneThatIsOpen(t *testing.T) {
	togetherTest(t, func(t *testing.T, f *fleet, x, y *redlock.Lease) {
		every(f.sims[:2], deleted("redlock:y")) // it is decided by the last one
		f.sims[3].Do("DEL", "redlock:x")
		f.at(x.Since(), 1200*ms)
		want(t, "nodes that have x", len(f.keys()), 10)
		f.release(x)
		f.release(y)
	})
}
