package redlock_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// wire is the network of one host.
type wire struct {
	isCut  atomic.Bool // nothing arrives, as if the host was dead or stopped
	isDeaf atomic.Bool // calls of waiters do not arrive
}

// through makes a host reach its nodes through w.
func (w *wire) through(o *redlock.Options) {
	for i := range o.Nodes {
		node := o.Nodes[i]
		o.Nodes[i].Dial = func(ctx context.Context) (redlock.Conn, error) {
			if w.isCut.Load() {
				return nil, lost(ctx)
			}
			c, err := node.Dial(ctx)
			if err != nil {
				return nil, err
			}
			return redlocktest.WithDo(c, func(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
				if w.isCut.Load() {
					return lost(ctx)
				}
				return c.Do(ctx, group, replies)
			}), nil
		}
		o.Nodes[i].Listen = func(ctx context.Context, channel string, heard func(string)) (redlock.Listener, error) {
			if w.isCut.Load() {
				return nil, lost(ctx)
			}
			return node.Listen(ctx, channel, func(message string) {
				if !w.isCut.Load() && !w.isDeaf.Load() {
					heard(message)
				}
			})
		}
	}
}

func lost(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// queueTest makes one host hold x while two others wait for it: the first over its own wire. before is
// called first.
func queueTest(t *testing.T, n int, held redlock.Request, body func(t *testing.T, f *fleet, l *redlock.Lease, w *wire, first, second *waiting), before ...func(*fleet)) {
	t.Helper()
	w := &wire{}
	twoHosts(t, n, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		defer w.isCut.Store(false)
		third := f.another(longLeases)
		defer third.Close()
		third.Settle(t.Context())
		for _, do := range before {
			do(f)
			time.Sleep(3 * beat)
		}
		l := f.acquire(held)
		time.Sleep(10 * ms)
		ctx, stop := context.WithCancel(t.Context())
		first := f.waitIn(ctx, other, patient)
		time.Sleep(10 * ms)
		second := f.waitIn(ctx, third, patient)
		time.Sleep(100 * ms)
		body(t, f, l, w, first, second)
		stop()
		<-first.done
		<-second.done
	}, w.through)
}

// nextHost is how soon the next host has the lock if the first one in the queue does not take it: its
// turn has ended, and the next one has asked.
const nextHost = 300 * ms

// The first in the queue is gone when the lock is released: the next host has the lock soon, and the
// first one has it after that, if it lives. Guards tellFollowing in callNext, and passOver.
func TestFirstWaiterIsGone(t *testing.T) {
	for what, gone := range map[string]func(*wire){
		"its daemon was just killed": func(w *wire) { w.isCut.Store(true) },
		"its daemon was killed long ago": func(w *wire) {
			w.isCut.Store(true)
			time.Sleep(5 * time.Second)
		},
		"its calls are lost": func(w *wire) { w.isDeaf.Store(true) },
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			queueTest(t, 5, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *wire, first, second *waiting) {
				gone(w)
				at := f.now()
				f.release(l)
				second.wantAfter("release", at, 0, nextHost)
			})
		})
	}
}

// A stopped host that continues has its turn after the others. Its daemon connects again, and asks.
func TestFirstWaiterContinues(t *testing.T) {
	for _, stopped := range []time.Duration{200 * ms, 2 * time.Second, 6 * time.Second} {
		queueTest(t, 5, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *wire, first, second *waiting) {
			w.isCut.Store(true)
			time.Sleep(stopped / 2)
			at := f.now()
			f.release(l)
			second.wantAfter("release", at, 0, nextHost)
			time.Sleep(stopped / 2)
			w.isCut.Store(false)
			time.Sleep(3 * time.Second)
			at = f.now()
			f.release(second.lease)
			first.wantAfter("release after it was stopped", at, 0, soonAfter)
		})
	}
}

