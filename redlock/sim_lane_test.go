package redlock_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

var oneTry = redlock.Request{Name: "x", TTL: 10 * time.Second}

// A connection breaks after the node has executed an acquire and before its answer arrives. The
// attempt fails, and the key is released over the next connection. Guards Lane.addPendingLocked,
// handshake: repeatPending.
func TestLostAnswerIsReleased(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].DropReplies(1)
		f.sims[1].DropReplies(1)
		_, err := f.q.Acquire(t.Context(), oneTry)
		wantNoQuorum(t, err, redlock.FailedDown, "a", "b")
		time.Sleep(ms) // nothing is delayed: the lane reconnects at once
		f.wantNoKeys("after the reconnect")
		want(t, "connections to a", f.sims[0].Counts().Dials, 2)
	})
}

// If the answer to a release is lost, the host resends the release. The resent release does not
// affect a client that holds the lock by then.
func TestLostAnswerToRelease(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(oneTry)
		every(f.sims, func(s *redlocktest.Sim) { s.DropReplies(1) })
		j := f.record()
		err := l.Release(t.Context())
		wantErr(t, "all answers lost", err, redlock.ErrNoQuorum)
		synctest.Wait() // until it is connected again
		other := f.acquire(redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: time.Second})
		time.Sleep(2 * time.Second)
		want(t, "releases", len(j.of("r")) >= 6, true)
		want(t, "keys of the next holder", len(f.keys()), 3)
		f.release(other)
	})
}

// Bytes that are in transit when a connection is cut could be executed later, after the release
// that cleans up. So the first command on the next connection kills the previous one. Guards
// identify: endPreviousConnection. (Without the kill, the acquire would be executed 22 ms after the
// start, before its not-after time at 50 ms, and the key would stay for its ttl.)
func TestOldConnectionIsKilled(t *testing.T) {
	simTest(t, 1, func(t *testing.T, f *fleet) {
		sim := f.sims[0]
		j := f.record()
		f.delay(func(int) time.Duration { return 5 * ms }, each(0))
		a := f.start(t.Context(), oneTry)
		time.Sleep(2 * ms)
		f.delay(func(int) time.Duration { return ms }, each(0))
		sim.CutLate(20 * ms)
		_, err := a.wait()
		wantNoQuorum(t, err, redlock.FailedDown, "a")
		f.wantNever("after the cut", 2*time.Second)
		want(t, "acquires executed", len(j.of("a")), 0)
		want(t, "connections killed", sim.Counts().Killed, 1)
		want(t, "releases", len(j.of("r")) > 0, true)
		f.release(f.acquire(oneTry))
	})
}

// On a new connection, the kill is sent before the release.
func TestKillComesBeforeRelease(t *testing.T) {
	simTest(t, 1, func(t *testing.T, f *fleet) {
		var words []string
		l := f.acquire(oneTry)
		f.sims[0].DropRequests(1)
		f.sims[0].OnCommand(func(c redlock.Command) {
			words = append(words, strings.Join(c[:min(2, len(c))], " "))
		})
		wantErr(t, "request lost", l.Release(t.Context()), redlock.ErrNoQuorum)
		synctest.Wait()
		kill := slices.Index(words, "CLIENT KILL")
		release := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "EVALSHA") })
		if kill < 0 || release < kill {
			t.Errorf("commands on the new connection: %q, want CLIENT KILL before EVALSHA", words)
		}
		f.wantNoKeys("released")
	})
}

// Callers do not notice that the scripts were flushed. The host loads them and resends the call
// over the same connection. Guards Lane.resend.
func TestScriptFlush(t *testing.T) {
	simTest(t, 1, func(t *testing.T, f *fleet) {
		sim := f.sims[0]
		flush := func() { sim.Do("SCRIPT", "FLUSH") }
		flush()
		l := f.acquire(oneTry)
		flush()
		wantErr(t, "extend", l.Extend(t.Context(), 0), nil)
		flush()
		holders, err := f.q.Who(t.Context(), "x")
		want(t, "holders", len(holders), 1)
		wantErr(t, "who", err, nil)
		flush()
		wantErr(t, "release", l.Release(t.Context()), nil)
		f.wantNoKeys("released")
		f.acquire(oneTry)
		flush()
		_, err = f.q.Force(t.Context(), "x")
		wantErr(t, "force", err, nil)
		f.wantNoKeys("forced")
		want(t, "connections", sim.Counts().Dials, 1)
	})
}

