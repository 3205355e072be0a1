package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The daemon is killed and starts again after a second. Leases are resumed, and waiters go on
// waiting.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		both := async(func() (*Lease, error) { return c.LockAll(t.Context(), []string{"a,b", "c"}, WithTTL(ttl)) })
		d.say(grant(d.expectTagged("LOCK a%2Cb,c ttl=10000 owner=2 id=t.2")[1:], "a%2Cb,c", "def", 0, ttl))
		other := both.must(t)
		waits := async(func() (*Lease, error) { return c.Lock(t.Context(), "other", WithWait(time.Minute)) })
		d.expect("@0 LOCK other wait=60000 owner=3 id=t.3")
		time.Sleep(time.Second)
		d.stop()
		want(t, "Err", c.Err(), ErrUnavailable)
		time.Sleep(2 * time.Second)
		if d.tries.Load() < 3 || l.Validity() != 7*time.Second || endCause(l.Context()) != nil {
			t.Errorf("after %d attempts the lease is valid for %v (%v), want 7s", d.tries.Load(), l.Validity(), endCause(l.Context()))
		}
		d.down.Store(false)
		d.greet()
		back := d.elapsed()
		for range 2 {
			switch tag, line := d.tagged(); line {
			case "RESUME job owner=1 lease=abc":
				d.say(grant(tag, "job", "abc", back, ttl))
			case "RESUME a%2Cb,c owner=2 lease=def":
				d.say(grant(tag, "a%2Cb,c", "def", back, ttl))
			default:
				t.Errorf("the daemon read %q, want RESUME", line)
			}
		}
		d.say(d.expectTagged("LOCK other wait="+ms(time.Minute-back)+" owner=3 id=t.3") + " ERR HELD")
		_, err := waits.wait()
		want(t, "lock", err, ErrHeld)
		synctest.Wait()
		if l.Validity() < ttl-time.Millisecond || other.Validity() < ttl-time.Millisecond || c.Reconnects() != 1 || c.Resumed() != 2 || c.Err() != nil {
			t.Errorf("validity %v and %v, %d reconnects, %d resumed, Err %v, want 10s, 10s, 1, 2, nil",
				l.Validity(), other.Validity(), c.Reconnects(), c.Resumed(), c.Err())
		}
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
		unlocked.must(t)
	})
}

// The daemon does not start again. Leases end by their timers. Waiting calls fail after the
// Client's patience, later calls after one attempt to connect.
func TestDaemonDoesNotRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l, kept := d.lock(c, "job", "abc"), d.lock(c, "kept", "def", WithHold(HoldTTL))
		tried := async(func() (*Lease, error) { return c.TryLock(t.Context(), "other") })
		d.line()
		short := async(func() (*Lease, error) { return c.Lock(t.Context(), "other", WithWait(time.Second)) })
		d.line()
		long := async(func() (time.Duration, error) {
			_, err := c.Lock(t.Context(), "other", WithWait(7*time.Second))
			return d.elapsed(), err
		})
		d.line()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		patient := async(func() (*Lease, error) { return c.Lock(ctx, "other") })
		d.line()
		time.Sleep(time.Second)
		d.stop()
		_, err := tried.wait()
		want(t, "try", err, ErrUnavailable)
		d.at("the end of the try", time.Second+defaultPatience)
		_, err = short.wait()
		want(t, "a lock with wait=1s", err, ErrUnavailable)
		d.at("its end", time.Second+defaultPatience)
		at, err := long.wait()
		want(t, "a lock with wait=7s", err, ErrUnavailable)
		if at != 7*time.Second {
			t.Errorf("its end at %v, want 7s", at)
		}
		for _, l := range []*Lease{l, kept} {
			<-l.Context().Done()
			d.at("the end of the lease", overAfter)
			want(t, "cause", endCause(l.Context()), ErrLost)
		}
		want(t, "cause", endCause(l.Context()), ErrUnavailable)
		want(t, "unlock", l.Unlock(t.Context()), ErrLost)
		before := d.elapsed()
		want(t, "ping", c.Ping(t.Context()), ErrUnavailable)
		if took := d.elapsed() - before; took > maxPause {
			t.Errorf("a ping after that took %v, want one attempt", took)
		}
		_, err = patient.wait()
		want(t, "a lock without wait", err, context.DeadlineExceeded)
		want(t, "a lock without wait", err, ErrUnavailable)
		synctest.Wait()
		nothingLeft(t, c)
		tries := d.tries.Load()
		time.Sleep(time.Hour)
		if n := d.tries.Load(); n != tries {
			t.Errorf("%d attempts with nothing to do", n-tries)
		}
	})
}