// The hosts of the holder and of the first waiter die at the same time.
func TestHolderAndFirstWaiterDie(t *testing.T) {
	held := redlock.Request{Name: "x", TTL: 3 * time.Second} // nobody extends it
	queueTest(t, 5, held, func(t *testing.T, f *fleet, l *redlock.Lease, w *wire, first, second *waiting) {
		w.isCut.Store(true)
		second.wantAfter("deadline", l.Deadline(), 0, nextHost+50*ms)
	})
}

// The nodes take a host for dead that lives: it was stopped, or too slow. They remove its waiter when
// the lock is released, and call nobody. Its next look shows that, and the waiter asks again. Guards
// Lane.readAlive.
func TestWaiterIsTakenForDead(t *testing.T) {
	wakeTest(t, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		for _, sim := range f.sims {
			for _, key := range sim.Keys() {
				if strings.HasPrefix(key, "redlockd:host:") {
					sim.Do("DEL", key)
				}
			}
		}
		at := f.now()
		f.release(l)
		w.wantAfter("release", at, 0, beat+2*time.Second+soonAfter)
	})
}

// A node that lost its queue has the waiters again within two seconds. Guards applyVote and
// serveListener: missed.
func TestWaitersEnterAgain(t *testing.T) {
	wakeTest(t, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		for _, sim := range f.sims[:2] {
			sim.Crash(false)
			sim.Restart()
			want(t, "waiters after the restart", len(queueOn(sim)), 0)
			within := f.now() + beat + 2*time.Second
			for len(queueOn(sim)) == 0 && f.now() < within { // between a vote and its release, the node has no entry again
				time.Sleep(ms)
			}
			want(t, "waiters that entered again", len(queueOn(sim)), 1)
			time.Sleep(within - f.now())
		}
		at := f.now()
		f.release(l)
		w.wantAfter("release", at, 0, soonAfter)
	})
}

// queueOn returns the entries in the queue of x on a node, in order.
func queueOn(sim *redlocktest.Sim) (entries []string) {
	for _, e := range sim.Do("ZRANGE", "redlock:x\x00q", "0", "-1").Array {
		entries = append(entries, e.Str)
	}
	return entries
}

// A waiter that was passed over on some nodes only has its place on all of them again when it asks.
// Otherwise these nodes would call other waiters than the rest, and none of them would get a quorum.
// Guards enter in queue.lua.
func TestWaiterGetsItsPlaceAgain(t *testing.T) {
	queueTest(t, 5, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *wire, first, second *waiting) {
		order := queueOn(f.sims[4])
		want(t, "waiters", len(order), 2)
		for _, sim := range f.sims[:2] {
			sim.Do("ZADD", "redlock:x\x00q", "XX", "9000000000000000", order[0])
			want(t, "passed over", queueOn(sim)[0], order[1])
		}
		time.Sleep(redlock.RenewEntry * 5 / 4)
		for i, sim := range f.sims {
			want(t, name("order on node %d", i), slices.Equal(queueOn(sim), order), true)
		}
	})
}

// Tickets may be ahead of a node's clock. A turn passes there nevertheless, and the order of the
// tickets stays. Guards passOver, and AHEAD in queue.lua.
func TestTicketsAheadOfANode(t *testing.T) {
	queueTest(t, 3, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *wire, first, second *waiting) {
		f.sims[2].Hang()
		w.isCut.Store(true)
		at := f.now()
		f.release(l)
		second.wantAfter("release", at, 0, nextHost)
		f.sims[2].Resume()
	}, func(f *fleet) { f.sims[0].StepClock(-900 * ms) })
	for _, behind := range []time.Duration{-995 * ms, -5 * time.Second} {
		queueTest(t, 3, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *wire, first, second *waiting) {
			f.sims[0].StepClock(-10 * ms)
			late := f.wait(f.q, patient)
			time.Sleep(100 * ms)
			want(t, name("order on a node %v behind", behind), slices.Equal(queueOn(f.sims[0]), queueOn(f.sims[1])), true)
			f.release(l)
			for _, w := range []*waiting{first, second, late} {
				<-w.done
				w.lease.BeginRelease()
			}
		}, func(f *fleet) { f.sims[0].StepClock(behind) })
	}
}

