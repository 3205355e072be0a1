package client

import (
	"context"
	"testing"
	"testing/synctest"
)

// If the lock is not granted, Do does not call fn.
func TestDoWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ran := false
		done := async(func() (int, error) {
			return 0, c.Do(t.Context(), "job", func(context.Context, *Lease) error {
				ran = true
				return nil
			}, WithWait(0))
		})
		d.say(d.expectTagged("LOCK job wait=0 owner=1 id=t.1") + " ERR HELD lock=job ttl=5000")
		_, err := done.wait()
		want(t, "do", err, ErrHeld)
		if ran {
			t.Error("it ran all the same")
		}
		nothingLeft(t, c)
	})
}

// If a goroutine found the lease before Do called fn, the context that it got ends together with
// fn's.
func TestDoWithAFoundLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc", WithHold(HoldPID))
		found := l.Context()
		within := l.useContext(t.Context())
		d.say("LOST lock=job lease=abc reason=forced")
		synctest.Wait()
		want(t, "cause", endCause(within), ErrLost)
		want(t, "cause of the found lease's context", endCause(found), ErrLost)
	})
}
