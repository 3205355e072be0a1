package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// passed is a request that allows passes: its lease is extended and has a block of tokens.
var passed = redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: true, Block: 8}

// passTo passes l to the next client, and returns that client's lease.
func (f *fleet) passTo(l *redlock.Lease, r redlock.Request) *redlock.Lease {
	f.Helper()
	passes := f.q.Status().Counts.Passes
	next := f.passOn(l, r)
	want(f, "passes", f.q.Status().Counts.Passes-passes, uint64(1))
	return next
}

// A pass is a separate grant: it has its own ID and the next fencing token. No byte is sent to a
// node. The token on the nodes stays.
func TestPass(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(passed)
		recorded := &records{}
		r := passed
		r.BeforeAttempt = recorded.add
		for range 6 { // the nodes' counters may be ahead of the clock by one
			j := f.record()
			next := f.passTo(l, r)
			want(t, "commands", j.perNode()[0], 0)
			wantErr(t, "the old lease", l.Err(), redlock.ErrReleased)
			want(t, "fencing token", next.Fence(), l.Fence()+1)
			want(t, "token on the nodes", next.TokenID(), l.TokenID())
			want(t, "id", next.ID() != l.ID(), true)
			want(t, "passed", next.Passed(), true)
			record := recorded.last()
			want(t, "recorded grant", record.Grant, next.ID())
			want(t, "recorded token", record.Token, l.Record().Token)
			want(t, "recorded fencing token", record.Fence, next.Fence())
			l = next
		}
		next := f.passOn(l, r)
		if next.Passed() { // otherwise the block had 7 tokens
			l = next
			next = f.passOn(l, r)
		}
		want(t, "passed", next.Passed(), false) // the block has no token left
		want(t, "hand-overs", f.q.Status().Counts.HandOvers, uint64(1))
		if next.Fence() <= l.Fence() {
			t.Errorf("fencing token %d after %d", next.Fence(), l.Fence())
		}
		f.release(next)
		synctest.Wait()
		f.wantNoKeys("in the end")
	})
}

// Confirmations in the background allow passes for as long as the lock is passed, and reserve
// tokens meanwhile. They end when no pass follows.
func TestPassesAreConfirmed(t *testing.T) {
	for _, names := range [][]string{{"x"}, {"x", "y"}} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			trip := func(int) time.Duration { return 6 * ms }
			f.delay(trip, trip)
			r := passed
			r.Name, r.Names, r.Block = "", names, 40
			l := f.acquire(r)
			fence := l.Fence()
			for range 300 {
				time.Sleep(5 * ms)
				l = f.passTo(l, r)
			}
			want(t, "tokens", l.Fence(), fence+300)
			time.Sleep(200 * ms)
			j := f.record()
			time.Sleep(500 * ms)
			want(t, "confirmations without passes", len(j.of("v")), 0)
			want(t, "passed", f.passOn(l, r).Passed(), false)
		})
	}
}

// After the window has ended, a lock is not passed, neither at the release nor at the grant to
// the next client. The next client gets it by a ballot.
func TestPassAfterWindow(t *testing.T) {
	for what, wait := range map[string]struct{ before, between time.Duration }{
		"released late": {300 * ms, 0},
		"granted late":  {0, 300 * ms},
	} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l := f.acquire(passed)
			time.Sleep(wait.before)
			releasing, r := f.handOverTo(l, passed)
			complete := make(chan int, 1)
			releasing.Then(func(unanswered int) { complete <- unanswered })
			time.Sleep(wait.between)
			next := f.acquire(r)
			want(t, what+": passed", next.Passed(), false)
			want(t, what+": hand-overs", f.q.Status().Counts.HandOvers, uint64(1))
			want(t, what+": release", releasing.Wait(t.Context()), nil)
			want(t, what+": nodes that did not answer", <-complete, 0)
			want(t, what+": the token has changed", next.TokenID() != l.TokenID(), true)
			f.release(next)
			synctest.Wait()
			f.wantNoKeys(what)
		})
	}
}

