package client

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// once lists the requests that must not be executed twice: FORCE and ADMIT.
var once = []struct {
	line string
	ask  func(ctx context.Context, c *Client) (int, error)
}{
	{"FORCE job", func(ctx context.Context, c *Client) (int, error) {
		forced, err := c.Force(ctx, "job")
		return forced.Holders, err
	}},
	{"ADMIT all", func(ctx context.Context, c *Client) (int, error) {
		nodes, err := c.Admit(ctx, "all")
		return len(nodes), err
	}},
}

// eachOnce runs a test for each of these requests, while a lease is held.
func eachOnce(t *testing.T, test func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error))) {
	for _, o := range once {
		t.Run(o.line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				test(t, c, d, o.line, func() (int, error) { return o.ask(t.Context(), c) })
			})
		})
	}
}

// goesOn checks that the client still uses the first connection, and that every line was read.
func goesOn(t *testing.T, c *Client, d *scripted, l *Lease) {
	t.Helper()
	pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
	d.say(d.expectTagged("PING") + " OK")
	pinged.must(t)
	if endCause(l.Context()) != nil || l.state.isDetached() || c.Reconnects() != 0 {
		t.Errorf("the lease: %v, adrift %v, %d reconnects, want the connection to go on",
			endCause(l.Context()), l.state.isDetached(), c.Reconnects())
	}
}

// After a restart the daemon refuses the requests that it had not answered. The connection and its
// leases stay.
func TestSentOnceIsRefusedAfterBack(t *testing.T) {
	eachOnce(t, func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error)) {
		l := d.lock(c, "held", "abc")
		asked := async(ask)
		d.expect("@0 " + line)
		d.say("BACK", "@0 ERR UNKNOWN : its result is unknown")
		_, err := asked.wait()
		want(t, line, err, ErrUnknown)
		if err == nil || !strings.Contains(err.Error(), "its result is unknown") {
			t.Errorf("%s: %v, want the text of the daemon", line, err)
		}
		d.at("the refusal", 0)
		time.Sleep(byeTimeout + byeTimeout/2)
		goesOn(t, c, d, l)
	})
}

// If the daemon reads the request only after the restart, it answers it. The request was sent once.
func TestSentOnceIsReadAfterBack(t *testing.T) {
	eachOnce(t, func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error)) {
		l := d.lock(c, "held", "abc")
		asked := async(ask)
		d.expect("@0 " + line)
		d.say("BACK")
		time.Sleep(lostReplyTimeout / 2)
		d.say("@0 - node=a", "@0 OK n=1")
		if n := asked.must(t); n != 1 {
			t.Errorf("%s: %d, want 1", line, n)
		}
		goesOn(t, c, d, l)
	})
}

// If such a request has ended, a later request that reuses its tag is not probed.
func TestSentOnceEndsBeforeProbe(t *testing.T) {
	eachOnce(t, func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error)) {
		asked := async(ask)
		d.expect("@0 " + line)
		d.say("BACK", "@0 ERR UNKNOWN")
		_, err := asked.wait()
		want(t, line, err, ErrUnknown)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.expect("@0 LOCK job owner=1 id=t.1")
		time.Sleep(2 * lostReplyTimeout)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.expect("@1 PING") // otherwise that tag is in use
		d.say("@1 OK", grant("0", "job", "abc", d.elapsed(), ttl))
		pinged.must(t)
		locked.must(t)
	})
}

// If the restart lost the answer, the call ends with an error which says that the outcome is
// unknown. An answer that comes later is a stray.
func TestSentOnceIsNotAnsweredAfterBack(t *testing.T) {
	for _, sign := range []string{" OK", " ERR LIMIT", " ERR SHUTDOWN"} {
		eachOnce(t, func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error)) {
			asked := async(ask)
			d.expect("@0 " + line)
			d.say("BACK")
			time.Sleep(lostReplyTimeout / 2)
			d.say("BACK")
			d.expect("@1 PING")
			d.at("PING", lostReplyTimeout+lostReplyTimeout/2)
			synctest.Wait()
			if !asked.pending() {
				t.Error("it has ended before the daemon has shown that it lives")
			}
			d.say("@1" + sign)
			_, err := asked.wait()
			want(t, line, err, ErrUnknown)
			if err == nil || !strings.Contains(err.Error(), "its result is unknown") {
				t.Errorf("%s: %v, want that it is not known", line, err)
			}
			d.say("@0 - node=a", "@0 OK n=1")
			synctest.Wait()
			nothingLeft(t, c)
			if c.Reconnects() != 0 || c.Err() != nil {
				t.Errorf("%d reconnects, Err %v, want the connection to go on", c.Reconnects(), c.Err())
			}
		})
	}
}

