package client

import (
	"testing"
	"testing/synctest"
	"time"
)

// A downgrade extends the lease and keeps its fencing token. The request has no ttl. NOQUORUM leaves
// the deadline as it is. If the lease has ended, Downgrade says so and sends nothing.
func TestDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc", WithHold(HoldTTL))
		fence := l.Fence()
		downgrade := func() future[int] {
			return async(func() (int, error) { return 0, l.Downgrade(t.Context()) })
		}
		time.Sleep(time.Second)
		shared := downgrade()
		d.say(grant(d.expectTagged("EXTEND mode=shared lease=abc")[1:], "job", "abc", time.Second, ttl))
		shared.must(t)
		if l.Validity() != ttl || l.Fence() != fence {
			t.Errorf("validity %v, fencing token %d; want %v, %d", l.Validity(), l.Fence(), ttl, fence)
		}
		refused := downgrade()
		d.say(d.expectTagged("EXTEND mode=shared lease=abc") + " ERR NOQUORUM granted=2 needed=3 : it is shared from now on")
		_, err := refused.wait()
		want(t, "too few nodes", err, ErrNoQuorum)
		if l.Validity() != ttl {
			t.Errorf("validity %v, want %v", l.Validity(), ttl)
		}
		<-l.Context().Done()
		want(t, "of an expired lease", l.Downgrade(t.Context()), ErrLost)
	})
}