// Besides the window, a pass depends on these properties of the requests.
func TestPassConditions(t *testing.T) {
	for what, change := range map[string]func(*redlock.Request){
		"it is without Keep":        func(r *redlock.Request) { r.Keep = false },
		"it asks for a larger ttl":  func(r *redlock.Request) { r.TTL = 4 * time.Second },
		"it has no block":           func(r *redlock.Request) { r.Block = 0 },
		"it asks for a smaller ttl": func(r *redlock.Request) { r.TTL = time.Second },
	} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			r := passed
			change(&r)
			passes := r.Keep && r.TTL <= passed.TTL
			want(t, what+": passed", f.passOn(f.acquire(passed), r).Passed(), passes)
		})
	}
	simTest(t, 3, func(t *testing.T, f *fleet) {
		r := passed
		r.Block = 0
		want(t, "the lease has no block: passed", f.passOn(f.acquire(r), passed).Passed(), false)
		r.Block = redlock.MaxBlock + 1
		_, err := f.q.Acquire(t.Context(), r)
		wantErr(t, "a block that is too large", err, redlock.ErrRequest)
	})
}

// A pass to a client that has ended grants nothing, and the token is released.
func TestPassToEndedClient(t *testing.T) {
	for what, end := range map[string]func(f *fleet, r redlock.Request){
		"abandoned": func(_ *fleet, r redlock.Request) { r.Pending.Abandon() },
		"cancelled": func(f *fleet, r redlock.Request) { f.acquireCancelled(r) },
		"gone": func(f *fleet, r redlock.Request) {
			_, err := f.q.Acquire(f.Context(), r)
			wantErr(f, "gone", err, redlock.ErrHeld)
		},
	} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			r := passed
			gone := make(chan struct{})
			r.StopRetrying = gone
			releasing, r := f.handOverTo(f.acquire(passed), r)
			complete := make(chan int, 1)
			releasing.Then(func(unanswered int) { complete <- unanswered })
			close(gone)
			end(f, r)
			want(t, what+": nodes that did not answer the release", <-complete, 0)
			want(t, what+": passes", f.q.Status().Counts.Passes, uint64(0))
			f.wantNoKeys(what)
		})
	}
}

// If a lock is lost between its release and the next grant, it is not passed.
func TestLostLockIsNotPassed(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		f.delay(each(ms), each(ms))
		r := passed
		r.OnLost = func(*redlock.Lease) { t.Error("LOST was reported for a lease that was not granted yet") }
		_, r = f.handOverTo(f.acquire(passed), r)
		for _, sim := range f.sims[:3] {
			forget(sim)
		}
		time.Sleep(40 * ms) // within the window
		next := f.acquire(r)
		want(t, "passed", next.Passed(), false)
		f.release(next)
	})
}

// FORCE also revokes a lock that is passed continuously: no pass follows the answer to FORCE.
func TestForceOfPassed(t *testing.T) {
	for _, here := range []bool{true, false} {
		twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			q := other
			if here {
				q = f.q
			}
			l := f.acquire(passed)
			answered := make(chan error, 1)
			go func() {
				_, err := q.Force(f.Context(), "x")
				answered <- err
			}()
			for l.Err() == nil {
				select {
				case err := <-answered:
					want(t, "FORCE", err, nil)
					t.Fatal("FORCE was answered, but the lock is still passed")
				default:
				}
				time.Sleep(ms)
				_, pending, err := l.HandOver(passed)
				if err != nil {
					break
				}
				r := passed
				r.Pending = pending
				next, err := f.q.Acquire(t.Context(), r)
				if err != nil || !next.Passed() {
					break
				}
				l = next
			}
			want(t, "FORCE", <-answered, nil)
		})
	}
}

