package client

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// A TRY that is granted when nobody waits for it any more is given back, once.
func TestAbandonedTryIsUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithCancel(t.Context())
		tried := async(func() (*Lease, error) { return c.TryLock(ctx, "job") })
		d.expect("@0 TRY job owner=1 id=t.1")
		cancel()
		_, err := tried.wait()
		want(t, "try", err, context.Canceled)
		d.say(grant("0", "job", "abc", 0, ttl))
		d.expect("CANCEL 0")
		d.say(d.expectTagged("UNLOCK lease=abc")+" OK", "ERR NOTHELD : no request 0")
		time.Sleep(time.Minute)
		nothingLeft(t, c)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.say(d.expectTagged("PING") + " OK") // no other UNLOCK before
		pinged.must(t)
	})
}

// What is answered when nobody waits any more tells of the lease all the same.
func TestAbandonedQueriesUpdateLease(t *testing.T) {
	for verb, ask := range questions {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			ctx, cancel := context.WithCancel(t.Context())
			asked := async(func() (int, error) { return 0, ask(ctx, l) })
			tag := d.expectTagged(verb + " lease=abc")
			cancel()
			_, err := asked.wait()
			want(t, verb, err, context.Canceled)
			d.say(tag + " ERR LOST lease=abc")
			<-l.Context().Done()
			d.at("the end of the lease", 0)
			want(t, "cause", over(l.Context()), ErrLost)
			synctest.Wait()
			nothingLeft(t, c)
		})
	}
}

// A lease that nobody wants any more when it is found is nobody's.
func TestAbandonedLeaseOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithCancel(t.Context())
		found := async(func() (*Lease, error) { return c.LeaseOf(ctx, 7, "job") })
		tag := d.expectTagged("CHECK job pid=7")
		cancel()
		_, err := found.wait()
		want(t, "find", err, context.Canceled)
		d.say(grant(tag[1:], "job", "abc", 0, ttl))
		synctest.Wait()
		nothingLeft(t, c)
	})
}

// Who gives up while there is no daemon is told that there is none, and leaves nothing.
func TestCancelWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		d.stop()
		ctx, cancel := context.WithCancel(t.Context())
		locked := async(func() (*Lease, error) { return c.Lock(ctx, "job") })
		time.Sleep(time.Hour)
		cancel()
		_, err := locked.wait()
		want(t, "lock", err, context.Canceled)
		want(t, "lock", err, ErrUnavailable)
		want(t, "lock", err, errNobody) // what the last attempt met, not how the connection ended
		synctest.Wait()
		nothingLeft(t, c)
	})
}

// An UNLOCK that was not answered in time, of what does not end by itself, goes on for as
// long as it takes; also one that could not even be sent.
func TestUnlockForAProcessGoesOn(t *testing.T) {
	for _, sent := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc", WithHold(HoldPID))
			if !sent {
				d.stop()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			unlocked := async(func() (int, error) { return 0, l.Unlock(ctx) })
			if sent {
				d.expectTagged("UNLOCK lease=abc")
			}
			_, err := unlocked.wait()
			want(t, "unlock", err, context.DeadlineExceeded)
			d.outage(time.Hour)
			d.givenBack(c)
		})
	}
}

// An Unlock that finds no daemon leaves a lease of the connection to its end, and makes no
// connection for it.
func TestUnlockWithoutADaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.stop()
		want(t, "unlock", l.Unlock(t.Context()), ErrUnavailable)
		time.Sleep(maxPause)
		nothingLeft(t, c)
		tries := d.tries.Load()
		time.Sleep(time.Hour)
		if n := d.tries.Load(); n != tries {
			t.Errorf("%d attempts with nothing to do", n-tries)
		}
	})
}

