package redlock_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A revoked lock is free at once, and does not reappear. Its holder learns of the loss: at once
// on this host, at its next extension on another host. Guards Force; ballot.lua: force, extend,
// repair.
func TestForce(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		other := f.another()
		defer other.Close()
		other.Settle(t.Context())
		for what, q := range map[string]*redlock.Quorum{"here": f.q, "elsewhere": other} {
			r := kept3s
			r.Holder = redlock.Holder{Host: "web3", PID: 4121, User: "cron"}
			lost := make(chan time.Duration, 1)
			r.OnLost = func(*redlock.Lease) { lost <- f.now() }
			l, err := q.Acquire(t.Context(), r)
			want(t, what, err, nil)
			time.Sleep(100 * ms)
			begin := f.now()
			who, err := f.q.Force(t.Context(), "x")
			want(t, what, err, nil)
			want(t, what+": the previous holder", who[0].Holder.User, "cron")
			synctest.Wait()
			f.wantNoKeys(what)
			next := f.acquire(oneTry)
			if next.Fence() <= l.Fence() {
				t.Errorf("%s: fencing token %d after %d", what, next.Fence(), l.Fence())
			}
			<-l.Lost()
			want(t, what+": reason", l.Reason(), redlock.LostForced)
			latest := 10 * ms
			if q == other {
				latest = time.Second
			}
			wantWithin(t, what+": time from FORCE to OnLost", <-lost-begin, 0, latest)
			time.Sleep(5 * time.Second)
			want(t, what+": the next holder's lock", next.Release(t.Context()), nil)
			synctest.Wait()
			f.wantNoKeys(what + ", later")
		}
	})
}

// FORCE reports the loss to the holder at once, even during an extension. Here a quorum granted
// that extension before the other nodes revoked the lock. Guards keeper.forced: place.
func TestForceDuringExtension(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		time.Sleep(300 * ms) // away from the heartbeats
		l := f.acquire(kept3s)
		begin := l.Since()
		f.at(begin, 975*ms)
		trips := []time.Duration{5 * ms, ms / 2, 10 * ms}
		there := func(node int) time.Duration { return trips[node] }
		f.delay(there, there)
		time.AfterFunc(15*ms, func() { // the distant nodes are busy when FORCE deletes the lock
			_, _ = f.q.Acquire(t.Context(), redlock.Request{Name: "y", TTL: time.Second})
		})
		_, err := f.q.Force(t.Context(), "x")
		want(t, "FORCE", err, nil)
		done := f.now()
		<-l.Lost()
		want(t, "reason", l.Reason(), redlock.LostForced)
		wantWithin(t, "time from FORCE to the loss", f.now()-done, 0, 100*ms)
	})
}

// FORCE also reports the loss at once if a quorum granted the lock but the client has not run
// since. Guards keeper.grant: wasForced.
func TestForceBeforeClientKnowsOfGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		looks := 0
		f.open(func(o *redlock.Options) {
			redlock.WhenWon(o, func() {
				if looks++; looks == 2 { // the lock is granted, and the client does not know it yet
					_, err := f.q.Force(t.Context(), "x")
					want(t, "FORCE", err, nil)
				}
			})
		})
		defer f.q.Close()
		f.q.Settle(t.Context())
		l := f.acquire(kept3s)
		<-l.Lost()
		want(t, "reason", l.Reason(), redlock.LostForced)
		wantWithin(t, "time from the grant to the loss", f.now()-l.Since(), 0, 100*ms)
	})
}

// kept returns a node's value of x.
func kept(s *redlocktest.Sim) string { return s.Get("redlock:x") }

// Force does not revoke a lock that no quorum shows: a client may be acquiring it. Guards Force.
func TestForceWithoutHolder(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		_, err := f.q.Force(t.Context(), "x")
		wantErr(t, "free", err, redlock.ErrNotHeld)
		foreign(f.sims[:2], "x", time.Hour)
		_, err = f.q.Force(t.Context(), "x")
		wantErr(t, "on two of five", err, redlock.ErrNotHeld)
		want(t, "one of them still has the lock", kept(f.sims[0]) != "", true)
		f.sims[4].Hang()
		_, err = f.q.Force(t.Context(), "x")
		wantErr(t, "on two of four, perhaps three of five", err, redlock.ErrHeld)
		f.sims[4].Resume()
		foreign(f.sims[:3], "x", time.Hour)
		who, err := f.q.Force(t.Context(), "x")
		want(t, "another client's lock", err, nil)
		want(t, "known holder", who[0].Holder.Known(), false)
		synctest.Wait()
		f.wantNoKeys("forced")
	})
}

// If too few of the nodes that answer show the holder, the error still names it. Guards
// undecidedError.
func TestForceNamesPossibleHolder(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[2].Hang()
		r := oneTry
		r.Holder = redlock.Holder{Host: "web3", PID: 4121, User: "cron"}
		_, err := f.q.Acquire(t.Context(), r)
		want(t, "LOCK", err, nil)
		forget(f.sims[0])
		_, err = f.q.Force(t.Context(), "x")
		wantErr(t, "on one of two, perhaps two of three", err, redlock.ErrHeld)
		if text := err.Error(); !strings.Contains(text, "held by cron on web3 (pid 4121); only 1 of the 2 nodes") {
			t.Errorf("got %s", text)
		}
		f.sims[2].Resume()
	})
}