// If the daemon was only slow, its answer counts. The answer to the probing PING is the stray.
func TestSentOnceIsAnsweredLateAfterBack(t *testing.T) {
	eachOnce(t, func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error)) {
		asked := async(ask)
		d.expect("@0 " + line)
		d.say("BACK", "@0 - node=a")
		d.expect("@1 PING")
		d.say("@0 OK n=1", "@1 OK")
		if n := asked.must(t); n != 1 {
			t.Errorf("%s: %d, want 1", line, n)
		}
		synctest.Wait()
		nothingLeft(t, c)
	})
}

// An abandoned call leaves nothing in the client, with or without an answer.
func TestSentOnceIsAbandoned(t *testing.T) {
	for _, o := range once {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			asked := async(func() (int, error) { return o.ask(ctx, c) })
			d.expect("@0 " + o.line)
			_, err := asked.wait()
			want(t, o.line, err, context.DeadlineExceeded)
			d.say("BACK")
			d.expect("@1 PING")
			d.say("@1 OK")
			synctest.Wait()
			nothingLeft(t, c)
		})
	}
}

// The end of the connection ends such a call. It is not resent on the next one.
func TestSentOnceWhenTheConnectionEnds(t *testing.T) {
	for said, wanted := range map[string]error{"": ErrUnavailable, "BYE resume=9000": ErrShutdown} {
		eachOnce(t, func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error)) {
			d.lock(c, "held", "abc")
			asked := async(ask)
			d.expect("@0 " + line)
			if said != "" {
				d.say(said)
			}
			d.hangUp()
			_, err := asked.wait()
			want(t, line, err, wanted)
			want(t, line, err, ErrUnknown)
			if err == nil || !strings.Contains(err.Error(), "its result is unknown") {
				t.Errorf("%s: %v, want that it is not known", line, err)
			}
			d.at("its end", 0)
			d.greet()
			d.say(grant(d.expectTagged("RESUME held owner=1 lease=abc")[1:], "held", "abc", d.elapsed(), ttl))
			pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
			d.say(d.expectTagged("PING") + " OK")
			pinged.must(t)
		})
	}
}

// Close ends such a call with ErrClosed.
func TestSentOnceWhileTheClientIsClosed(t *testing.T) {
	eachOnce(t, func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error)) {
		asked := async(ask)
		d.expect("@0 " + line)
		c.Close()
		_, err := asked.wait()
		want(t, line, err, ErrClosed)
	})
}

// If there is no connection, the request waits for one, like any other.
func TestSentOnceWaitsForConnection(t *testing.T) {
	eachOnce(t, func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error)) {
		d.stop()
		asked := async(ask)
		time.Sleep(time.Second)
		d.down.Store(false)
		d.greet()
		d.expect("@0 " + line)
		d.say("@0 - node=a", "@0 OK n=1")
		asked.must(t)
		d.stop()
		before := d.elapsed()
		_, err := ask()
		want(t, line, err, ErrUnavailable)
		d.at("its end", before+defaultPatience)
	})
}

// If the connection takes no more requests but has not ended, the request is not sent.
func TestSentOnceIsNotSent(t *testing.T) {
	eachOnce(t, func(t *testing.T, c *Client, d *scripted, line string, ask func() (int, error)) {
		c.failWrites(errNobody)
		asked := async(ask)
		synctest.Wait()
		d.hangUp()
		d.greet()
		d.expect("@0 " + line)
		d.say("@0 - node=a", "@0 OK n=1")
		asked.must(t)
	})
}