// If a minority of the nodes lacks the scripts, no client is delayed.
func TestScriptFlushOfMinority(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		every(f.sims[:2], func(s *redlocktest.Sim) { s.Do("SCRIPT", "FLUSH") })
		f.release(f.acquire(oneTry))
		time.Sleep(ms)
		f.acquire(oneTry)
		time.Sleep(ms)
		want(t, "nodes that hold the lock", len(f.keys()), 5)
	})
}

// A node whose clock is set forward finds one request late. Its votes count again from the next
// request on. Guards Lane.fail: LATE; readTime.
func TestClockForward(t *testing.T) {
	simTest(t, 1, func(t *testing.T, f *fleet) {
		f.sims[0].StepClock(10 * time.Second)
		_, err := f.q.Acquire(t.Context(), oneTry)
		wantNoQuorum(t, err, redlock.FailedLate, "a")
		time.Sleep(ms)
		f.release(f.acquire(oneTry))
	})
}

// A node whose clock is set back grants as before. From the next heartbeat on, it refuses late
// requests again.
func TestClockBack(t *testing.T) {
	simTest(t, 1, func(t *testing.T, f *fleet) {
		f.sims[0].StepClock(-10 * time.Second)
		f.release(f.acquire(oneTry))
		time.Sleep(1100 * ms)
		f.delay(func(int) time.Duration { return 60 * ms }, each(0))
		_, err := f.q.Acquire(t.Context(), oneTry)
		wantErr(t, "a request that takes 60 ms", err, redlock.ErrNoQuorum)
		f.wantNever("after a late request", 500*ms)
	})
}

// The heartbeat follows a clock that runs too fast, so no request is ever late.
func TestClockRate(t *testing.T) {
	simTest(t, 1, func(t *testing.T, f *fleet) {
		f.sims[0].SetClockRate(1.01)
		for range 200 {
			f.release(f.acquire(oneTry))
			time.Sleep(100 * ms)
		}
	})
}

// A full lane refuses new work at once, and accepts every release. Guards admit.
func TestFullLane(t *testing.T) {
	const queue = 4096
	simTest(t, 1, func(t *testing.T, f *fleet) {
		kept := f.acquire(redlock.Request{Name: "kept", TTL: 10 * time.Second})
		f.sims[0].Hang()
		f.start(t.Context(), redlock.Request{Name: "first", TTL: time.Second})
		synctest.Wait() // the request is in progress
		var all sync.WaitGroup
		for range queue {
			all.Go(func() { f.q.Who(t.Context(), "queued") })
		}
		synctest.Wait()
		start := f.now()
		_, err := f.q.Acquire(t.Context(), oneTry)
		wantNoQuorum(t, err, redlock.FailedFull, "a")
		want(t, "took", f.now()-start, 0)
		releasing, err := kept.BeginRelease()
		want(t, "error of the release", err, nil)
		f.sims[0].Resume()
		want(t, "release", releasing.Wait(t.Context()), nil)
		all.Wait()
		time.Sleep(2 * time.Second)
		f.wantNoKeys("after the node resumed")
	})
}

// Releases for a node that is down are stored, and sent within the longest reconnect delay after
// it is up. Guards addPendingLocked, dropExpiredLocked.
func TestReleaseWaitsForNode(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(oneTry)
		f.sims[0].Down()
		time.Sleep(1100 * ms) // after a heartbeat, the lane knows
		f.release(l)
		want(t, "keys", strings.Join(f.keys(), " "), "a:redlock:x")
		time.Sleep(5 * time.Second)
		f.sims[0].Up()
		time.Sleep(250*ms + 1)
		f.wantNoKeys("after the node is up again")
	})
}

// If a node refuses a release, the lane repeats it at the heartbeat. Guards onHeartbeat.
func TestRefusedReleaseIsRepeated(t *testing.T) {
	simTest(t, 1, func(t *testing.T, f *fleet) {
		l := f.acquire(oneTry)
		f.sims[0].Refuse("MISCONF Redis cannot write its snapshot")
		wantNoQuorum(t, l.Release(t.Context()), redlock.FailedError, "a")
		time.Sleep(3 * time.Second)
		want(t, "keys", len(f.keys()), 1)
		f.sims[0].Refuse("")
		time.Sleep(time.Second + 1)
		f.wantNoKeys("a heartbeat later")
	})
}

