package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// No extension follows a release, at whatever instant of an extension the release comes. Guards
// BeginRelease: forget; keeper.place: forgotten; the lanes' order.
func TestReleaseStopsExtensions(t *testing.T) {
	for after := 990 * ms; after < 1030*ms; after += 2*ms + 100*time.Microsecond {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			f.delay(each(2*ms), each(2*ms))
			j := f.record()
			l, seen := f.watch(kept3s)
			f.at(l.Since(), after)
			f.release(l)
			time.Sleep(10 * time.Second)
			f.wantNoKeys(name("released %v after the grant", after))
			want(t, "losses reported", seen.count.Load(), 0)
			for node := range f.sims {
				f.wantOrder(j, node)
			}
			wantErr(t, "released again", l.Release(t.Context()), redlock.ErrReleased)
		})
	}
}

// The same holds if that extension fails and would be retried.
func TestReleaseStopsRetries(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		f.delay(each(2*ms), each(2*ms))
		j := f.record()
		l := f.acquire(kept3s)
		every(f.sims[:3], faults["loading"].begin)
		f.at(l.Since(), 998*ms) // the extension is in progress: it began 2 ms before
		wantErr(t, "three nodes refuse", l.Release(t.Context()), redlock.ErrNoQuorum)
		time.Sleep(10 * time.Second)
		f.wantOrder(j, 3)
		f.wantOrder(j, 4)
		want(t, "extensions", len(j.on(3, "e")), 1)
	})
}

func (f *fleet) wantOrder(j *journal, node int) {
	f.Helper()
	released := j.on(node, "r")
	want(f, "releases", len(released), 1)
	for _, o := range j.on(node, "e") {
		if o.at > released[0].at {
			f.Errorf("node %d: extended at %v, after the release at %v", node, o.at, released[0].at)
		}
	}
}

// A release reports a loss if the lock cannot still have been held. Guards releaseError.
func TestReleaseReportsLoss(t *testing.T) {
	for forgot, wantError := range map[int]error{1: nil, 2: nil, 3: redlock.ErrLost, 5: redlock.ErrLost} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l, seen := f.watch(kept3s)
			every(f.sims[:forgot], forget)
			wantErr(t, name("%d of 5 forgot", forgot), l.Release(t.Context()), wantError)
			time.Sleep(10 * time.Second)
			want(t, "losses reported", seen.count.Load(), 0)
			f.wantNoKeys("after the release")
		})
	}
}

// A lease that expired while the host was suspended is lost, not released. This holds even if its
// timer, which stopped with the host, has not fired yet. Guards finish: lostAtLocked.
func TestReleaseAfterSuspension(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, suspend := f.leaseOfSuspended(redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: true})
		suspend(10 * time.Second)
		wantErr(t, "release", l.Release(t.Context()), redlock.ErrLost)
	})
}

// The loss is reported as soon as the host wakes, not when the timer would have fired. Guards
// keeper.noticeSuspension: onTimer.
func TestLossAfterSuspension(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, suspend := f.leaseOfSuspended(redlock.Request{Name: "x", TTL: 3 * time.Second})
		time.Sleep(10 * ms) // the keeper sleeps by then, too
		suspend(10 * time.Second)
		time.Sleep(300 * ms)
		want(t, "loss reported", isLost(l), true)
	})
}

// The same holds for a short suspension. Guards keeper.noticeSuspension: jumped.
func TestLossAfterShortSuspension(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, suspend := f.leaseOfSuspended(redlock.Request{Name: "x", TTL: 3 * time.Second})
		f.at(l.Since(), 2250*ms)
		suspend(200 * ms) // the lease is due to be lost at 2368 ms
		time.Sleep(101 * ms)
		want(t, "loss reported", isLost(l), true)
	})
}

