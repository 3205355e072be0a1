package client

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// A TRY that is granted after its caller gave up is unlocked, once.
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

// An answer updates the lease even if nobody waits for it any longer.
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

// A lease that is found after the caller gave up is not kept.
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

// A caller that gives up while there is no daemon is told so, and leaves nothing behind.
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

// An UNLOCK of a lease that does not expire goes on as long as necessary, if it was not answered in
// time or could not even be sent.
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

// An Unlock that finds no daemon lets a lease of the connection expire, and makes no connection for
// it.
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

// Unlock can be called again when there is a daemon. Otherwise the lock would stay for its ttl.
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

// An UNLOCK that was sent twice reports a loss: only NOTHELD means that the first has released it.
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

// A caller that finds no permit, and stops waiting, is told so.
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

// A call that is reused keeps nothing of the earlier request: otherwise an answer about one lease
// would reach another.
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

// A request that is answered under both of its tags leaves none of them behind.
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

// A lock that a process may have been granted, without its caller knowing, is unlocked when there
// is a daemon, no matter how long that takes. It does not matter whether the lock failed or was
// abandoned because there was none. A request that was not sent was granted nothing.
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

// The same holds for an UNLOCK whose context ends at the moment it fails, and for one that is
// refused a connection before its caller has handed it over.
func TestUnlockForAProcessFails(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, c *Client, d *scripted, l *Lease){
		"as its context ends": func(t *testing.T, c *Client, d *scripted, l *Lease) {
			d.stop()
			ctx, cancel := context.WithCancel(t.Context())
			unlocked := async(func() (int, error) { return 0, l.Unlock(ctx) })
			synctest.Wait()
			c.calls.eachInFlight(func(cl *call) { // as the goroutines that fail it and abandon it do at the same time
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
			cl.state.Store(stateWaiting) // its state before it is handed over
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
				l = d.lock(c, "job", "def", WithHold(HoldPID)) // this one has a caller that waits
				d.stop()
				before := d.elapsed()
				want(t, "the next", l.Unlock(t.Context()), ErrUnavailable)
				d.at("its end", before+defaultPatience)
			})
		})
	}
}

// If there is a connection again when a lock is found to have failed, the lock does not wait there.
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

// An answer that comes at the moment a call is abandoned counts. One that comes before a call is
// handed over is settled. Neither leaves anything for the next call.
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
		for range 100 { // await may see either first
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

// A call that is sent in the background after Close is settled at once.
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

// An abandoned LOCK that ends with its connection was granted nothing: the answer to an earlier
// request is not its own.
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

// A query that waits until its lease is resumed is not sent if its caller gives up, and uses no
// permit from then on. (CHECK updates the lease's deadline.)
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
