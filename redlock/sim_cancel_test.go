package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

var errGone = errors.New("the client is gone")

// cancelled starts an Acquire, cancels it after the given time, and checks that no node holds a
// key when everything that was sent has arrived.
func (f *fleet) cancelled(after time.Duration, r redlock.Request) {
	f.Helper()
	ctx, cancel := context.WithCancelCause(f.Context())
	a := f.start(ctx, r)
	time.Sleep(after)
	cancel(errGone)
	synctest.Wait() // Acquire returns at this instant
	select {
	case <-a.done:
	default:
		f.Fatalf("cancelled after %v: Acquire did not return at once", after)
	}
	if a.err == nil {
		f.release(a.lease)
	} else {
		wantErr(f, name("cancelled after %v", after), a.err, errGone)
	}
	time.Sleep(30 * ms)
	f.wantNever(name("cancelled after %v", after), 120*ms)
}

// An Acquire that is cancelled at any instant leaves nothing on the nodes. Guards attempt:
// abandon, which needs no context.
func TestCancelAtEveryInstant(t *testing.T) {
	for _, nodes := range []int{1, 3, 5} {
		simTest(t, nodes, func(t *testing.T, f *fleet) {
			f.delay(each(ms), each(ms))
			for after := time.Duration(0); after < 12*ms; after += ms / 2 {
				f.cancelled(after+ms/10, redlock.Request{Name: "x", TTL: time.Second})
			}
		})
	}
}

// TestCancelAmongFaults checks the same while nodes refuse and hang, and between attempts.
func TestCancelAmongFaults(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		f.delay(each(ms), each(ms))
		f.sims[3].Hang()
		f.sims[4].Refuse("MISCONF Redis cannot write its snapshot")
		for after := time.Duration(0); after < 120*ms; after += 7 * ms {
			f.sims[0].Do("SET", "redlock:x", "another", "PX", "60000")
			f.sims[1].Do("SET", "redlock:x", "another", "PX", "60000")
			f.cancelledAmong(after+ms/10, redlock.Request{Name: "x", TTL: time.Second, Wait: redlock.Forever})
		}
		f.sims[3].Resume()
		f.sims[4].Refuse("")
		time.Sleep(1100 * ms) // a heartbeat
		f.wantNever("after the faults", time.Second)
	})
}

func (f *fleet) cancelledAmong(after time.Duration, r redlock.Request) {
	ctx, cancel := context.WithCancelCause(f.Context())
	a := f.start(ctx, r)
	time.Sleep(after)
	cancel(errGone)
	_, err := a.wait()
	wantErr(f, name("cancelled after %v", after), err, errGone)
	every(f.sims[:2], func(s *redlocktest.Sim) { s.Do("DEL", "redlock:x") })
	time.Sleep(30 * ms)
	f.wantNoKeys(name("cancelled after %v", after))
}

// TestCancelAtEveryCommand checks the same before every command that a node executes, of the
// acquire and of the releases that follow. Guards attempt: ctx.Err.
func TestCancelAtEveryCommand(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		for nth := 1; nth <= 10; nth++ {
			ctx, cancel := context.WithCancelCause(t.Context())
			f.atCommand(nth, func() { cancel(errGone) })
			l, err := f.q.Acquire(ctx, redlock.Request{Name: "x", TTL: time.Second})
			if err != nil {
				wantErr(t, name("cancelled at command %d", nth), err, errGone)
			} else if f.release(l); nth <= 3 {
				t.Errorf("cancelled at command %d, before a quorum voted: the lock was granted", nth)
			}
			synctest.Wait()
			cancel(nil)
			f.wantNever(name("cancelled at command %d", nth), 120*ms)
		}
	})
}

// atCommand calls do before the nth command with operations is executed. It counts the commands
// of all nodes together.
func (f *fleet) atCommand(nth int, do func()) {
	left := make(chan int, 1)
	left <- nth
	every(f.sims, func(s *redlocktest.Sim) {
		s.OnCommand(func(c redlock.Command) {
			n := <-left
			if len(operations(c)) > 0 {
				n--
			}
			if n == 0 && len(operations(c)) > 0 {
				do()
			}
			left <- n
		})
	})
}

// If the context is cancelled before Acquire, nothing is sent.
func TestCancelledBefore(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		j := f.record()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errGone)
		_, err := f.q.Acquire(ctx, redlock.Request{Name: "x", TTL: time.Second})
		wantErr(t, "cancelled before", err, errGone)
		time.Sleep(ms)
		want(t, "acquires", len(j.of("a")), 0)
	})
}

// An acquire that reaches its node after the attempt has ended sets nothing there, whatever
// delayed it. Guards appendCalls: the not-after argument; ballot.lua: LATE.
func TestLateAcquireSetsNothing(t *testing.T) {
	for what, late := range map[string]func(*fleet){
		"a slow network": func(f *fleet) {
			f.delay(func(int) time.Duration { return 60 * ms }, each(0))
		},
		"a node that hung": func(f *fleet) {
			f.sims[0].Hang()
			time.AfterFunc(60*ms, f.sims[0].Resume)
		},
		// The reconnect takes longer than the late bytes, so the kill comes after them.
		"a connection that was cut": func(f *fleet) {
			f.delay(func(int) time.Duration { return 40 * ms }, each(0))
			time.AfterFunc(20*ms, func() { f.sims[0].CutLate(60 * ms) })
		},
	} {
		simTest(t, 1, func(t *testing.T, f *fleet) {
			j := f.record()
			start := f.now()
			late(f)
			_, err := f.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: 10 * time.Second})
			wantErr(t, what, err, redlock.ErrNoQuorum)
			f.wantNever(what, 2*time.Second)
			if asked := j.of("a"); len(asked) != 1 || asked[0].at-start <= 50*ms {
				t.Errorf("%s: the node got %v, want one acquire more than 50 ms after %v", what, asked, start)
			}
		})
	}
}

// The not-after time leaves each node the whole node timeout, even if the way there and back
// takes nearly all of it. The error of the estimate of its clock is smaller than the rest. Guards
// readTime.
func TestNotAfterToleratesDelays(t *testing.T) {
	for _, way := range [][2]time.Duration{{24 * ms, 24 * ms}, {48 * ms, ms}, {ms, 48 * ms}} {
		simTest(t, 1, func(t *testing.T, f *fleet) {
			f.delay(func(int) time.Duration { return way[0] }, func(int) time.Duration { return way[1] })
			f.sims[0].Cut() // noticed at the heartbeat; the next handshake takes these delays
			time.Sleep(1700 * ms)
			for range 3 { // always half a second from the heartbeats
				f.release(f.acquire(redlock.Request{Name: "x", TTL: time.Second}))
				time.Sleep(time.Second - 2*(way[0]+way[1]))
			}
		})
	}
}
