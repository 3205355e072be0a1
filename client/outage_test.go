package client

import (
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
