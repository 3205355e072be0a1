package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A connection that stood for a while is made again at once, however often those before
// it ended as soon as they were made.
func TestPauseIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.line()
		next := func() {
			d.hangUp()
			d.greet()
			d.expect("@0 LOCK job owner=1 id=t.1")
		}
		for range 10 {
			next()
		}
		for range 3 {
			time.Sleep(time.Minute)
			before := d.elapsed()
			next()
			if took := d.elapsed() - before; took > 0 {
				t.Errorf("the next connection came after %v, want it at once", took)
			}
		}
		d.say("@0 ERR HELD")
		_, err := locked.wait()
		want(t, "lock", err, ErrHeld)
	})
}

// WithWait goes on without a daemon, for as long as the Client's patience at least; when
// that is over it is exact, however long an attempt to connect takes.
func TestWaitWithoutADaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		d.stop()
		start := d.elapsed()
		lock := func(wait time.Duration) time.Duration {
			before := d.elapsed()
			_, err := c.Lock(t.Context(), "job", WithWait(wait))
			want(t, "lock", err, ErrUnavailable)
			return d.elapsed() - before
		}
		for _, test := range []struct{ wait, want time.Duration }{
			{time.Second, defaultPatience},
			{10 * time.Second, 10 * time.Second},
			{10 * time.Millisecond, 10 * time.Millisecond},
		} {
			if got := lock(test.wait); got != test.want {
				t.Errorf("wait=%v, %v after the end of the connection: given up after %v, want %v", test.wait, d.elapsed()-got-start, got, test.want)
			}
		}
	})
}

// A daemon that takes connections and does not answer is none: calls wait for as long as
// the Client's patience, whatever is being tried, and are told that there is no daemon.
func TestDaemonThatDoesNotGreet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t, WithPatience(time.Second))
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.expect("@0 PING")
		d.hangUp()
		_, err := pinged.wait()
		want(t, "ping", err, ErrUnavailable)
		d.at("its end", time.Second)
		want(t, "another one", c.Ping(t.Context()), ErrUnavailable)
		d.at("its end", attemptTimeout)
		want(t, "another one", c.Ping(t.Context()), context.DeadlineExceeded) // what the attempt came to
		want(t, "Err", c.Err(), ErrUnavailable)
	})
}

// What a process or the ttl keeps is not lost because the connection is.
func TestGarbageEndsOnlyWhatGoesWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l, kept := d.lock(c, "job", "abc"), d.lock(c, "kept", "def", WithHold(HoldPID))
		d.say("ssh")
		synctest.Wait()
		want(t, "cause", over(l.Context()), ErrLost)
		if err := over(kept.Context()); err != nil || kept.Validity() != ttl {
			t.Errorf("the other: validity %v (%v), want 10s", kept.Validity(), err)
		}
	})
}

// Without a connection, the next one is inherited.
func TestInheritWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		d.stop()
		if err := c.Inherit(); err != nil {
			t.Errorf("inherit: %v", err)
		}
		d.down.Store(false)
		ctx, cancel := context.WithCancel(t.Context())
		pinged := async(func() (int, error) { return 0, c.Ping(ctx) })
		d.greet()
		synctest.Wait()
		want(t, "Err", c.Err(), errNoSocket) // which a pipe is not
		cancel()
		_, err := pinged.wait()
		want(t, "ping", err, context.Canceled)
	})
}
