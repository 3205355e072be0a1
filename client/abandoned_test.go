package client

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// If a TRY is granted after its caller gave up, the client unlocks it once.
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

// The answer to an abandoned query still updates the lease.
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
			want(t, "cause", endCause(l.Context()), ErrLost)
			synctest.Wait()
			nothingLeft(t, c)
		})
	}
}

// The client does not keep a lease that was found after the caller gave up.
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

// If a caller gives up while there is no daemon, the error says so, and no call is left.
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
		want(t, "lock", err, errNobody) // the error of the last attempt to connect, not the one that ended the connection
		synctest.Wait()
		nothingLeft(t, c)
	})
}

// The client repeats the UNLOCK of a lease that does not expire until the daemon answers, even if
// the first UNLOCK got no answer in time or could not be sent.
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
			d.answerUnlock(c)
		})
	}
}

// If Unlock finds no daemon, a lease that is bound to the connection expires. The client does not
// reconnect for it.
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

// After a failed Unlock, the caller can call it again when there is a daemon. Otherwise the lock
// would stay for its ttl.
func TestUnlockAgainAfterReconnect(t *testing.T) {
	for _, test := range []struct {
		sent   bool // before the outage
		answer string
		want   error
	}{
		{false, "OK lock=job", nil},
		{false, "ERR NOTHELD lock=job", ErrLost},
		{true, "OK lock=job", nil},
		{true, "ERR NOTHELD lock=job", nil}, // the first UNLOCK has released it
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

// If an UNLOCK was sent twice and is answered LOST, Unlock reports the loss. Only NOTHELD means
// that the first UNLOCK released the lease.
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

// A caller that gets no permit before its context ends gets the error of the context.
func TestNoPermitInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := dialScripted(t)
		c.occupy(roomOther, maxInFlight[roomOther])
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, "ping", c.Ping(ctx), context.DeadlineExceeded)
		_, err := c.LeaseOf(ctx, 7, "job")
		want(t, "find", err, context.DeadlineExceeded)
	})
}

// If the daemon answers both tags of a request, both become free.
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
		if n := len(c.core.flight.tags); n > 2 {
			t.Errorf("%d tags for one request at a time, want 2", n)
		}
	})
}

// If a process may have been granted a lock without the caller's knowledge, the client unlocks it
// when there is a daemon, however long that takes. It does not matter whether the call failed or
// its caller gave up. A request that was not sent was granted nothing.
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
				d.answerUnlock(c)
			})
		})
	}
}

// An UNLOCK for a process also goes on if its context ends at the moment it fails, or if the daemon
// refuses the connection before the caller has handed the UNLOCK over.
func TestUnlockForAProcessFails(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, c *Client, d *scripted, l *Lease){
		"as its context ends": func(t *testing.T, c *Client, d *scripted, l *Lease) {
			d.stop()
			ctx, cancel := context.WithCancel(t.Context())
			unlocked := async(func() (int, error) { return 0, l.Unlock(ctx) })
			synctest.Wait()
			c.enter()
			cancel() // two goroutines fail it and abandon it at the same time
			for cl := range c.core.flight.calls() {
				c.core.fail(cl, errNobody)
			}
			c.exit()
			_, err := unlocked.wait()
			want(t, "unlock", err, ErrUnavailable)
		},
		"as it is posted": func(t *testing.T, c *Client, d *scripted, l *Lease) {
			d.stop()
			c.enter()
			c.core.apply(l, wasDropped, ErrUnlocked)
			c.core.attemptFailed(refusalError("connection", "", new(ipc.Response).Err("", ipc.CodeDenied, "")))
			c.exit()
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
				d.answerUnlock(c)
				l = d.lock(c, "job", "def", WithHold(HoldPID)) // a caller waits for this one
				d.stop()
				before := d.elapsed()
				want(t, "the next", l.Unlock(t.Context()), ErrUnavailable)
				d.at("its end", before+defaultPatience)
			})
		})
	}
}

// After Close, a call in the background is settled at once.
func TestBackgroundCallAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		c.Close()
		c.enter()
		c.core.background(newCallAbout(l, ipc.VerbUnlock))
		c.exit()
		nothingLeft(t, c)
	})
}

// If an abandoned LOCK ends with its connection, it was granted nothing. The answer to an earlier
// request does not count as its answer.
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

// If the caller of a query gives up while the query waits for a RESUME, the query is not sent and
// returns its permit. (The CHECK that is sent updates the lease's deadline.)
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
			if n := c.busy(roomOther); n > 0 {
				t.Errorf("%d requests are in flight", n)
			}
			d.say(grant(tag[1:], "job", "abc", 0, ttl))
			d.expectTagged("CHECK lease=abc")
			d.at("CHECK", checkAfter)
		})
	}
}