// distant makes messages between a host and node i take way[i] each way.
func distant(way ...time.Duration) func(*redlock.Options) {
	return func(o *redlock.Options) {
		for i := range o.Nodes {
			one := redlock.Options{Nodes: o.Nodes[i : i+1]}
			far(way[i])(&one)
		}
	}
}

// Two hosts ask at the same time, and each gets the votes of the nodes near to it. Both enter on all
// nodes in the calls that release these votes, so all nodes call the same host. Guards attempt.reenter.
func TestSplitEndsSoon(t *testing.T) {
	granted := func(t *testing.T, plant ...func(*redlocktest.Sim)) (after time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 4)
			defer f.closeSims()
			for _, do := range plant {
				every(f.sims, do)
			}
			first, second := f.another(distant(ms, ms, 4*ms, 4*ms)), f.another(distant(4*ms, 4*ms, ms, ms))
			defer first.Close()
			defer second.Close()
			first.Settle(t.Context())
			second.Settle(t.Context())
			time.Sleep(3 * beat / 2)
			at := f.now()
			r := redlock.Request{Name: "x", TTL: time.Second, Wait: redlock.Forever, Held: true}
			a, b := f.wait(first, r), f.wait(second, r)
			winner := a
			select {
			case <-a.done:
			case <-b.done:
				winner = b
			}
			after = winner.granted - at
			winner.lease.BeginRelease()
			<-a.done
			<-b.done
			want(t, "votes were split", first.Status().Counts.Splits+second.Status().Counts.Splits > 0, true)
		})
		return after
	}
	const soon = 30 * ms // four round trips of at most 8 ms
	wantWithin(t, "granted", granted(t), 0, soon)
	if after := granted(t, planting(simredis.ReenterIgnored)); after <= soon {
		t.Errorf("without a place in the queues it was granted after %v, too", after)
	}
}

func planting(v simredis.Variant) func(*redlocktest.Sim) {
	return func(s *redlocktest.Sim) { s.Plant(v) }
}

// mistaken plants a mistake in the scripts of all nodes.
func mistaken(v simredis.Variant) func(*fleet) {
	return func(f *fleet) { every(f.sims, planting(v)) }
}

// The tests above fail with these mistakes in the scripts.
func TestQueueMistakesAreFound(t *testing.T) {
	queueTest(t, 5, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *wire, first, second *waiting) {
		w.isCut.Store(true)
		f.release(l)
		time.Sleep(nextHost)
		want(t, "the next host has the lock although it was not told that it is next", isDone(second.done), false)
	}, mistaken(simredis.NextNotTold))
	queueTest(t, 5, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *wire, first, second *waiting) {
		order := queueOn(f.sims[4])
		f.sims[0].Do("ZADD", "redlock:x\x00q", "XX", "9000000000000000", order[0])
		time.Sleep(redlock.RenewEntry * 5 / 4)
		want(t, "the order although a waiter that was passed over stays behind", slices.Equal(queueOn(f.sims[0]), order), false)
	}, mistaken(simredis.PlaceLost))
}

// lineTest makes a host hold x while n others wait for it, each over its own wire, in this order.
func lineTest(t *testing.T, held redlock.Request, n int, body func(f *fleet, l *redlock.Lease, line []*hostWaiting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
		defer f.closeSims()
		f.open(longLeases)
		defer f.q.Close()
		f.q.Settle(t.Context())
		f.delay(each(100*time.Microsecond), each(100*time.Microsecond))
		l := f.acquire(held)
		var line []*hostWaiting
		for range n {
			h := &hostWaiting{}
			h.q = f.another(longLeases, h.wire.through)
			h.q.Settle(t.Context())
			ctx, stop := context.WithCancel(t.Context())
			h.stop = stop
			h.waiting = f.waitIn(ctx, h.q, redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: redlock.Forever})
			time.Sleep(10 * ms)
			line = append(line, h)
		}
		time.Sleep(100 * ms)
		body(f, l, line)
		for _, h := range line {
			h.wire.isCut.Store(false)
			h.stop()
			<-h.done
			h.q.Close()
		}
	})
}

