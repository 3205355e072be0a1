package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/redlock/redlocktest/planted"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// namesOf returns n names whose order differs from that of their numbers.
func namesOf(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("n%d", n-i))
	}
	return names
}

// standsIn returns the names in whose queues on a node there are entries.
func standsIn(sim *redlocktest.Sim) (names []string) {
	sim.Waiting(func(key, _ string) { names = append(names, strings.TrimPrefix(key, "redlock:")) })
	return names
}

// Two hosts that want the same hundred names get them one after the other: the second one has them within
// three round trips after the release, and stands in one queue until then. Guards acquisition.stand.
func TestHundredNamesAreHandedOver(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		r := redlock.Request{Names: namesOf(100), TTL: keptLong, Keep: true, Wait: redlock.Forever}
		quorums := []*redlock.Quorum{f.q, other}
		l := f.acquire(r)
		const trip = 2 * ms
		half := func(int) time.Duration { return trip / 2 }
		f.delay(half, half)
		for i := range 4 {
			next := f.wait(quorums[(i+1)%2], r)
			time.Sleep(100 * ms)
			synctest.Wait()
			for node, sim := range f.sims {
				if names := standsIn(sim); len(names) != 1 || names[0] != "n1" {
					t.Errorf("the waiter stands in the queues of %q on node %d, want n1", names, node)
				}
			}
			at := f.now()
			if _, err := l.BeginRelease(); err != nil {
				t.Fatal(err)
			}
			next.wantAfter(name("release %d", i), at, trip, 3*trip+ms/2)
			l = next.lease
		}
		l.BeginRelease()
	})
}

// A release of a hundred names is sent in several commands, so that none keeps a node busy for long. It is one
// release nevertheless, also if a node has lost its scripts. Guards Call.isCut and Lane.joinParts.
func TestReleaseOfHundredNamesIsCut(t *testing.T) {
	for _, far := range []time.Duration{0, 2 * ms} { // one group at a time, or several
		for _, flushed := range []bool{false, true} {
			simTest(t, 3, func(t *testing.T, f *fleet) {
				f.delay(each(far), each(far))
				l := f.acquire(redlock.Request{Names: namesOf(100), TTL: keptLong, Keep: true})
				time.Sleep(3 * beat)
				if flushed {
					every(f.sims, flushScripts)
				}
				longest := 0
				f.sims[0].OnCommand(func(c redlock.Command) { longest = max(longest, len(operations(c))) })
				f.release(l)
				time.Sleep(100 * ms) // until the last node has answered
				f.wantNoKeys("released")
				want(t, "most operations in a command", longest, 32)
			}, longLeases)
		}
	}
}

// A client of another library holds one of a hundred names. A request for all of them is refused because of
// it, or waits in the queue of that name, and takes none of the others. Guards FirstBlocked in ballot.go.
func TestHundredNamesOneOfAForeignClient(t *testing.T) {
	for _, held := range []string{"n1", "n50", "n99"} {
		twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			for _, sim := range f.sims[:3] {
				sim.Do("SET", "redlock:"+held, "of another library", "PX", "3600000")
			}
			r := redlock.Request{Names: namesOf(100), TTL: keptLong, Keep: true}
			_, err := f.q.Acquire(t.Context(), r)
			wantErr(t, "a request that does not wait", err, redlock.ErrHeld)
			var refused *redlock.HeldError
			want(t, "the error is about a holder", errors.As(err, &refused), true)
			want(t, "the holder is known", refused.Holder.Known(), false)
			want(t, "the name that is held", refused.Blocked, held)
			want(t, "the error begins with that name", strings.HasPrefix(refused.Error(), held+": held by"), true)
			wantWithin(t, "time that the foreign lock has", refused.TTL, 59*time.Minute, time.Hour)
			time.Sleep(100 * ms) // votes are on their way back
			f.wantNoKeysBut("a:redlock:"+held, "b:redlock:"+held, "c:redlock:"+held)

			r.Wait = redlock.Forever
			all := f.wait(other, r)
			time.Sleep(time.Second)
			synctest.Wait()
			for _, sim := range f.sims {
				want(t, "stands in the queues of", fmt.Sprint(standsIn(sim)), "["+held+"]")
			}
			var rest []string
			for _, name := range namesOf(100) {
				if name != held {
					rest = append(rest, name)
				}
			}
			f.release(f.acquire(redlock.Request{Names: rest, TTL: time.Second}))
			at := f.now()
			for _, sim := range f.sims[:3] {
				want(t, "keys that the other library deleted", sim.Do("DEL", "redlock:"+held).Int, 1)
			}
			all.wantAfter("release by the other library", at, 0, 250*ms+soonAfter)
			all.lease.BeginRelease()
		})
	}
}

