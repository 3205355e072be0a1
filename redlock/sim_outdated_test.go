package redlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// standIn is another Redis, which answers at the address of node a from move to back.
type standIn struct {
	f     *fleet
	sim   *redlocktest.Sim
	moved atomic.Bool
}

func (s *standIn) move() { s.moved.Store(true); s.f.sims[0].Cut() }
func (s *standIn) back() { s.moved.Store(false); s.sim.Cut() }

// standInTest is an admittedTest of five nodes, of which the first can be replaced.
func standInTest(t *testing.T, body func(t *testing.T, f *fleet, s *standIn, withdrawals func() uint64)) {
	s := &standIn{}
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		s.f = f
		defer s.sim.Close()
		body(t, f, s, func() uint64 { return f.q.Status().Counts.Withdrawals })
	}, func(o *redlock.Options) {
		s.sim = redlocktest.NewSim("a")
		first, other := o.Nodes[0], s.sim.Node()
		now := func() redlock.Node {
			if s.moved.Load() {
				return other
			}
			return first
		}
		o.Nodes[0].Dial = func(ctx context.Context) (redlock.Conn, error) { return now().Dial(ctx) }
		o.Nodes[0].Listen = func(ctx context.Context, heard func([]string)) (redlock.Listener, error) {
			return now().Listen(ctx, heard)
		}
	})
}

// A node's address moves to another Redis, which is admitted and votes, and back to the
// former one, which never ended and knows nothing of these votes: that costs a
// quarantine, from then on. Guards memory.isOutdated.
func TestFormerNodeIsBack(t *testing.T) {
	standInTest(t, func(t *testing.T, f *fleet, s *standIn, withdrawals func() uint64) {
		s.move()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		held := f.acquire(redlock.Request{Name: "held", TTL: longest})
		want(t, "the stand-in voted", s.sim.Get("redlock:held") != "", true)
		begin := f.now()
		s.back()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined, "forgotten locks")
		want(t, "withdrawals", withdrawals(), 1)
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
	standInTest(t, func(t *testing.T, f *fleet, s *standIn, withdrawals func() uint64) {
		s.move()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		s.back()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		begin := f.now()
		s.move()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.at(begin, longest-ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		want(t, "withdrawals", withdrawals(), 2)
		f.at(begin, longest+2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
	})
}