// hostWaiting is a host with one waiter.
type hostWaiting struct {
	*waiting
	q    *redlock.Quorum
	wire wire
	stop context.CancelFunc // ends the wait
}

// whileOthersDie is how soon the next live host has a free lock after up to three hosts before it died.
const whileOthersDie = time.Second

// Up to three hosts at the head of the queue die, and then the lock is released. Guards tellFollowing in
// callNext.
func TestFirstWaitersAreGone(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for _, since := range []time.Duration{0, 3 * time.Second, 5 * time.Second} {
			lineTest(t, exclusive, 8, func(f *fleet, l *redlock.Lease, line []*hostWaiting) {
				for _, h := range line[:n] {
					h.wire.isCut.Store(true)
				}
				time.Sleep(since)
				at := f.now()
				f.release(l)
				line[n].wantAfter(name("release %v after %d died", since, n), at, 0, whileOthersDie)
				line[n].lease.BeginRelease()
				line[n+1].wantAfter("the next release", line[n].granted, 0, whileOthersDie)
			})
		}
	}
}

// The host that has just got the lock dies together with those that are next. The others had not asked
// since the queue was longer. Guards tellFollowing in callNext.
func TestHolderAndNextWaitersDie(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for _, used := range []time.Duration{5 * ms, 400 * ms} {
			lineTest(t, exclusive, 9, func(f *fleet, l *redlock.Lease, line []*hostWaiting) {
				f.release(l)
				for _, h := range line[:4] {
					<-h.done
					time.Sleep(used)
					h.lease.BeginRelease()
				}
				holder := line[4]
				<-holder.done
				for _, h := range line[4 : 4+n] {
					h.wire.isCut.Store(true)
				}
				line[4+n].wantAfter(name("deadline, %d died, %v a grant", n, used), holder.lease.Deadline(), 0, whileOthersDie)
			})
		}
	}
}

// Waiters at the head stop waiting while the lock is held, one after the other or together, and then
// the holder's host dies. Guards tellFollowing in leave.
func TestFirstWaitersLeft(t *testing.T) {
	held := redlock.Request{Name: "x", TTL: 10 * time.Second, Keep: true}
	for _, left := range []int{3, 4, 6} {
		for _, apart := range []time.Duration{0, 30 * ms} {
			lineTest(t, held, left+1, func(f *fleet, l *redlock.Lease, line []*hostWaiting) {
				for _, h := range line[:left] {
					h.stop()
					time.Sleep(apart)
				}
				time.Sleep(100 * ms)
				f.q.Close()
				line[left].wantAfter(name("deadline, %d left", left), l.Deadline(), 0, whileOthersDie)
			})
		}
	}
}

// A waiter is refused as soon as a quorum of nodes has answered. One of them has other waiters before it, and the node
// that answers last does not. Then the holder's host dies. Guards notePosition, and untilFree in pause.
func TestLastNodeSaysThatItIsFirst(t *testing.T) {
	twoHosts(t, 3, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		l := f.acquire(redlock.Request{Name: "x", TTL: 10 * time.Second, Keep: true})
		for i := range 5 {
			f.sims[0].Do("SET", name("redlockd:host:alive%d", i), "1")
			f.sims[0].Do("ZADD", "redlock:x\x00q", name("%d", i+1), name("alive%d - 50 token", i))
		}
		f.sims[2].SetDelay(func() (time.Duration, time.Duration) { return 0, 20 * ms })
		w := f.wait(other, redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: redlock.Forever})
		time.Sleep(100 * ms)
		f.q.Close()
		w.wantAfter("deadline", l.Deadline(), 0, whileOthersDie)
	})
}

