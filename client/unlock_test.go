package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Unlock waits until its context ends, whatever the daemon does. A context derived from the lease's
// own counts as well, except for the end that Unlock itself causes. Without a deadline Unlock waits
// for unlockTimeout, because no caller could end it.
func TestUnlockWaitsNoLongerThanItsContext(t *testing.T) {
	for name, test := range map[string]struct {
		of     func(t *testing.T, l *Lease) (context.Context, context.CancelFunc)
		want   error
		wantAt time.Duration
	}{
		"cancelled meanwhile": {func(t *testing.T, _ *Lease) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, context.Canceled, time.Second},
		"under the lease's, with a deadline": {func(_ *testing.T, l *Lease) (context.Context, context.CancelFunc) {
			return context.WithTimeout(l.Context(), time.Second)
		}, context.DeadlineExceeded, time.Second},
		"under the lease's": {func(_ *testing.T, l *Lease) (context.Context, context.CancelFunc) {
			return context.WithCancel(l.Context())
		}, context.DeadlineExceeded, unlockTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "job", "abc")
				ctx, cancel := test.of(t, l)
				defer cancel()
				unlocked := async(func() (int, error) { return 0, l.Unlock(ctx) })
				tag := d.expectTagged("UNLOCK lease=abc")
				_, err := unlocked.wait()
				want(t, "unlock", err, test.want)
				d.at("the end of Unlock", test.wantAt)
				d.say(tag + " OK lock=job")
				synctest.Wait()
				nothingLeft(t, c)
			})
		})
	}
}

// An UNLOCK that waits for a connection is sent once. If the daemon then does not know the lease,
// the lease was lost: no earlier UNLOCK can have released it.
func TestUnlockOfAnUnknownLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.stop()
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		synctest.Wait()
		d.down.Store(false)
		d.greet()
		d.say(d.expectTagged("UNLOCK lease=abc") + " ERR NOTHELD lock=job")
		_, err := unlocked.wait()
		want(t, "unlock", err, ErrLost)
		want(t, "unlock", err, ErrNotHeld)
		nothingLeft(t, c)
	})
}

// A context that ended before Unlock was called bounds it, even if it is the context of another
// lease that was unlocked. Unlock ignores only the end that it causes itself.
func TestUnlockUnderTheContextOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		first, l := d.lock(c, "first", "abc"), d.lock(c, "job", "def")
		ctx := first.Context()
		unlocked := async(func() (int, error) { return 0, first.Unlock(t.Context()) })
		d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
		unlocked.must(t)
		again := async(func() (int, error) { return 0, l.Unlock(ctx) })
		tag := d.expectTagged("UNLOCK lease=def")
		_, err := again.wait()
		want(t, "unlock", err, context.Canceled)
		d.at("the end of Unlock", 0)
		d.say(tag + " OK")
		synctest.Wait()
		nothingLeft(t, c)
	})
}

func TestUnlockWithReleaseWait(t *testing.T) {
	for wait, request := range map[time.Duration]string{
		0:                     "UNLOCK wait=0 lease=abc",
		-time.Second:          "UNLOCK wait=0 lease=abc",
		20 * time.Millisecond: "UNLOCK wait=20 lease=abc",
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context(), WithReleaseWait(wait)) })
			d.say(d.expectTagged(request) + " OK lock=job pending=1")
			if _, err := unlocked.wait(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
			synctest.Wait()
			nothingLeft(t, c)
		})
	}
}