// isLost reports whether the loss was reported.
func isLost(l *redlock.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// The same holds if an extension is in progress, whether the nodes confirm it too late or not at
// all. It holds even if a confirmation in time would have kept the lease valid. Guards
// keeper.confirmed, keeper.retry: onTimer; Lease.extended: errAtLocked.
func TestLossAfterSuspensionDuringExtension(t *testing.T) {
	for what, trouble := range map[string]func(*fleet){
		"confirmed too late": func(f *fleet) { f.delay(each(0), func(int) time.Duration { return 250 * ms }) },
		"not confirmed":      func(f *fleet) { every(f.sims, hang) },
	} {
		for _, d := range []time.Duration{1600 * ms, 10 * time.Second} { // the lease is due to be lost 1358 ms later
			simTest(t, 3, func(t *testing.T, f *fleet) {
				l, suspend := f.leaseOfSuspended(kept3s, func(o *redlock.Options) { o.NodeTimeout = 300 * ms })
				f.at(l.Since(), 900*ms)
				trouble(f)
				f.at(l.Since(), time.Second+10*ms)
				suspend(d)
				time.Sleep(300 * ms)
				want(t, name("%s, suspended for %v: loss reported", what, d), isLost(l), true)
			})
		}
	}
}

// leaseOfSuspended returns a lease of a host that the test suspends: its clock runs on, and its
// timers stop.
func (f *fleet) leaseOfSuspended(r redlock.Request, change ...func(*redlock.Options)) (l *redlock.Lease, suspend func(time.Duration)) {
	f.Helper()
	var asleep atomic.Int64
	q := f.another(append(change, func(o *redlock.Options) {
		o.Clock = func() time.Duration { return f.now() + time.Duration(asleep.Load()) }
	})...)
	f.Cleanup(q.Close)
	q.Settle(f.Context())
	l, err := q.Acquire(f.Context(), r)
	if err != nil {
		f.Fatal(err)
	}
	return l, func(d time.Duration) { asleep.Add(int64(d)) }
}

// A release without a quorum returns an error after the node timeout, and is repeated.
func TestReleaseWithoutQuorum(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.watch(kept3s)
		every(f.sims[:3], hang)
		begin := f.now()
		wantNoQuorum(t, l.Release(t.Context()), redlock.FailedTimeout, "a", "b", "c")
		want(t, "took", f.now()-begin, 50*ms)
		want(t, "keys", len(f.keys()), 3)
		time.Sleep(time.Second)
		every(f.sims[:3], resume)
		time.Sleep(250*ms + 1)
		f.wantNoKeys("after the nodes resumed")
		time.Sleep(10 * time.Second)
		want(t, "losses reported", seen.count.Load(), 0)
	})
}

// A lock is also released if its client does not wait for the release.
func TestReleaseWithEndedContext(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		f.delay(each(ms), each(ms))
		l := f.acquire(kept3s)
		time.Sleep(20 * ms)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := l.Release(ctx)
		wantErr(t, "release with an ended context", err, redlock.ErrNoQuorum)
		wantErr(t, "release with an ended context", err, context.Canceled)
		if nodes, is := errors.AsType[*redlock.NoQuorumError](err); is {
			t.Errorf("got %v, want no error of nodes", nodes)
		}
		time.Sleep(20 * ms)
		f.wantNoKeys("after the release")
	})
}

// An Acquire that begins after BeginRelease returned follows the release on every node. It needs
// neither a delay nor a second attempt.
func TestAcquireBehindRelease(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		f.delay(each(ms), each(ms))
		l := f.acquire(kept3s)
		for range 50 {
			releasing, err := l.BeginRelease()
			want(t, "BeginRelease", err, nil)
			l = f.acquire(kept3s) // one attempt
			want(t, "release", releasing.Wait(t.Context()), nil)
		}
		f.release(l)
	})
}

// If two hosts want one lock, they never hold it at the same time, and each gets it.
func TestTwoHosts(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		other := f.another()
		defer other.Close()
		other.Settle(t.Context())
		f.delay(each(ms), each(ms))
		var holders, grants atomic.Int32
		done := make(chan bool)
		for _, q := range []*redlock.Quorum{f.q, other} {
			go func() {
				defer func() { done <- true }()
				for range 20 {
					l, err := q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: 3 * time.Second, Wait: time.Minute, Keep: true})
					if err != nil {
						t.Error(err)
						return
					}
					if holders.Add(1) != 1 {
						t.Error("two hosts hold the lock at the same time")
					}
					grants.Add(1)
					time.Sleep(20 * ms)
					holders.Add(-1)
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
					time.Sleep(10 * ms)
				}
			}()
		}
		<-done
		<-done
		want(t, "grants", grants.Load(), 40)
	})
}