// More hosts are gone than a call looks at. Guards tellFollowing in callNext: not next.
func TestManyWaitersAreGone(t *testing.T) {
	lineTest(t, exclusive, 1, func(f *fleet, l *redlock.Lease, line []*hostWaiting) {
		for i := range 100 {
			for _, sim := range f.sims {
				sim.Do("ZADD", "redlock:x\x00q", name("%d", i+1), name("gone%d - 50 token", i))
			}
		}
		at := f.now()
		f.release(l)
		line[0].wantAfter("release behind 100 hosts that are gone", at, 0, whileOthersDie)
	})
}

// readersTest makes a host hold x while readers wait for it: of each of the given numbers on a host of its own, of
// which all but the last one die before body. It checks when the readers of the last host have the lock.
func readersTest(t *testing.T, held redlock.Request, readers []int, body func(f *fleet, l *redlock.Lease) (free time.Duration), before ...func(*fleet)) (late time.Duration) {
	t.Helper()
	lineTest(t, held, 0, func(f *fleet, l *redlock.Lease, _ []*hostWaiting) {
		for _, do := range before {
			do(f)
		}
		reader := redlock.Request{Name: "x", TTL: time.Minute, Wait: redlock.Forever, Shared: true}
		ctx, stop := context.WithCancel(f.Context())
		w, all := &wire{}, []*waiting(nil)
		for i, n := range readers {
			change := []func(*redlock.Options){longLeases}
			if i < len(readers)-1 {
				change = append(change, w.through)
			}
			q := f.another(change...)
			defer q.Close()
			q.Settle(f.Context())
			for range n {
				all = append(all, f.waitIn(ctx, q, reader))
			}
			time.Sleep(100 * ms)
		}
		time.Sleep(3 * time.Second) // waiters ask once more within two seconds after their host has connected
		w.isCut.Store(true)
		at := body(f, l)
		for _, r := range all[len(all)-readers[len(readers)-1]:] {
			<-r.done
			want(t, "error", r.err, nil)
			late = max(late, r.granted-at)
		}
		w.isCut.Store(false)
		stop()
		for _, r := range all {
			<-r.done
		}
	})
	return late
}

// The hosts of the first readers die before their turn, or together with the holder's host. The readers behind
// them have the lock nevertheless, also if they are too many for one call. Guards callNext, taken, mayShare and
// position in queue.lua.
func TestReadersBehindHostsThatAreGone(t *testing.T) {
	release := func(f *fleet, l *redlock.Lease) time.Duration {
		f.release(l)
		return f.now()
	}
	expires := func(f *fleet, l *redlock.Lease) time.Duration {
		f.q.Close()
		return l.Deadline()
	}
	held := redlock.Request{Name: "x", TTL: 5500 * ms}
	for _, readers := range [][]int{{1, 150}, {60, 150}, {20, 20, 20, 20}} {
		what := name("%d readers by host", readers)
		wantWithin(t, what+": granted after the release", readersTest(t, exclusive, readers, release), 0, whileOthersDie)
		wantWithin(t, what+": granted after the deadline", readersTest(t, held, readers, expires), 0, whileOthersDie)
	}
	for mistake, readers := range map[simredis.Variant][]int{
		simredis.OneHostTold: {60, 150}, simredis.TakersCallNobody: {1, 150}, simredis.FirstReadersOnly: {60, 150},
	} {
		if late := readersTest(t, exclusive, readers, release, mistaken(mistake)); late <= whileOthersDie {
			t.Errorf("%s: all readers have the lock %v after the release, too", mistake, late)
		}
	}
	if late := readersTest(t, held, []int{60, 150}, expires, mistaken(simredis.RanksAsPositions)); late <= whileOthersDie {
		t.Errorf("%s: all readers have the lock %v after the deadline, too", simredis.RanksAsPositions, late)
	}
}