// A request for several names does not keep others from a name while it waits for another one, whatever
// their order. It has them soon after all of them are free.
func TestWaiterForSeveralKeepsNoName(t *testing.T) {
	for _, held := range []string{"x", "y", "z"} {
		twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			l := f.acquire(redlock.Request{Name: held, TTL: keptLong, Keep: true})
			all := f.wait(other, redlock.Request{Names: []string{"z", "x", "y"}, TTL: keptLong, Wait: redlock.Forever})
			time.Sleep(100 * ms)
			for _, free := range []string{"x", "y", "z"} {
				if free != held {
					f.release(f.acquire(redlock.Request{Name: free, TTL: time.Second}))
				}
			}
			synctest.Wait()
			for _, sim := range f.sims {
				want(t, "stands in the queues of", fmt.Sprint(standsIn(sim)), "["+held+"]")
			}
			at := f.now()
			f.release(l)
			all.wantAfter("release", at, 0, soonAfter)
			all.lease.BeginRelease()
		})
	}
}

// Other hosts take x and y in turn, so that they are never free together. A request for both has them
// nevertheless, because it keeps x while it waits for y: for longer each time, if y is held for long. Guards
// acquisition.stand: patientMoves, and that reserved grows.
func TestWaiterForSeveralIsServed(t *testing.T) {
	served := func(t *testing.T, hold, most time.Duration) (after time.Duration) {
		twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			ctx, stop := context.WithCancel(t.Context())
			var ended []chan struct{}
			for _, lock := range []string{"x", "y"} {
				for range 2 { // two hosts each, so that somebody always waits
					q, done := f.another(longLeases), make(chan struct{})
					ended = append(ended, done)
					q.Settle(t.Context())
					go func() {
						defer close(done)
						defer q.Close()
						for ctx.Err() == nil {
							if l, err := q.Acquire(ctx, redlock.Request{Name: lock, TTL: keptLong, Keep: true, Wait: redlock.Forever}); err == nil {
								time.Sleep(hold)
								l.BeginRelease()
							}
						}
					}()
				}
			}
			time.Sleep(time.Second)
			at := f.now()
			limit, cancel := context.WithTimeout(t.Context(), 2*most)
			both := f.waitIn(limit, other, redlock.Request{Names: []string{"x", "y"}, TTL: keptLong, Wait: redlock.Forever})
			<-both.done
			after = both.granted - at
			want(t, "the request for both", both.err, nil)
			if both.err == nil {
				both.lease.BeginRelease()
			}
			cancel()
			stop()
			for _, done := range ended {
				<-done
			}
		})
		return after
	}
	wantWithin(t, "held for 20 ms: granted after", served(t, 20*ms, 3*time.Second), 0, 3*time.Second)
	wantWithin(t, "held for 10 s: granted after", served(t, 10*time.Second, 5*time.Minute), 0, 5*time.Minute)
}