// A release is complete when each node that may have had the lock has answered, not when a quorum
// has. Otherwise Then reports how many nodes did not answer. The same holds for a hand-over.
// Guards releaseVotes.Vote.
func TestReleaseEverywhere(t *testing.T) {
	for what, c := range map[string]struct {
		before, since func(sim *redlocktest.Sim) // before and after the lock is acquired
		unanswered    int
		late          int // nodes that refuse the hand-over as late: the release is resent
		after         time.Duration
	}{
		"all answer":                     {after: 12 * ms},
		"one is slow":                    {since: slow(30 * ms), after: 60 * ms},
		"one is slower than the timeout": {since: slow(90 * ms), late: 1, after: 180 * ms},
		"one hangs":                      {since: hang, unanswered: 1, after: 400 * ms},
		"one went down":                  {since: down, unanswered: 1, after: 8 * ms},
		"one was down without the lock":  {before: down, after: 8 * ms},
	} {
		for _, handed := range []bool{false, true} {
			unanswered := c.unanswered
			if handed {
				unanswered += c.late
			}
			simTest(t, 3, func(t *testing.T, f *fleet) {
				f.delay(each(2*ms), each(2*ms))
				if c.before != nil {
					c.before(f.sims[2])
					time.Sleep(1100 * ms) // after a heartbeat, the lane knows
				}
				l := f.acquire(redlock.Request{Name: "x", TTL: 10 * time.Second})
				time.Sleep(20 * ms) // until the last node has answered
				if c.since != nil {
					c.since(f.sims[2])
				}
				begun := f.now()
				releasing := f.beginRelease(l, handed)
				var reported []int
				releasing.Then(func(unanswered int) {
					reported = append(reported, unanswered)
					want(t, name("%s, handed over %v: time until Then calls", what, handed), f.now()-begun, c.after)
				})
				want(t, "Wait", releasing.Wait(t.Context()), nil)
				time.Sleep(time.Second)
				synctest.Wait()
				want(t, name("%s, handed over %v: unanswered", what, handed), fmt.Sprint(reported), fmt.Sprint([]int{unanswered}))
				want(t, name("%s, handed over %v: everywhere", what, handed), releasing.Everywhere(), unanswered == 0)
				releasing.Then(func(unanswered int) { reported = append(reported, unanswered) })
				want(t, name("%s: unanswered, with a second Then", what), fmt.Sprint(reported), fmt.Sprint([]int{unanswered, unanswered}))
			})
		}
	}
}

// beginRelease releases l, or hands it over if handed is true.
func (f *fleet) beginRelease(l *redlock.Lease, handed bool) *redlock.PendingRelease {
	f.Helper()
	if handed {
		releasing, _ := f.handOver(l)
		return releasing
	}
	releasing, err := l.BeginRelease()
	want(f, "BeginRelease", err, nil)
	return releasing
}

// slow delays each request to a node and each reply by way.
func slow(way time.Duration) func(*redlocktest.Sim) {
	return func(sim *redlocktest.Sim) {
		sim.SetDelay(func() (request, reply time.Duration) { return way, way })
	}
}

// Flush waits for the releases of a cancelled attempt, which follow the calls in progress. It
// waits for a node that does not answer for at most the node timeout. Guards Flush.
func TestFlush(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.delay(each(5*ms), each(5*ms))
		for _, hangs := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			acquiring := f.start(ctx, oneTry)
			time.Sleep(16 * ms) // all nodes have the lock, and only the first has answered
			cancel()
			_, err := acquiring.wait()
			wantErr(t, "the attempt", err, context.Canceled)
			if hangs {
				f.sims[2].Hang()
			}
			begun := f.now()
			f.q.Flush(t.Context())
			if hangs {
				want(t, "Flush took", f.now()-begun, 50*ms)
				want(t, "keys", fmt.Sprint(f.keys()), "[c:redlock:x]")
				continue
			}
			f.wantNoKeys("after Flush")
		}
		f.sims[2].Resume()
	})
}

// A process that ends without Close leaves its waiters in the queues. The nodes skip them at once. Guards
// Flush: Waiters.Quit.
func TestFlushedWaitersAreSkipped(t *testing.T) {
	lineTest(t, exclusive, 5, func(f *fleet, l *redlock.Lease, line []*hostWaiting) {
		for _, h := range line[:4] {
			h.q.Flush(f.Context())
			h.wire.isCut.Store(true)
		}
		at := f.now()
		f.release(l)
		line[4].wantAfter("release", at, 0, soonAfter)
	})
}

// A request of a process that has left the queues asks at random intervals of up to 250 ms, as nobody calls it.
// Guards acquisition.waitToRetry and position: HasQuit.
func TestFlushedWaiterAsksSeldom(t *testing.T) {
	for what, waits := range map[string]bool{"it began before": true, "it begins after": false} {
		twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			l := f.acquire(exclusive)
			if !waits {
				other.Flush(t.Context())
			}
			w := f.wait(other, patient)
			time.Sleep(100 * ms)
			if waits {
				other.Flush(t.Context())
				time.Sleep(redlock.RenewEntry)
			}
			before := w.tries()
			time.Sleep(time.Second)
			if n := w.tries() - before; n < 3 || n > 30 {
				t.Errorf("%s: %d attempts in a second, want between 3 and 30", what, n)
			}
			at := f.now()
			f.release(l)
			w.wantAfter(what+": release", at, 0, 260*ms)
			w.lease.BeginRelease()
		})
	}
}