// It can be called again when there is one: what its ttl keeps would stay for as long as that.
func TestUnlockAgainAfterReconnect(t *testing.T) {
	for _, test := range []struct {
		sent   bool // before the outage
		answer string
		want   error
	}{
		{false, "OK lock=job", nil},
		{false, "ERR NOTHELD lock=job", ErrLost},
		{true, "OK lock=job", nil},
		{true, "ERR NOTHELD lock=job", nil}, // the first has released it
		{true, "ERR LOST lock=job", ErrLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc", WithHold(HoldTTL))
			if !test.sent {
				d.stop()
			}
			unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
			if test.sent {
				d.expectTagged("UNLOCK lease=abc")
				d.stop()
			}
			_, err := unlocked.wait()
			want(t, "unlock", err, ErrUnavailable)
			d.down.Store(false)
			unlocked = async(func() (int, error) { return 0, l.Unlock(t.Context()) })
			synctest.Wait()
			if !unlocked.pending() {
				_, err := unlocked.wait()
				t.Fatalf("unlocked again: %v, want that it is asked for", err)
			}
			d.greet()
			d.say(d.expectTagged("UNLOCK lease=abc") + " " + test.answer)
			_, err = unlocked.wait()
			want(t, fmt.Sprint("unlock again: ", test), err, test.want)
			want(t, "and then", l.Unlock(t.Context()), ErrNotHeld)
			nothingLeft(t, c)
		})
	}
}

// An UNLOCK that was sent twice is told of a loss: only NOTHELD says that the first has
// released.
func TestUnlockTwiceOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		d.expectTagged("UNLOCK lease=abc")
		d.hangUp()
		d.greet()
		d.say(d.expectTagged("UNLOCK lease=abc") + " ERR LOST lease=abc")
		_, err := unlocked.wait()
		want(t, "unlock", err, ErrLost)
		nothingLeft(t, c)
	})
}

// Who finds no place for a request, and waits no more, is told so.
func TestNoPermitInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := dialScripted(t)
		for range maxOthers {
			c.calls.tryAcquire(ipc.VerbPing).state.Store(stateWaiting)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, "ping", c.Ping(ctx), context.DeadlineExceeded)
		_, err := c.LeaseOf(ctx, 7, "job")
		want(t, "find", err, context.DeadlineExceeded)
	})
}

// A call that is used again has nothing of the request before: a stale lease would hear
// what is said of another one.
func TestCallsAreUsedAgain(t *testing.T) {
	table := newCallTable()
	cl := table.tryAcquire(ipc.VerbLock)
	tag := cl.tag
	cl.setLease(&Lease{id: "abc", name: "job"})
	cl.addBadOption("a wish that cannot be")
	cl.failure, cl.lines = ErrClosed, append(cl.lines, ipc.Response{})
	cl.resent, cl.resendPaused, cl.limitRefusals, cl.shutdownRefusals, cl.restart = true, true, 1, 1, 1
	cl.sentOn.Store(sentNever)
	cl.waitUntil.Store(waitForever)
	cl.state.Store(stateAnswered)
	table.release(cl)
	again := table.tryAcquire(ipc.VerbPing)
	if again != cl || again.tag != tag || again.req.Tag != tag || again.req.Verb != ipc.VerbPing || again.req.Set != 0 || again.req.Lease != "" {
		t.Errorf("the request is %+v, want PING with the tag %s and no more", &again.req, tag)
	}
	if again.lockName != "" || again.lease != nil || again.badOptions != nil || again.failure != nil || len(again.lines) != 0 ||
		again.resent || again.resendPaused || again.limitRefusals != 0 || again.shutdownRefusals != 0 || again.restart != 0 ||
		again.sentOn.Load() != 0 || again.waitUntil.Load() != waitPatience || again.state.Load() != stateIdle {
		t.Errorf("left of the request before: %+v", again)
	}
}

// What is answered by both of its tags leaves none of them behind.
func TestStrayTagsAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		for range 100 {
			pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
			first := d.expectTagged("PING")
			d.say("BACK")
			d.say(d.expectTagged("PING")+" OK", first+" OK")
			pinged.must(t)
			synctest.Wait()
		}
		if n := len(c.calls.calls); n > 2 {
			t.Errorf("%d tags for one request at a time, want 2", n)
		}
	})
}

