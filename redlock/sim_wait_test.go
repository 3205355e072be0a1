package redlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// If nodes cannot grant (a counter at its limit, no memory), a waiter retries at growing
// intervals.
func TestFailingNodesAreNotStormed(t *testing.T) {
	wakeTest(t, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		every(f.sims, func(s *redlocktest.Sim) { setCounter(s, 1<<53-1<<40) })
		f.release(l)
		tries := w.tries()
		time.Sleep(5 * time.Second)
		if n := w.tries() - tries; n > 100 {
			t.Errorf("%d attempts in 5 s at nodes that fail, want at most 100", n)
		}
		every(f.sims, func(s *redlocktest.Sim) { setCounter(s, 1) })
		<-w.done
	})
}

// A node reports changes of the keys that were read over the lane's connection, through the
// listener. When the lane's connection closes, the node forgets these keys. If the lane
// reconnects and the listener stays (all nodes silent for half a second: a switch, a paused
// host), the node must still wake the waiter.
func TestWokenAfterLanesBreak(t *testing.T) {
	wakeTest(t, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		time.Sleep(time.Second)
		every(f.sims, hang)
		time.Sleep(1600 * ms) // a heartbeat is sent and fails: 400 ms
		every(f.sims, resume)
		time.Sleep(3 * time.Second) // until connected again, and until the waiter has asked for what it may have missed
		for _, node := range f.q.Status().Nodes {
			want(t, "state", node.State, redlock.NodeReady)
			want(t, "it calls waiters", node.Calls, true)
		}
		tries := w.tries()
		time.Sleep(time.Second)
		want(t, "attempts while it sleeps", w.tries(), tries)
		at := f.now()
		f.release(l)
		w.wantAfter("release", at, 0, time.Second)
	})
}

// A zero byte separates the parts of what the nodes store. The library must refuse names with it.
func TestNameOfWakeUpKey(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		r := redlock.Request{Name: "x\x00b", TTL: 10 * time.Second}
		first, err := f.q.Acquire(t.Context(), r)
		if err != nil {
			wantErr(t, "a name with a NUL", err, redlock.ErrRequest)
			return
		}
		f.release(f.acquire(oneTry)) // releases x
		if _, err := f.q.Acquire(t.Context(), r); err == nil && first.Err() == nil {
			t.Errorf("two clients hold %q: the first one for another %v", r.Name, first.Validity())
		}
	})
}

// A client waits to share several names, and one of them is refused. It sleeps until a node wakes
// it, whichever name that is. Guards op i behind several ops s.
func TestSharedSeveralDoNotSpin(t *testing.T) {
	for _, names := range [][]string{{"y", "x"}, {"x", "y"}} {
		wakeTest(t, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
			r := redlock.Request{Names: names, TTL: time.Minute, Wait: redlock.Forever, Shared: true}
			reader := f.wait(f.q, r)
			time.Sleep(5 * time.Second)
			if reader.tries() > 5 {
				t.Errorf("%v: %d attempts in 5 s while nothing changes, want at most 5", names, reader.tries())
			}
			f.release(l)
			<-w.done
			w.lease.Release(t.Context())
			<-reader.done
		})
	}
}

// When the lease of a dead host expires, its slot is free. A client that waits for any slot takes
// it then, whichever slot it requested first. Guards retryPolicy.next: held.TTL.
func TestWokenByExpiryOfAnySlot(t *testing.T) {
	for range 12 { // the requested slot is random
		wakeTest(t, redlock.Request{Name: "s", TTL: keptLong, Slots: 2, Keep: true}, func(t *testing.T, f *fleet, _ *redlock.Lease, w *waiting) {
			<-w.done // its lock is x, which is free
			host := f.another(longLeases)
			host.Settle(t.Context())
			died, err := host.Acquire(t.Context(), redlock.Request{Name: "s", TTL: 2 * time.Second, Slots: 2})
			want(t, "the other slot", err, nil)
			deadline := died.Deadline()
			host.Close()
			third := f.another(longLeases)
			defer third.Close()
			third.Settle(t.Context())
			waits := f.wait(third, redlock.Request{Name: "s", TTL: time.Minute, Slots: 2, Wait: redlock.Forever})
			waits.wantAfter("deadline of one of two", deadline, 0, time.Second)
		})
	}
}

// Clients of another host take slots in turn, each for 200 ms, so the lock is always held. They
// must not exclude a client that wants it exclusively for ever. Guards the order of the wait queue.
func TestExclusiveIsNotStarvedBySlots(t *testing.T) {
	r := redlock.Request{Name: "x", TTL: keptLong, Slots: 2, Keep: true}
	wakeTest(t, r, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		r.Wait = redlock.Forever
		for range 600 { // a minute
			next := f.wait(f.q, r)
			time.Sleep(100 * ms)
			l.BeginRelease()
			select {
			case <-w.done:
				w.lease.BeginRelease()
				<-next.done
				next.lease.BeginRelease()
				return
			default:
			}
			<-next.done
			if next.err != nil {
				t.Fatal(next.err)
			}
			l = next.lease
		}
		t.Errorf("not granted in a minute, because there was always a holder: %d attempts", w.tries())
		l.BeginRelease()
		<-w.done
	})
}

