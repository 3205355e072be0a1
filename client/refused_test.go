package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A stopping daemon refuses everything with SHUTDOWN. The client treats that as no answer and sends
// the request to the next daemon, unless the call was abandoned.
func TestShutdownIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "other") })
		d.expect("@0 LOCK other owner=2 id=t.2")
		d.say("BYE resume=9000", "@0 ERR SHUTDOWN : redlockd is stopping")
		d.hangUp()
		d.greet()
		again := d.elapsed()
		d.say(grant(d.expectTagged("RESUME job owner=1 lease=abc")[1:], "job", "abc", 0, ttl))
		d.expect("@0 LOCK other owner=2 id=t.2")
		d.say("@0 ERR SHUTDOWN")
		d.accept() // the client waits only a short time for the daemon to close the connection
		d.at("the end of the connection", again+byeTimeout)
		d.expect("@0 HELLO 1")
		d.say("@0 OK")
		d.say(grant(d.expectTagged("RESUME job owner=1 lease=abc")[1:], "job", "abc", d.elapsed(), ttl))
		d.expect("@0 LOCK other owner=2 id=t.2")
		d.say(grant("0", "other", "def", d.elapsed(), ttl))
		locked.must(t)
		if endCause(l.Context()) != nil {
			t.Errorf("the lease: %v", endCause(l.Context()))
		}
	})
}

// A daemon that always answers SHUTDOWN counts as no daemon.
func TestRepeatedShutdownMeansNoDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		tried := async(func() (*Lease, error) { return c.TryLock(t.Context(), "job") })
		for range maxShutdowns {
			d.expect("@0 TRY job owner=1 id=t.1")
			d.say("@0 ERR SHUTDOWN")
			d.hangUp()
			d.greet()
		}
		d.expect("@0 TRY job owner=1 id=t.1")
		d.say("@0 ERR SHUTDOWN")
		_, err := tried.wait()
		want(t, "try", err, ErrShutdown)
		if d.elapsed() >= byeTimeout {
			t.Errorf("that took %v, want the fourth answer to be one", d.elapsed())
		}
	})
}

// If the daemon refuses the connection, all waiting calls fail. Leases go on.
func TestConnectionIsRefused(t *testing.T) {
	for answer, wanted := range map[string]error{
		"ERR LIMIT : 1000 connections of this user":    ErrLimit,
		"ERR DENIED : no rule allows it":               ErrDenied,
		"@0 ERR SYNTAX : version 1 is none of mine":    ErrInvalid,
		"@0 ERR SHUTDOWN : it would have been another": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "other") })
			d.line()
			d.hangUp()
			d.accept()
			d.expect("@0 HELLO 1")
			d.say(answer)
			d.conn.Close()
			d.greet()
			d.say(grant(d.expectTagged("RESUME job owner=1 lease=abc")[1:], "job", "abc", 0, ttl))
			if wanted == nil {
				d.expect("@0 LOCK other owner=2 id=t.2")
				d.say("@0 ERR HELD")
				wanted = ErrHeld
			}
			_, err := locked.wait()
			want(t, answer, err, wanted)
			synctest.Wait()
			want(t, "the lease", endCause(l.Context()), nil)
		})
	}
}

// A pending UNLOCK, for which no caller waits, does not fail then. The client repeats it until a
// daemon accepts it.
func TestConnectionIsRefusedWithUnlockPending(t *testing.T) {
	refuse := func(d *scripted) {
		d.down.Store(false)
		d.accept()
		d.expect("@0 HELLO 1")
		d.say("ERR DENIED : no rule allows it")
		d.conn.Close()
		d.greet()
	}
	t.Run("a lock that was given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			ctx, cancel := context.WithCancel(t.Context())
			locked := async(func() (*Lease, error) { return c.Lock(ctx, "job", WithHold(HoldPID)) })
			d.expect("@0 LOCK job hold=pid id=t.1")
			d.stop()
			cancel()
			_, err := locked.wait()
			want(t, "lock", err, context.Canceled)
			refuse(d)
			d.expect("@0 LOCK job wait=0 hold=pid id=t.1")
			d.expect("CANCEL 0")
			d.say(grant("0", "job", "abc", d.elapsed(), ttl), "OK")
			d.answerUnlock(c)
		})
	})
	t.Run("an unlock that was given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc", WithHold(HoldPID))
			d.stop()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			want(t, "unlock", l.Unlock(ctx), context.DeadlineExceeded)
			refuse(d)
			d.answerUnlock(c)
		})
	})
}

// A daemon that drains refuses with drain=. That is an answer: no other daemon takes over soon, and the
// connection and its leases continue.
func TestDrainIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "other") })
		d.expect("@0 LOCK other owner=2 id=t.2")
		d.say("@0 ERR SHUTDOWN lock=other drain=24000 : redlockd is stopping")
		_, err := locked.wait()
		want(t, "lock", err, ErrShutdown)
		if d.elapsed() != 0 || endCause(l.Context()) != nil {
			t.Errorf("answered after %v, want at once; the lease: %v", d.elapsed(), endCause(l.Context()))
		}
	})
}
