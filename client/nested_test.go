package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A lock that would wait for the end of its own context is refused, and is not sent. Others are sent.
func TestNestedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		outer := d.lock(c, "job", "abc")
		inner := async(func() (*Lease, error) { return c.LockAll(outer.Context(), []string{"other", "more"}) })
		tag, _ := d.tagged()
		d.say(grant(tag, "other,more", "def", d.elapsed(), ttl))
		nested := inner.must(t).useContext(outer.Context()) // as Do does
		for _, name := range []string{"job", "other", "more"} {
			_, err := c.Lock(nested, name)
			want(t, name, err, ErrDeadlock)
		}
		for name, lock := range map[string]func() (*Lease, error){
			"with a bound":     func() (*Lease, error) { return c.Lock(nested, "job", WithWait(time.Second)) },
			"without waiting":  func() (*Lease, error) { return c.TryLock(nested, "job") },
			"of another block": func() (*Lease, error) { return c.Lock(t.Context(), "job") },
		} {
			call := async(lock)
			tag, _ := d.tagged()
			d.say("@" + tag + " ERR HELD")
			_, err := call.wait()
			want(t, name, err, ErrHeld)
		}
		unlocked := async(func() (int, error) { return 0, outer.Unlock(context.Background()) })
		d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
		unlocked.must(t)
		_, err := c.Lock(nested, "job")
		want(t, "after the end of the outer lease", err, context.Canceled)
	})
}