// A release is dropped when its key must have expired. Guards dropExpiredLocked.
func TestReleaseIsDropped(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(oneTry)
		f.sims[0].Down()
		time.Sleep(1100 * ms)
		f.release(l)
		time.Sleep(40 * time.Second) // max_ttl is 30 s
		j := f.record()
		f.sims[0].Up()
		time.Sleep(2 * time.Second)
		want(t, "releases sent", len(j.of("r")), 0)
		f.release(f.acquire(oneTry))
		synctest.Wait()
		want(t, "the node is used again", len(j.on(0, "r")), 1)
	})
}

// A host owes a node no release for an acquire that it never sent to that node. So releases do not
// accumulate for a node that is down for long. Guards NodeSet.
func TestNoReleaseForUnsentAcquire(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].Down()
		time.Sleep(1100 * ms)
		for range 100 {
			f.release(f.acquire(oneTry))
		}
		j := f.record()
		f.sims[0].Up()
		time.Sleep(time.Second)
		want(t, "operations at the node that was down", len(j.on(0, "r"))+len(j.on(0, "a")), 0)
	})
}

// If all calls that waited for a node's answer are too late to be sent, the lane sends the next
// call at once. Guards the order in Lane.nextCalls.
func TestLaneIsIdleAfterStaleCalls(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		slow := 120 * ms
		f.delay(func(int) time.Duration { return 0 }, func(node int) time.Duration {
			if node == 0 {
				return slow
			}
			return 0
		})
		f.acquire(redlock.Request{Name: "x", TTL: 20 * time.Second})
		time.Sleep(40 * ms)
		f.acquire(redlock.Request{Name: "y", TTL: 20 * time.Second}) // waits for the answer about x until it is too late
		time.Sleep(81 * ms)
		slow = 0
		time.Sleep(60 * ms) // longer than the node timeout
		j := f.record()
		f.acquire(redlock.Request{Name: "z", TTL: 20 * time.Second})
		want(t, "acquires at the node that was slow", len(j.on(0, "a")), 1)
	})
}

// A lane dials a node that is down after a random delay of 10 to 250 ms.
func TestBackoff(t *testing.T) {
	simTest(t, 1, func(t *testing.T, f *fleet) {
		f.sims[0].Down()
		time.Sleep(20 * time.Second)
		dials := f.sims[0].Counts().RefusedDials
		if dials < 19_000/250 || dials > 19_000/125+8 {
			t.Errorf("%d dials in 19 s, want one per 125 to 250 ms", dials)
		}
		f.sims[0].Up()
		time.Sleep(250*ms + 1)
		want(t, "ready", f.q.Status().Ready, 1)
	})
}

// A node is connecting until its first answer, or until that is overdue.
func TestNodeIsConnectingAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		defer f.closeSims()
		f.sims[0].Hang()
		f.open()
		defer f.q.Close()
		synctest.Wait()
		want(t, "at first", f.state(), redlock.NodeConnecting)
		f.sims[0].Resume()
		f.q.Settle(t.Context())
		want(t, "then", f.state(), redlock.NodeReady)
	})
}

// Observe and Status report a node that is down at first, comes up, hangs and goes down.
func TestNodeStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		defer f.closeSims()
		f.sims[0].Down()
		var states []string
		f.open(func(o *redlock.Options) {
			o.Observe = func(s redlock.NodeStatus) {
				if states == nil || states[len(states)-1] != string(s.State) {
					states = append(states, string(s.State))
				}
			}
		})
		defer f.q.Close()
		f.q.Settle(t.Context())
		want(t, "state when the dial was refused", f.state(), redlock.NodeDown)
		f.sims[0].Up()
		time.Sleep(time.Second)
		want(t, "state when connected", f.state(), redlock.NodeReady)
		f.sims[0].Hang()
		time.Sleep(80 * ms) // the heartbeat asked it, at most 10 ms later
		want(t, "state when it has not answered", f.state(), redlock.NodeDown)
		f.sims[0].Resume()
		time.Sleep(2 * time.Second)
		want(t, "state after it resumed", f.state(), redlock.NodeReady)
		f.sims[0].Hang()
		time.Sleep(2 * time.Second)
		want(t, "state when it hangs for long", f.state(), redlock.NodeDown)
		if rtt := f.q.Status().Nodes[0].RTT; rtt > 80*ms { // the time of the one late answer
			t.Errorf("RTT %v, want at most 80ms", rtt)
		}
		f.sims[0].Resume()
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, "observed", strings.Join(states, " "), "down ready down ready")
	})
}