// Confirmations show that a client on another host waits.
func TestConfirmationShowsWaiter(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		l := f.acquire(passed)
		for range 30 {
			time.Sleep(5 * ms)
			l = f.passTo(l, passed)
		}
		want(t, "other clients wait", l.Wanted(), false)
		w := f.wait(other, patient)
		for range 10 {
			time.Sleep(5 * ms)
			l = f.passTo(l, passed)
		}
		want(t, "other clients wait", l.Wanted(), true)
		f.release(l)
		<-w.done
		if w.lease.Fence() <= l.Fence() {
			t.Errorf("fencing token %d after %d", w.lease.Fence(), l.Fence())
		}
	})
}

// A lease from a pass is adopted with its ID, and not passed again.
func TestAdoptPassed(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.passTo(f.acquire(passed), passed)
		record := l.Record()
		f.restart(20 * ms)
		next, _ := f.adopt(record)
		want(t, "id", next.ID(), l.ID())
		want(t, "fencing token", next.Fence(), l.Fence())
		time.Sleep(10 * ms)
		after := f.passOn(next, passed)
		want(t, "passed", after.Passed(), false)
		if after.Fence() <= l.Fence()+uint64(passed.Block) {
			t.Errorf("fencing token %d, want it after the block that begins at %d", after.Fence(), l.Fence())
		}
		record.Grant = "x"
		want(t, "error of a wrong id", f.adoptErr(record) != nil, true)
	})
}

func (f *fleet) adoptErr(r redlock.Record) error {
	a, _ := f.adoptAll(r)
	return a.Errs[0]
}

// A node that was repaired does not count for a pass: another client could have held the lock
// there.
func TestPassWithRepairedNodes(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.delay(each(ms), each(ms))
		l := f.acquire(passed)
		for _, sim := range []*redlocktest.Sim{f.sims[0], f.sims[1]} {
			forget(sim)
			time.Sleep(30 * ms) // the lease is confirmed, and repaired
			l = f.passOn(l, passed)
		}
		want(t, "repairs", f.q.Status().Counts.Repairs > 0, true)
		time.Sleep(45 * ms)
		want(t, "passed", f.passOn(l, passed).Passed(), false)
	})
}

// The nodes' clocks limit a block, even if the host's clock is wrong. The host must not raise the
// nodes' counters up to its own time.
func TestBlockOfWrongClock(t *testing.T) {
	for _, wrong := range []time.Duration{-time.Hour, 0, 100 * ms, time.Hour} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			time.Sleep(2 * time.Second) // the nodes' clocks are known by now
			l := f.acquire(passed)
			now := uint64(time.Now().Add(2 * time.Second).UnixMicro())
			if l.Fence() > now {
				t.Errorf("%v: fencing token %d, want at most the current time %d", wrong, l.Fence(), now)
			}
			time.Sleep(5 * ms)
			for range 5 {
				l = f.passOn(l, passed)
				if l.Fence() > now {
					t.Errorf("%v: fencing token %d, want at most the current time %d", wrong, l.Fence(), now)
				}
			}
			f.release(l)
			next := f.acquire(passed)
			if next.Fence() <= l.Fence() || next.Fence() > now {
				t.Errorf("%v: fencing token %d after %d, want at most the current time %d", wrong, next.Fence(), l.Fence(), now)
			}
		}, func(o *redlock.Options) {
			o.Wall = func() time.Time { return time.Now().Add(wrong) }
		})
	}
}

// However many blocks are wasted, the counters do not run ahead of the nodes' clocks.
func TestBlocksDoNotOutrunClocks(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		time.Sleep(2 * time.Second) // the nodes' clocks are known by now
		r := passed
		r.Block = redlock.MaxBlock
		begin := f.now()
		for range 700 {
			f.release(f.acquire(r))
		}
		l := f.acquire(r)
		if ahead := time.Duration(l.Fence()-uint64(time.Now().UnixMicro())) * time.Microsecond; ahead > time.Second {
			t.Errorf("the fencing token is %v ahead of the clock after %v", ahead, f.now()-begin)
		}
	})
}
