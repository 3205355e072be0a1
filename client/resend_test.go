package client

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The longest wait that the protocol can express stays that long after a reconnect, and without a
// connection.
func TestLongestWaitAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		time.Sleep(time.Second) // now start plus wait exceeds the range of time.Duration
		const line = "@0 LOCK job wait=9223372036854 owner=1 id=t.1"
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithWait(math.MaxInt64)) })
		d.expect(line)
		d.outage(time.Hour)
		d.expect(line)
		d.say(grant("0", "job", "abc", d.elapsed(), ttl))
		locked.must(t)
	})
}

// Both tags of a resent request are free after an answer to one of them, and after the connection
// has ended.
func TestTagsOfResendsAreFree(t *testing.T) {
	for name, end := range map[string]func(d *scripted, first, second string){
		"refused with LIMIT": func(d *scripted, first, second string) {
			d.say(second+" ERR LIMIT", first+" OK")
		},
		"the connection is over": func(d *scripted, _, _ string) {
			d.hangUp()
			d.greet()
			d.say(d.expectTagged("PING") + " OK")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				for range 100 {
					pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
					first := d.expectTagged("PING")
					d.say("BACK")
					end(d, first, d.expectTagged("PING"))
					pinged.must(t)
					time.Sleep(maxPause) // no request is repeated
				}
				if n := len(c.core.flight.tags); n > 2 {
					t.Errorf("%d tags for one request at a time, want 2", n)
				}
			})
		})
	}
}

// A resend that was refused with LIMIT is sent again alone. The client resends nothing else that is
// under way, above all not FORCE.
func TestOnlyLimitedCallsAreResent(t *testing.T) {
	eachOnce(t, func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error)) {
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.expect("@0 PING")
		d.say("BACK")
		d.expect("@1 PING")
		asked := async(ask)
		tag := d.expectTagged(line)
		d.say("@1 ERR LIMIT")
		d.expect("@1 PING")
		d.at("the PING", resendPause)
		time.Sleep(resendPause)
		last := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.say(d.expectTagged("PING")+" OK", "@1 OK", tag+" ERR DENIED")
		last.must(t)
		pinged.must(t)
		_, err := asked.wait()
		want(t, line, err, ErrDenied)
	})
}

// If there is no connection when a refused resend is due, the next connection sends it.
func TestLimitedWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.expect("@0 PING")
		d.say("BACK")
		d.expect("@1 PING")
		d.say("@1 ERR LIMIT")
		d.outage(2 * resendPause)
		d.say(d.expectTagged("PING") + " OK")
		pinged.must(t)
	})
}

// The daemon accepts no wait= for TRY, so the client does not turn a context's deadline into one.
func TestTryUnderADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tried := async(func() (*Lease, error) { return c.TryLock(ctx, "job") })
		d.expect("@0 TRY job owner=1 id=t.1")
		time.Sleep(time.Second - replyMargin/2)
		d.say("@0 ERR HELD")
		_, err := tried.wait()
		want(t, "try", err, ErrHeld)
		if strings.Contains(err.Error(), "deadline") {
			t.Errorf("error %q mentions the deadline, but TRY does not wait", err)
		}
	})
}

// A LOCK whose wait has passed is resent with wait=0.
func TestExpiredWaitAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithWait(time.Second)) })
		d.expect("@0 LOCK job wait=1000 owner=1 id=t.1")
		d.outage(defaultPatience / 2)
		d.expect("@0 LOCK job wait=0 owner=1 id=t.1")
		d.say("@0 ERR HELD")
		_, err := locked.wait()
		want(t, "lock", err, ErrHeld)
	})
}

// A call that was sent again after LIMIT is not sent again when another call gets LIMIT.
func TestLimitedCallIsResentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		first := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.expect("@0 PING")
		second := async(func() ([]Holder, error) { return c.Who(t.Context(), "job") })
		d.expect("@1 WHO job")
		d.say("BACK")
		d.expect("@2 PING")
		d.expect("@3 WHO job")
		d.say("@2 ERR LIMIT")
		d.expect("@2 PING")
		d.say("@3 ERR LIMIT")
		d.expect("@3 WHO job")
		d.say("@3 OK n=0", "@2 OK")
		first.must(t)
		second.must(t)
	})
}