// If a lease is lost while there is no connection, no daemon extends it, so no UNLOCK is pending.
func TestNoUnlockPendingWithoutConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.stop()
		<-l.Context().Done()
		d.at("the end of the lease", overAfter)
		time.Sleep(maxPause)
		tries := d.tries.Load()
		time.Sleep(time.Minute)
		if n := d.tries.Load(); n != tries {
			t.Errorf("%d attempts to connect after the loss", n-tries)
		}
		nothingLeft(t, c)
	})
}

// An idle Client connects when it is used.
func TestIdleClientConnectsOnNextUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		d.say("BYE resume=0")
		d.hangUp()
		want(t, "Err", c.Err(), ErrShutdown)
		time.Sleep(time.Hour)
		if len(d.dials) > 0 {
			t.Error("a Client with nothing to do has connected")
		}
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.greet()
		d.at("the connection", time.Hour)
		d.expect("@0 PING")
		d.say("@0 OK")
		pinged.must(t)
	})
}

// If the daemon may have executed an UNLOCK before the connection ended, NOTHELD counts as success.
func TestUnlockAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l, idle := d.lock(c, "job", "abc"), d.lock(c, "idle", "def")
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		d.expectTagged("UNLOCK lease=abc")
		d.stop()
		during := async(func() (int, error) { return 0, idle.Unlock(t.Context()) })
		synctest.Wait()
		d.down.Store(false)
		d.greet()
		for range 2 { // no RESUME is sent
			tag, line := d.tagged()
			switch line {
			case "UNLOCK lease=abc":
				d.say("@" + tag + " ERR NOTHELD")
			case "UNLOCK lease=def":
				d.say("@" + tag + " OK lock=idle")
			default:
				t.Errorf("the daemon read %q, want UNLOCK", line)
			}
		}
		unlocked.must(t)
		during.must(t)
		nothingLeft(t, c)
	})
}

// If the connection ends with the grant, the client sends LOCK again with the same id=.
func TestGrantLostWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithTTL(ttl)) })
		d.expect("@0 LOCK job ttl=10000 owner=1 id=t.1")
		d.hangUp()
		d.greet()
		d.expect("@0 LOCK job ttl=10000 owner=1 id=t.1")
		d.say(grant("0", "job", "abc", 0, ttl) + " again=yes")
		if l := locked.must(t); l.ID() != "abc" {
			t.Errorf("lease %s, want abc", l.ID())
		}
	})
}

// A lock for a process that was abandoned as the connection ended may have been granted, and would
// stay. The client sends LOCK once more, and unlocks the grant.
func TestAbandonedForProcessAcrossRestart(t *testing.T) {
	for _, test := range []struct {
		lock         func(*Client, context.Context) (*Lease, error)
		first, again string
	}{
		{
			func(c *Client, ctx context.Context) (*Lease, error) { return c.Lock(ctx, "job", WithHold(HoldPID)) },
			"@0 LOCK job hold=pid id=t.1", "@0 LOCK job wait=0 hold=pid id=t.1",
		},
		{
			func(c *Client, ctx context.Context) (*Lease, error) { return c.TryLock(ctx, "job", WithHold(HoldPID)) },
			"@0 TRY job hold=pid id=t.1", "@0 TRY job hold=pid id=t.1",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			ctx, cancel := context.WithCancel(t.Context())
			locked := async(func() (*Lease, error) { return test.lock(c, ctx) })
			d.expect(test.first)
			cancel()
			_, err := locked.wait()
			want(t, test.first, err, context.Canceled)
			d.hangUp()
			d.greet()
			d.expect(test.again)
			d.expect("CANCEL 0")
			d.say(grant("0", "job", "abc", 0, ttl))
			d.answerUnlock(c)
		})
	}
}

// The client releases a lock of a process as soon as there is a daemon.
func TestUnlockForProcessOutlastsReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithHold(HoldPID)) })
		d.expect("@0 LOCK job hold=pid id=t.1")
		d.say(grant("0", "job", "abc", 0, ttl))
		l := locked.must(t)
		d.stop()
		want(t, "unlock", l.Unlock(t.Context()), ErrUnavailable)
		d.at("its end", defaultPatience)
		time.Sleep(time.Hour)
		d.down.Store(false)
		d.greet()
		d.answerUnlock(c)
	})
}

func TestLostWhileTheConnectionIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.hangUp()
		d.greet()
		tag := d.expectTagged("RESUME job owner=1 lease=abc")
		d.say("LOST lock=job lease=abc reason=forced")
		<-l.Context().Done()
		want(t, "cause", endCause(l.Context()), ErrLost)
		d.say(tag + " ERR LOST")
		synctest.Wait()
		nothingLeft(t, c)
	})
}

func TestCloseWhileThereIsNoConnection(t *testing.T) {
	for _, moment := range []string{"the pause", "HELLO", "RESUME"} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "other") })
			d.line()
			if moment == "the pause" {
				d.stop()
				time.Sleep(time.Second)
			} else {
				d.hangUp()
				d.accept()
				d.expect("@0 HELLO 1")
			}
			if moment == "RESUME" {
				d.say("@0 OK")
				d.line()
			}
			c.Close()
			_, err := locked.wait()
			want(t, moment+": lock", err, ErrClosed)
			want(t, moment+": cause", endCause(l.Context()), ErrClosed)
			want(t, moment+": Err", c.Err(), ErrClosed)
			want(t, moment+": ping", c.Ping(t.Context()), ErrClosed)
			<-c.Done()
			time.Sleep(time.Hour)
			nothingLeft(t, c)
		})
	}
}

// A program that does not answer HELLO as a daemon does is not a daemon. The client sends it
// nothing more, and tries to connect again.
func TestGreetedBySomethingElse(t *testing.T) {
	for _, greeting := range []string{"@1 OK version=1", "OK version=1", "220 mail ESMTP"} {
		isGreetedTwice(t, func(c *Client, d *scripted) {
			d.say(greeting)
			synctest.Wait()
			want(t, greeting, c.Err(), errProtocol)
		})
	}
}

// A daemon that closes the connection instead of answering HELLO counts as no daemon.
func TestHungUpInsteadOfGreeting(t *testing.T) {
	isGreetedTwice(t, func(c *Client, d *scripted) {
		d.hangUp()
		want(t, "Err", c.Err(), ErrUnavailable)
		if errors.Is(c.Err(), errProtocol) {
			t.Errorf("Err: %v", c.Err())
		}
	})
}

// isGreetedTwice answers the HELLO of a reconnecting Client with first, and the next HELLO
// correctly.
func isGreetedTwice(t *testing.T, first func(c *Client, d *scripted)) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		d.hangUp()
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.accept()
		d.expect("@0 HELLO 1")
		first(c, d)
		d.greet()
		d.say(d.expectTagged("PING") + " OK")
		pinged.must(t)
	})
}

// After garbage from a daemon nothing is resent: the calls fail, and the next call reconnects.
func TestNextCallAfterGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		d.say("ssh")
		synctest.Wait()
		want(t, "Err", c.Err(), errProtocol)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.greet()
		d.expect("@0 PING")
		d.say("@0 OK")
		pinged.must(t)
	})
}

// If connections end right away several times, the client pauses before the next attempt.
func TestConnectionThatEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		locked := async(func() (*Lease, error) { return c.Lock(ctx, "job") })
		d.line()
		d.hangUp()
		n := 0
		for ; locked.pending(); n++ {
			select {
			case conn := <-d.dials:
				d.dials <- conn
				d.greet()
				d.hangUp()
			case <-ctx.Done():
				synctest.Wait()
			}
		}
		if n > 200 {
			t.Errorf("%d connections in a minute", n)
		}
		if _, err := locked.wait(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("lock: %v", err)
		}
	})
}

// If the connection ended within an answer, the client drops the part that it had read.
func TestHalfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		asked := async(func() ([]Holder, error) { return c.Who(t.Context(), "job") })
		d.expect("@0 WHO job")
		d.say("@0 - lock=job host=a")
		d.hangUp()
		d.greet()
		d.expect("@0 WHO job")
		d.say("@0 - lock=job host=b", "@0 OK n=1")
		if holders := asked.must(t); len(holders) != 1 || holders[0].Host != "b" {
			t.Errorf("Who: %+v, want the lines of one answer", holders)
		}
	})
}