// farConn is a connection with a long delay each way.
type farConn struct {
	redlock.Conn
	way time.Duration
}

func (c farConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	time.Sleep(c.way)
	defer time.Sleep(c.way)
	return c.Conn.Do(ctx, group, replies)
}

// far delays each request between a host and all nodes, and each reply, by way.
func far(way time.Duration) func(*redlock.Options) {
	return func(o *redlock.Options) {
		for i := range o.Nodes {
			node := o.Nodes[i]
			o.Nodes[i].Dial = func(ctx context.Context) (redlock.Conn, error) {
				c, err := node.Dial(ctx)
				if err != nil {
					return nil, err
				}
				return redlocktest.WithDo(c, farConn{c, way}.Do), nil
			}
			o.Nodes[i].Listen = func(ctx context.Context, channel string, heard func(string)) (redlock.Listener, error) {
				return node.Listen(ctx, channel, func(message string) { time.AfterFunc(way, func() { heard(message) }) })
			}
		}
	}
}

// A host near the nodes always has a waiter, but yields each time. It does not exclude a host far
// from the nodes. Guards yieldDelay.
func TestFarHostIsNotStarved(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		near := redlock.Request{Name: "x", TTL: 10 * time.Second, Keep: true, Wait: redlock.Forever}
		l := f.acquire(near)
		near.Yield, near.Held = true, true
		w := f.wait(other, redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: redlock.Forever})
		turns := 0
		for ; turns < 300; turns++ { // five minutes
			time.Sleep(time.Second)
			l.BeginRelease()
			l = f.acquire(near)
			if isDone(w.done) {
				break
			}
		}
		l.BeginRelease()
		<-w.done
		t.Logf("the far host made %d attempts in %d turns of the near host", w.tries(), turns)
		if turns == 300 {
			t.Errorf("the far host got no lock in %d turns of the near host, which yielded each time", turns)
		}
	}, far(5*ms))
}

// A request that yields does not outlast its wait, nor the node timeout, even if the last round trip
// was long. (A daemon that was stopped for 1.7 s answered ten seconds late.)
func TestYieldIsShort(t *testing.T) {
	for _, wait := range []time.Duration{3 * ms, redlock.Forever} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			for _, sim := range f.sims {
				sim.Hang()
			}
			if _, err := f.q.Acquire(t.Context(), redlock.Request{Name: "y", TTL: time.Second}); err == nil {
				t.Error("granted by nodes that hang")
			}
			time.Sleep(200 * ms)
			for _, sim := range f.sims {
				sim.Resume()
			}
			synctest.Wait()
			began := time.Now()
			f.acquire(redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: wait, Yield: true}).BeginRelease()
			if took := time.Since(began); wait > 0 && took > wait || took > 50*ms {
				t.Errorf("wait %v: it took %v", wait, took)
			}
		})
	}
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// If a foreign client's value looks like a kind of ours, the lock is still held. It may be a kind
// of a later version.
func TestForeignValueLikeAKind(t *testing.T) {
	for _, value := range []string{"redlockd:backup-7", "redlockd:slots=x", "redlockd:sharedish", "redlockd:turn", "redlockd:writer"} {
		for what, r := range map[string]redlock.Request{
			"exclusive": {Name: "x", TTL: time.Second}, "shared": {Name: "x", TTL: time.Second, Shared: true},
			"several": {Names: []string{"y", "x"}, TTL: time.Second},
		} {
			simTest(t, 3, func(t *testing.T, f *fleet) {
				for _, sim := range f.sims {
					sim.Do("SET", "redlock:x", value, "PX", "60000")
				}
				if _, err := f.q.Acquire(t.Context(), r); err == nil {
					t.Errorf("%s: granted although a foreign client holds the lock with the value %s; the key is now %q", what, value, f.sims[0].Get("redlock:x"))
				}
			})
		}
	}
}

// If the nodes cannot call waiters, readers do not starve a writer with a short ttl: its entry on the
// nodes lasts until it retries. Guards retryPolicy: maxRetryDelay.
func TestShortWriterIsNotStarvedByPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		f.open(deaf, longLeases)
		defer f.q.Close()
		other := f.another(deaf, longLeases)
		defer other.Close()
		f.q.Settle(t.Context())
		other.Settle(t.Context())
		f.delay(each(100*time.Microsecond), each(100*time.Microsecond))
		stop := make(chan struct{})
		ended := make(chan struct{})
		for i := range 12 {
			go func() {
				defer func() { ended <- struct{}{} }()
				time.Sleep(time.Duration(i) * 83 * ms)
				for !isDone(stop) {
					l, err := other.Acquire(t.Context(), redlock.Request{Name: "x", TTL: keptLong, Shared: true, Wait: redlock.Forever})
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Second)
					l.BeginRelease()
				}
			}()
		}
		time.Sleep(2 * time.Second)
		w := f.wait(f.q, redlock.Request{Name: "x", TTL: 100 * ms, Wait: redlock.Forever})
		began := f.now()
		select {
		case <-w.done:
			t.Logf("granted after %v", f.now()-began)
		case <-time.After(time.Minute):
			t.Errorf("not granted in a minute beside readers that hold for a second, in %d attempts", w.tries())
		}
		close(stop)
		for range 12 {
			<-ended
		}
		<-w.done
	})
}

