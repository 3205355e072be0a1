package redlock_test

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// A node's address moves to another Redis, which is admitted and votes, and back to the
// former one, which never ended and knows nothing of these votes: that costs a
// quarantine, from then on. Guards memory.isOutdated.
func TestFormerNodeIsBack(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		f.sims[0].Move()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		held := f.acquire(redlock.Request{Name: "held", TTL: longest})
		want(t, "the stand-in voted", f.sims[0].Get("redlock:held") != "", true)
		begin := f.now()
		f.sims[0].Move()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined, "forgotten locks")
		want(t, "withdrawals", f.q.Status().Counts.Withdrawals, 1)
		f.at(begin, longest-ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.at(begin, longest+2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		wantErr(t, "the lease of then", held.Err(), redlock.ErrLost)
	})
}

// A quarantine that was seen for a moment, of a Redis that was at the address for so
// long, has not run on meanwhile.
func TestFormerQuarantineIsBack(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		f.sims[0].Move()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.sims[0].Move()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		begin := f.now()
		f.sims[0].Move()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.at(begin, longest-ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		want(t, "withdrawals", f.q.Status().Counts.Withdrawals, 2)
		f.at(begin, longest+2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
	})
}