// What a process may have got, without its caller knowing, is given back when there is a
// daemon, however long that takes: also where the lock failed, or was given up, as there was
// none. What was not sent got nothing.
func TestLockForAProcessFailsWithoutADaemon(t *testing.T) {
	for name, test := range map[string]struct {
		lock  func(context.Context, *Client) (*Lease, error)
		again string
		sent  bool
		want  error
	}{
		"lock": {func(ctx context.Context, c *Client) (*Lease, error) {
			return c.Lock(ctx, "job", WithHold(HoldPID), WithWait(time.Second))
		}, "LOCK job wait=0 hold=pid id=t.1", true, ErrUnavailable},
		"lock, that was not sent": {func(ctx context.Context, c *Client) (*Lease, error) {
			return c.Lock(ctx, "job", WithHold(HoldPID), WithWait(time.Second))
		}, "", false, ErrUnavailable},
		"try": {func(ctx context.Context, c *Client) (*Lease, error) {
			return c.TryLock(ctx, "job", WithHold(HoldPID))
		}, "TRY job hold=pid id=t.1", true, ErrUnavailable},
		"try, given up": {func(ctx context.Context, c *Client) (*Lease, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return c.TryLock(ctx, "job", WithHold(HoldPID))
		}, "TRY job hold=pid id=t.1", true, context.DeadlineExceeded},
		"try, given up before it was sent": {func(ctx context.Context, c *Client) (*Lease, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return c.TryLock(ctx, "job", WithHold(HoldPID))
		}, "", false, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				if !test.sent {
					d.stop()
				}
				locked := async(func() (*Lease, error) { return test.lock(t.Context(), c) })
				if test.sent {
					d.line()
					d.stop()
				}
				_, err := locked.wait()
				want(t, name, err, test.want)
				if !test.sent {
					synctest.Wait()
					nothingLeft(t, c)
					return
				}
				time.Sleep(time.Hour)
				d.down.Store(false)
				d.greet()
				tag := d.expectTagged(test.again)
				d.expect("CANCEL " + tag[1:])
				d.say(grant(tag[1:], "job", "abc", d.elapsed(), ttl))
				d.givenBack(c)
			})
		})
	}
}

// The same of an UNLOCK whose context ends in the moment in which it fails, or that is
// refused a connection before its caller has let go of it.
func TestUnlockForAProcessFails(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, c *Client, d *scripted, l *Lease){
		"as its context ends": func(t *testing.T, c *Client, d *scripted, l *Lease) {
			d.stop()
			ctx, cancel := context.WithCancel(t.Context())
			unlocked := async(func() (int, error) { return 0, l.Unlock(ctx) })
			synctest.Wait()
			c.calls.eachInFlight(func(cl *call) { // as who fails it and who gives it up do at once
				cl.sentOn.Store(sentNever)
				cl.failure = errNobody
				cl.state.Store(stateFailed)
				cancel()
				cl.ready <- struct{}{}
			})
			_, err := unlocked.wait()
			want(t, "unlock", err, ErrUnavailable)
		},
		"as it is posted": func(t *testing.T, c *Client, d *scripted, l *Lease) {
			want(t, "beginning it", l.beginUnlock(), nil)
			d.stop()
			cl, err := l.begin(t.Context(), ipc.VerbUnlock)
			if err != nil {
				t.Fatal(err)
			}
			c.sendInBackground(cl)
			cl.state.Store(stateWaiting) // as it is before it is let go of
			c.failAll(ErrDenied)
			c.handOver(cl)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "job", "abc", WithHold(HoldPID))
				fail(t, c, d, l)
				time.Sleep(time.Hour)
				d.down.Store(false)
				d.greet()
				d.givenBack(c)
				l = d.lock(c, "job", "def", WithHold(HoldPID)) // for this one somebody waits
				d.stop()
				before := d.elapsed()
				want(t, "the next", l.Unlock(t.Context()), ErrUnavailable)
				d.at("its end", before+defaultPatience)
			})
		})
	}
}