// A client takes a slot that its own host has just released. As with a hand-over, it learns that
// another host waits. Otherwise a series of grants on one host would not end. (With 6 clients on
// one daemon and 1 on another, slots=2, held for 5 ms: 1,173 grants against 9, and waits of a
// second.)
func TestSlotGrantShowsWaiter(t *testing.T) {
	for what, r := range map[string]redlock.Request{
		"slots": {Name: "s", TTL: keptLong, Slots: 2, Keep: true},
	} {
		wakeTest(t, r, func(t *testing.T, f *fleet, first *redlock.Lease, w *waiting) {
			<-w.done // its lock is x, which is free
			f.acquire(r)
			other := f.another(longLeases)
			defer other.Close()
			other.Settle(t.Context())
			time.Sleep(10 * ms)
			waits := r
			waits.Wait = redlock.Forever
			second := f.wait(other, waits)
			wanted := 0
			for range 100 {
				time.Sleep(20 * ms) // the waiter was refused and listens, which takes long
				if isDone(second.done) {
					break
				}
				if _, err := first.BeginRelease(); err != nil {
					t.Fatal(err)
				}
				next, err := f.q.Acquire(t.Context(), r) // as the daemon does for the next waiter in its queue
				if err != nil {                          // the other host was faster
					f.until("the other host has the slot", func() bool { return isDone(second.done) })
					break
				}
				if first = next; first.Wanted() {
					wanted++
				}
			}
			if !isDone(second.done) && wanted < 16 {
				t.Errorf("%s: another host waits for 2 s, but only %d of 100 grants on this host show that", what, wanted)
			}
			first.BeginRelease()
			<-second.done
		})
	}
}

// A host that had to wait for a lock asks for it once more. The first refusal enters the queue, and
// not only the second one: a lock that many hosts want costs a call less for each grant. After a
// second without a wait, the first attempt does not enter. Guards contention.
func TestContendedLockIsEnteredAtOnce(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		waits := redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: redlock.Forever}
		for _, c := range []struct {
			what     string
			pause    time.Duration
			refusals int
		}{{"the first wait", 0, 2}, {"the next one", 100 * ms, 1}, {"a wait much later", 2 * time.Second, 2}} {
			time.Sleep(c.pause)
			held := f.acquire(exclusive)
			w := f.wait(other, waits)
			time.Sleep(100 * ms)
			want(t, c.what+": refusals", w.tries(), c.refusals)
			held.BeginRelease()
			<-w.done
			w.end()
		}
	})
}

// Ten hosts want one lock, over a network with a round trip of 2 ms. From the release on one host to
// the grant on the next, two round trips pass: the release and the call to the waiter are one, the
// waiter's attempt is the other.
func TestHandOverBetweenHosts(t *testing.T) {
	const trip, hosts, grants = 2 * ms, 10, 60
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
		defer f.closeSims()
		f.open(longLeases)
		defer f.q.Close()
		all := []*redlock.Quorum{f.q}
		for range hosts - 1 {
			other := f.another(longLeases)
			defer other.Close()
			all = append(all, other)
		}
		for _, q := range all {
			q.Settle(t.Context())
		}
		way := func(int) time.Duration { return trip / 2 }
		f.delay(way, way)
		r := redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: redlock.Forever}
		var mu sync.Mutex // guards released and took
		var released time.Duration
		var took []time.Duration
		granted := func() (enough bool) {
			mu.Lock()
			defer mu.Unlock()
			if released != 0 {
				took = append(took, f.now()-released)
			}
			return len(took) >= grants
		}
		var work sync.WaitGroup
		for _, q := range all {
			work.Go(func() {
				for enough := false; !enough; {
					l, err := q.Acquire(f.Context(), r)
					if err != nil {
						t.Error(err)
						return
					}
					enough = granted()
					time.Sleep(ms)
					mu.Lock()
					released = f.now()
					mu.Unlock()
					l.BeginRelease()
				}
			})
		}
		work.Wait()
		slices.Sort(took)
		wantWithin(t, "the median hand-over", took[len(took)/2], trip, 2*trip+trip/5)
		wantWithin(t, "the 99th percentile", took[len(took)*99/100], trip, 3*trip)
	})
}