func (f *fleet) state() redlock.NodeState {
	status := f.q.Status()
	if ready := status.Nodes[0].State == redlock.NodeReady; ready != (status.Ready == 1) || (status.Nodes[0].Reason == nil) != ready {
		f.Errorf("status %+v is inconsistent", status)
	}
	return status.Nodes[0].State
}

// The number of goroutines does not depend on the number of leases: only lanes and keeper have
// some. After Close there are none, or the bubble would not end.
func TestGoroutines(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		before := runtime.NumGoroutine()
		for i := range 1000 {
			f.acquire(redlock.Request{Name: name("x%d", i), TTL: 10 * time.Second, Keep: true})
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if more := runtime.NumGoroutine() - before; more > 5 {
			t.Errorf("%d more goroutines for 1000 leases, want at most 5", more)
		}
	})
}

// Close sends the releases that were begun, even while nodes are down or hang. It ends within
// bounded time.
func TestClose(t *testing.T) {
	oneThread(t)
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(oneTry)
		f.sims[3].Hang()
		f.sims[4].Down()
		if _, err := l.BeginRelease(); err != nil {
			t.Error(err)
		}
		start := f.now()
		f.q.Close()
		wantWithin(t, "Close took", f.now()-start, 0, 400*ms)
		want(t, "keys on the nodes that answer", strings.Contains(strings.Join(f.keys(), " "), "a:"), false)
		_, err := f.q.Acquire(t.Context(), oneTry)
		wantErr(t, "acquire after Close", err, redlock.ErrNoQuorum)
		wantErr(t, "acquire after Close", err, redlock.ErrClosed)
		f.sims[3].Resume()
		f.wantNoKeysBut("d:redlock:x", "e:redlock:x")
	})
}

// If a Quorum is closed, its waiters return at once, even if no node sends wake-ups.
func TestCloseEndsWaiters(t *testing.T) {
	deaf := func(o *redlock.Options) {
		for i := range o.Nodes {
			o.Nodes[i].Listen = nil
		}
	}
	for _, change := range []func(*redlock.Options){longLeases, deaf} {
		twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			f.acquire(exclusive)
			w := f.wait(other, patient)
			time.Sleep(100 * ms)
			closed := f.now()
			other.Close()
			<-w.done
			wantErr(t, "the waiter's error", w.err, redlock.ErrClosed)
			wantWithin(t, "time from Close to its return", w.granted-closed, 0, 10*ms)
		}, change)
	}
}

// wantNoKeysBut checks that no keys are left except on nodes that could not be reached.
func (f *fleet) wantNoKeysBut(allowed ...string) {
	f.Helper()
	for _, key := range f.keys() {
		if !slices.Contains(allowed, key) {
			f.Errorf("key %s is left", key)
		}
	}
}

// A call that takes long to reach the nodes comes too late. It must not make another call in the
// same command late. Guards spanLength.
func TestLateCallDelaysNoOther(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		time.Sleep(300 * ms) // away from the heartbeats
		f.delay(func(int) time.Duration { return 6 * ms }, func(int) time.Duration { return 4 * ms })
		begin := f.now()
		f.start(t.Context(), redlock.Request{Name: "late", TTL: time.Second, BeforeAttempt: func(redlock.Record) { f.at(begin, 40*ms) }})
		f.at(begin, 35*ms)
		f.start(t.Context(), redlock.Request{Name: "before", TTL: time.Second}) // keeps the nodes busy meanwhile
		f.at(begin, 38*ms)
		_, err := f.q.Acquire(t.Context(), oneTry)
		want(t, "error", err, nil)
		time.Sleep(100 * ms)
	})
}