// Where there is a connection again by the time at which a lock is found to have failed, it
// does not wait there.
func TestLockForAProcessFailsAsTheConnectionIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		cl, err := c.begin(t.Context(), ipc.VerbLock, "job")
		if err != nil {
			t.Fatal(err)
		}
		cl.lease, cl.req.Names = &Lease{c: c, name: "job"}, append(cl.req.Names, "job")
		want(t, "its options", cl.applyOptions([]Option{WithHold(HoldPID), WithWait(time.Minute)}), nil)
		c.setIdentity(cl)
		cl.maybeDone = true
		c.failedWithoutReply(cl)
		d.expect("@0 LOCK job wait=0 hold=pid id=t.1")
		d.say(grant("0", "job", "abc", 0, ttl))
		d.givenBack(c)
	})
}

// An answer that comes in the moment in which a call is given up counts, and one that comes
// before a call is let go of is settled. Neither leaves anything for the call that is next.
func TestAnsweredInTheSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		answer := func(verb ipc.Verb) *call {
			cl, err := l.begin(t.Context(), verb)
			if err != nil {
				t.Fatal(err)
			}
			cl.state.Store(stateAnswered)
			cl.reply.OK(cl.tag)
			cl.ready <- struct{}{}
			return cl
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // whichever await sees first
			cl := answer(ipc.VerbLock)
			if !c.await(ctx, cl) || len(cl.ready) > 0 {
				t.Fatal("the answer does not count, or counts for the next call")
			}
			c.calls.release(cl)
		}
		cl := answer(ipc.VerbUnlock)
		c.handOver(cl)
		if len(cl.ready) > 0 {
			t.Error("the answer counts for the next call")
		}
		nothingLeft(t, c)
	})
}

// What is posted when all is over is settled at once.
func TestBackgroundCallAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		c.Close()
		cl, err := l.begin(t.Context(), ipc.VerbUnlock)
		if err != nil {
			t.Fatal(err)
		}
		c.sendInBackground(cl)
		nothingLeft(t, c)
	})
}

// A LOCK that nobody waits for any more, and that ends with its connection, has got nothing:
// what was answered to the request before it is none of its own.
func TestAbandonedLockIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
		unlocked.must(t)
		ctx, cancel := context.WithCancel(t.Context())
		locked := async(func() (*Lease, error) { return c.Lock(ctx, "job") })
		d.expect("@0 LOCK job owner=2 id=t.2")
		cancel()
		d.expect("CANCEL 0")
		_, err := locked.wait()
		want(t, "lock", err, context.Canceled)
		d.hangUp()
		nothingLeft(t, c)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.greet()
		d.say(d.expectTagged("PING") + " OK")
		pinged.must(t)
	})
}

// A question that waits for its lease to be resumed is not asked when nobody wants to know
// any more, and takes no place from then on. (CHECK tells the lease of its deadline.)
func TestAbandonedWhileAwaitingResume(t *testing.T) {
	for _, verb := range []string{"EXTEND", "BEAT"} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			d.hangUp()
			d.greet()
			tag := d.expectTagged("RESUME job owner=1 lease=abc")
			ctx, cancel := context.WithCancel(t.Context())
			asked := async(func() (int, error) { return 0, questions[verb](ctx, l) })
			synctest.Wait()
			cancel()
			_, err := asked.wait()
			want(t, verb, err, context.Canceled)
			synctest.Wait()
			if n := len(c.calls.otherPermits); n > 0 {
				t.Errorf("%d requests are in flight", n)
			}
			d.say(grant(tag[1:], "job", "abc", 0, ttl))
			d.expectTagged("CHECK lease=abc")
			d.at("CHECK", checkAfter)
		})
	}
}