// FORCE does not delete the vote of a later holder that arrived between its query and its
// deletion. Guards ballot.lua: force compares.
func TestForceRevokesOnlyTheHolderShown(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		foreign(f.sims, "x", time.Hour)
		f.delay(func(int) time.Duration { return 10 * ms }, each(ms))
		time.AfterFunc(15*ms, func() { // queried at 10 ms, and deleted at 23 ms
			forget(f.sims[0])
			f.sims[0].Do("SET", "redlock:x", "the next holder")
		})
		_, err := f.q.Force(t.Context(), "x")
		want(t, "error", err, nil)
		time.Sleep(50 * ms)
		want(t, "the next holder's vote", kept(f.sims[0]), "the next holder")
	})
}

// FORCE fails if no quorum records it.
func TestForceWithoutQuorum(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		foreign(f.sims, "x", time.Hour)
		time.AfterFunc(5*ms, func() { every(f.sims[:2], hang) })
		f.delay(func(int) time.Duration { return 3 * ms }, func(int) time.Duration { return 3 * ms })
		_, err := f.q.Force(t.Context(), "x")
		wantNoQuorum(t, err, redlock.FailedTimeout, "a", "b")
	})
}

// If a lock is handed over between the two questions of FORCE, FORCE revokes it from the new
// holder, or reports that it did not.
func TestForceDuringHandOver(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(oneTry)
		f.delay(each(ms), each(ms))
		var moved bool
		var next *redlock.Lease
		done := make(chan struct{})
		f.sims[4].OnCommand(func(c redlock.Command) { // the last node that gets the question
			if ops := operations(c); !moved && len(ops) > 0 && strings.Contains(ops[0].letter, "w") {
				moved = true
				go func() {
					defer close(done)
					_, begun, err := l.HandOver(oneTry)
					if err != nil {
						t.Error(err)
						return
					}
					r := oneTry
					r.Pending = begun
					next, err = f.q.Acquire(t.Context(), r)
					want(t, "the next holder's Acquire", err, nil)
				}()
			}
		})
		forced, err := f.q.Force(t.Context(), "x")
		<-done
		time.Sleep(100 * ms)
		if errors.Is(err, redlock.ErrHeld) {
			return // FORCE reports that the lock is held
		}
		want(t, "FORCE", err, nil)
		if next.Err() == nil {
			t.Errorf("FORCE reported %d revoked holders, but the lock is held on %d nodes", len(forced), len(f.keys()))
		}
	})
}

// A node remembers FORCE for as long as a lease of any host may last. So a holder that extends
// less often than this host ever would still gets the true reason. Guards forceHolders: LongestTTL.
func TestForceOfALongerLease(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		longer := f.another(func(o *redlock.Options) { o.MaxTTL = 10 * longest })
		defer longer.Close()
		longer.Settle(t.Context())
		l, err := longer.Acquire(t.Context(), redlock.Request{Name: "x", TTL: 10 * longest, Keep: true})
		want(t, "error", err, nil)
		time.Sleep(2 * beat) // the other host reads the larger max_ttl meanwhile
		_, err = f.q.Force(t.Context(), "x")
		want(t, "FORCE", err, nil)
		<-l.Lost()
		want(t, "reason", l.Reason(), redlock.LostForced)
	}, func(o *redlock.Options) { o.MaxTTL = longest })
}

// FORCE can look for a token at the moment when it is passed on, before the next lease is in the
// keeper's queue. The next lease is lost at once, and not only when the nodes refuse to confirm it.
func TestForceMeetsPass(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(passed)
		next := redlock.PassDuringForce(l, passed)
		wantErr(t, "the next lease", next.Err(), redlock.ErrLost)
		want(t, "reason", next.Reason(), redlock.LostForced)
	})
}

// A second FORCE of a token is remembered for as long as the first one.
func TestForceIsRememberedTwice(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		within := redlock.ForcedFor(f.q)
		redlock.ForceInBallot(f.q, "token")
		time.Sleep(within / 2)
		redlock.ForceInBallot(f.q, "token")
		time.Sleep(within - ms)
		want(t, "remembered", redlock.IsForced(f.q, "token"), true)
		time.Sleep(2 * ms)
		synctest.Wait()
		want(t, "remembered after that", redlock.IsForced(f.q, "token"), false)
	})
}

// FORCE of a lock with many holders takes four round trips, however many WHO of such locks are in
// progress: two pages of holders, the notes, and the deletion.
func TestForceDoesNotWaitForManyLists(t *testing.T) {
	const locks, holders, trip = 20, script.Few + 1, 20 * ms
	makeRepeatable(t) // if other calls are sent first, FORCE takes one trip more
	simTest(t, 3, func(t *testing.T, f *fleet) {
		until := fmt.Sprint(f.sims[0].Now().Add(time.Minute).UnixMilli())
		for i := range locks {
			key := name("redlock:x%d", i)
			members, places := []string{"ZADD", key + "\x00m"}, []string{"ZADD", key + "\x00s"}
			for j := range holders {
				token := fmt.Sprintf("%022d host=h pid=1 uid=1 user=u since=1", j)
				members, places = append(members, until, token), append(places, "0", token)
			}
			for _, sim := range f.sims {
				sim.Do(members...)
				sim.Do(places...)
				sim.Do("SET", key, "redlockd:shared", "PX", "60000")
			}
		}
		half := func(int) time.Duration { return trip / 2 }
		f.delay(half, half)
		var all sync.WaitGroup
		for i := range locks - 1 {
			all.Go(func() {
				shown, err := f.q.Who(t.Context(), name("x%d", i))
				want(t, "holders", len(shown), holders)
				want(t, "WHO", err, nil)
			})
		}
		at := f.now()
		forced, err := f.q.Force(t.Context(), name("x%d", locks-1))
		want(t, "FORCE", err, nil)
		want(t, "holders", len(forced), holders)
		wantWithin(t, "FORCE took", f.now()-at, 4*trip, 4*trip+ms)
		all.Wait()
	})
}
