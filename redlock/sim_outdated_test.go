package redlock_test

import (
	"context"
	"sync/atomic"
	"syscall"
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

// A daemon that was started when the other Redis was there has never seen the former one:
// that its epoch is another one from one moment to the next says enough. Guards
// memory.former.
func TestFormerNodeIsBackForANewDaemon(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		f.sims[0].Move()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.q.Close()
		later := f.another(withQuarantine)
		defer later.Close()
		time.Sleep(beat)
		f.wantState(later, 0, redlock.NodeReady)
		begin := f.now()
		f.sims[0].Move()
		time.Sleep(beat + 400*ms)
		f.wantState(later, 0, redlock.NodeQuarantined, "forgotten locks")
		f.at(begin, longest-ms)
		f.wantState(later, 0, redlock.NodeQuarantined)
		f.at(begin, longest+2*beat)
		f.wantState(later, 0, redlock.NodeReady)
	})
}

// A host that did not see the quarantine of a node believes others that it was waited for,
// or that somebody ended it (ADMIT). Guards memory.former.
func TestAdmittedUnseen(t *testing.T) {
	for name, admit := range map[string]bool{"waited for": false, "ended": true} {
		t.Run(name, func(t *testing.T) {
			admittedTest(t, 5, func(t *testing.T, f *fleet) {
				var away atomic.Bool
				other := f.another(withQuarantine, unreachableWhile(&away))
				defer other.Close()
				time.Sleep(beat)
				f.wantState(other, 0, redlock.NodeReady)
				away.Store(true)
				f.sims[0].Flush()
				f.sims[0].Cut()
				time.Sleep(beat)
				f.wantState(f.q, 0, redlock.NodeQuarantined)
				if admit {
					want(t, "ADMIT", f.q.Admit(t.Context(), "a"), nil)
				} else {
					time.Sleep(longest + 2*beat)
				}
				f.wantState(f.q, 0, redlock.NodeReady)
				away.Store(false)
				time.Sleep(beat)
				f.wantState(other, 0, redlock.NodeReady)
			})
		})
	}
}

// unreachableWhile has the first node not be reached.
func unreachableWhile(away *atomic.Bool) func(*redlock.Options) {
	return func(o *redlock.Options) {
		dial := o.Nodes[0].Dial
		o.Nodes[0].Dial = func(ctx context.Context) (redlock.Conn, error) {
			if away.Load() {
				return nil, syscall.EHOSTUNREACH
			}
			return dial(ctx)
		}
	}
}