// A request for several names is called for x while y is held, and for y while x is held, until it keeps x
// while it waits for y. If y is then held for long, it gives x up after the longest turn. Guards
// acquisition.stand: reservedTurns.
func TestNameIsKeptForALimitedTime(t *testing.T) {
	twoHosts(t, 3, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		third := f.another(longLeases)
		defer third.Close()
		third.Settle(t.Context())
		take := func(name string) *redlock.Lease {
			return f.acquire(redlock.Request{Name: name, TTL: keptLong, Keep: true, Wait: redlock.Forever})
		}
		ctx, stop := context.WithCancel(t.Context())
		held := map[string]*redlock.Lease{"x": take("x"), "y": take("y")}
		both := f.waitIn(ctx, other, redlock.Request{Names: []string{"x", "y"}, TTL: keptLong, Wait: redlock.Forever})
		defer func() { stop(); <-both.done }()
		time.Sleep(10 * ms)
		for range 8 {
			for _, free := range []string{"x", "y"} {
				f.release(held[free])
				time.Sleep(10 * ms)
				held[free] = take(free)
			}
		}
		at := f.now()
		f.release(held["x"])
		time.Sleep(10 * ms)
		l, err := third.Acquire(t.Context(), redlock.Request{Name: "x", TTL: time.Second, Wait: redlock.Forever})
		want(t, "another host", err, nil)
		wantWithin(t, "x was kept for", f.now()-at, 900*ms, 1100*ms)
		f.release(held["y"])
		both.wantAfter("all are free", f.now(), 0, 1100*ms)
		_ = l
	})
}

// The host of a request for several names dies while it keeps x. The next host has x within a second after the
// nodes know that the host is gone. Guards before and CHECK in queue.lua.
func TestHostThatKeepsANameDies(t *testing.T) {
	kept := func(plant ...func(*fleet)) (after time.Duration) {
		twoHosts(t, 3, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			for _, do := range plant {
				do(f)
			}
			looks := func() {
				every(f.sims, func(s *redlocktest.Sim) { s.Do("SET", "redlockd:host:keeper", "1", "PX", "3500") })
			}
			held := f.acquire(exclusive)
			looks()
			every(f.sims, func(s *redlocktest.Sim) { s.Do("ZADD", "redlock:x\x00q", "1", "keeper - 60000 token") })
			next := f.wait(other, patient)
			time.Sleep(3 * time.Second)
			looks()
			f.release(held)
			for range 5 {
				time.Sleep(time.Second)
				looks()
			}
			want(t, "x is kept from the next host", isDone(next.done), false)
			at := f.now()
			<-next.done
			after = next.granted - at
			next.lease.BeginRelease()
		})
		return after
	}
	const gone = 3500 * ms
	wantWithin(t, "granted after the host died", kept(), 0, gone+time.Second)
	if after := kept(mistaken(simredis.TurnNotChecked)); after <= gone+time.Second {
		t.Errorf("%s: granted after %v, too", simredis.TurnNotChecked, after)
	}
}

// Tests of waiters find these mistakes.
func TestMistakesOfWaitersAreFound(t *testing.T) {
	if raceEnabled {
		t.Skip("takes minutes with the race detector: go test ./redlock -run TestMistakesOfWaitersAreFound")
	}
	binary := planted.Build(t, mistakes)
	for mistake, test := range map[string]string{
		"waiter for several keeps nothing":        "TestWaiterForSeveralIsServed",
		"waiter for several keeps everything":     "TestWaiterForSeveralKeepsNoName",
		"waiter for several keeps for ever":       "TestNameIsKeptForALimitedTime",
		"waiter for several asks for the last":    "TestHundredNamesAreHandedOver",
		"position of the first nodes that answer": "TestLastNodeSaysThatItIsFirst",
	} {
		if out, err := planted.Command(t, binary, mistake, "-test.run=^"+test+"$").CombinedOutput(); err == nil {
			t.Errorf("%s: %s finds nothing: %s", mistake, test, out)
		}
	}
}
