package client

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// After BACK an answer may be lost. The client resends the calls in flight.
func TestBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		held := d.lock(c, "held", "ghi")
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithWait(time.Minute)) })
		d.expect("@0 LOCK job wait=60000 owner=2 id=t.2")
		asked := async(func() ([]Holder, error) { return c.Who(t.Context(), "job") })
		d.expect("@1 WHO job")
		time.Sleep(time.Second)
		d.say("@1 - lock=job host=a", "BACK")
		d.expect("@2 LOCK job wait=59000 owner=2 id=t.2")
		d.expect("@3 WHO job")
		d.say("@3 - lock=job host=b", "@3 OK n=1", grant("2", "job", "abc", 0, ttl))
		l := locked.must(t)
		if holders := asked.must(t); len(holders) != 1 || holders[0].Host != "b" {
			t.Errorf("Who after BACK: %+v, want the lines of one answer", holders)
		}
		if c.Restarts() != 1 {
			t.Errorf("%d restarts of the daemon, want 1", c.Restarts())
		}
		if endCause(held.Context()) != nil || c.Reconnects() != 0 {
			t.Errorf("the lease ended (%v), or there was another connection", endCause(held.Context()))
		}
		d.say("@1 - lock=job host=c", "@1 OK n=1", grant("0", "job", "abc", 0, ttl)+" again=yes")
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		tag, _ := d.tagged() // no UNLOCK was sent before it
		d.say("@" + tag + " OK")
		unlocked.must(t)
	})
}

// After BACK, the answer to the first request is a stray. No caller knows the lease that it grants,
// so the client unlocks it.
func TestStrayGrantIsUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.expect("@0 LOCK job owner=1 id=t.1")
		d.say("BACK")
		d.expect("@1 LOCK job owner=1 id=t.1")
		d.say("@1 ERR HELD")
		_, err := locked.wait()
		want(t, "lock", err, ErrHeld)
		d.expect("CANCEL 0")
		d.say(grant("0", "job", "abc", 0, ttl), "OK")
		d.say(d.expectTagged("UNLOCK lease=abc") + " ERR LIMIT")
		d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
		d.at("the second UNLOCK", retryUnlock)
		synctest.Wait()
		nothingLeft(t, c)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.say(d.expectTagged("PING") + " OK")
		pinged.must(t)
	})
}

// The client does not unlock a stray that grants nothing: its lease may belong to another client.
func TestOtherStraysAreNotUnlocked(t *testing.T) {
	for name, test := range map[string]struct {
		ask   func(ctx context.Context, c *Client) (*Lease, error)
		line  string
		stray string
	}{
		"a lease that was found": {func(ctx context.Context, c *Client) (*Lease, error) {
			return c.LeaseByID(ctx, "xyz", "job")
		}, "CHECK job lease=xyz", grant("0", "job", "xyz", 0, ttl)},
		"a refusal": {func(ctx context.Context, c *Client) (*Lease, error) {
			return c.Lock(ctx, "job")
		}, "LOCK job owner=1 id=t.1", "@0 ERR LOST lock=job lease=xyz"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				asked := async(func() (*Lease, error) { return test.ask(t.Context(), c) })
				d.expect("@0 " + test.line)
				d.say("BACK")
				d.expect("@1 " + test.line)
				d.say("@1 ERR INTERNAL")
				_, err := asked.wait()
				want(t, name, err, ErrInternal)
				if strings.HasPrefix(test.line, "LOCK") {
					d.expect("CANCEL 0")
				}
				d.say(test.stray)
				synctest.Wait()
				pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
				d.say(d.expectTagged("PING") + " OK") // no UNLOCK before
				pinged.must(t)
			})
		})
	}
}

// A second answer to a stray is an answer without a request, and ends the connection.
func TestStrayIsAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.expect("@0 PING")
		d.say("BACK")
		d.expect("@1 PING")
		d.say("@1 OK", "@0 OK", "@0 OK")
		pinged.must(t)
		synctest.Wait()
		want(t, "Err", c.Err(), errNoCall)
	})
}

// A daemon that restarts before it has answered HELLO may never answer, even if it keeps the
// connection. The client makes another connection.
func TestBackBeforeHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := newScripted(t)
		opened := async(func() (int, error) { return 0, c.open(t.Context()) })
		for range 3 {
			d.accept()
			d.expect("@0 HELLO 1")
			d.say("BACK")
			if _, err := d.in.ReadByte(); err != io.EOF {
				t.Errorf("the client sent more (%v), want the end", err)
			}
		}
		d.greet()
		opened.must(t)
		d.conn.Close()
		c.Close()
	})
}

// A LOCK that is abandoned before or after BACK is cancelled under both tags. A grant is unlocked.
func TestCancelAndBack(t *testing.T) {
	for _, first := range []string{"BACK", "CANCEL"} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			ctx, cancel := context.WithCancel(t.Context())
			locked := async(func() (*Lease, error) { return c.Lock(ctx, "job", WithWait(time.Minute)) })
			d.expect("@0 LOCK job wait=60000 owner=1 id=t.1")
			if first == "BACK" {
				d.say("BACK")
				d.expect("@1 LOCK job wait=60000 owner=1 id=t.1")
				synctest.Wait() // otherwise the goroutine that resends it may also abandon it
				cancel()
			} else {
				cancel()
				d.expect("CANCEL 0") // the restart loses this CANCEL
				d.say("BACK")
				d.expect("@1 LOCK job wait=0 owner=1 id=t.1")
			}
			d.expect("CANCEL 0")
			d.expect("CANCEL 1")
			_, err := locked.wait()
			want(t, "lock", err, context.Canceled)
			d.say("OK", "OK", grant("1", "job", "abc", 0, ttl))
			tag := d.expectTagged("UNLOCK lease=abc")
			d.say(tag+" OK", "@0 ERR CANCELLED")
			synctest.Wait()
			nothingLeft(t, c)
		})
	}
}

// The daemon restarts several times, then the connection is lost.
func TestSeveralRestartsKeepTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.expect("@0 LOCK job owner=1 id=t.1")
		for _, tag := range []string{"1", "2", "3"} {
			d.say("BACK")
			d.expect("@" + tag + " LOCK job owner=1 id=t.1")
		}
		d.hangUp()
		d.greet()
		d.expect("@0 LOCK job owner=1 id=t.1")
		d.say("BACK")
		tag := d.expectTagged("LOCK job owner=1 id=t.1")
		if tag == "@4" {
			t.Error("the tags of the connection before are not used again")
		}
		d.say(grant(tag[1:], "job", "abc", 0, ttl))
		locked.must(t)
		d.say("@0 ERR NOQUORUM")
		for range 2 {
			pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
			d.say(d.expectTagged("PING") + " OK")
			pinged.must(t)
		}
	})
}

// A daemon with a rate limit refuses some of the requests that are resent together.
func TestResendIsRefusedWithLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.expect("@0 LOCK job owner=1 id=t.1")
		d.say("BACK")
		d.expect("@1 LOCK job owner=1 id=t.1")
		d.say("@1 ERR LIMIT : 10 requests a second")
		d.expect("@1 LOCK job owner=1 id=t.1")
		d.at("the second", resendPause)
		d.say("@1 ERR LIMIT", grant("0", "job", "abc", d.elapsed(), ttl)) // the first answer was under way
		locked.must(t)
		asked := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		tag := d.expectTagged("PING")
		d.say(tag + " ERR LIMIT") // a request that was not resent fails
		_, err := asked.wait()
		want(t, "ping", err, ErrLimit)
	})
}

// The client stops resending a request after maxLimits refusals.
func TestResendIsRefusedTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.expect("@0 LOCK job owner=1 id=t.1")
		d.hangUp()
		d.greet()
		for range maxLimits + 1 {
			d.expect("@0 LOCK job owner=1 id=t.1")
			d.say("@0 ERR LIMIT")
		}
		_, err := locked.wait()
		want(t, "lock", err, ErrLimit)
		d.at("the end", maxLimits*resendPause)
	})
}

// The first answer may be under way when a resend that was refused with LIMIT is sent again. It is
// counted once.
func TestAnswerWhileResendIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		asked := async(func() ([]Holder, error) { return c.Who(t.Context(), "job") })
		d.expect("@0 WHO job")
		d.say("BACK")
		d.expect("@1 WHO job")
		d.say("@1 ERR LIMIT", "@0 - lock=job host=a")
		d.expect("@1 WHO job")
		d.at("the repeat", resendPause)
		d.say("@0 - lock=job host=b", "@0 OK n=2")
		if holders := asked.must(t); len(holders) != 2 {
			t.Errorf("Who: %+v, want both", holders)
		}
	})
}

// A request was resent more than once. LIMIT frees only the tag that it refuses. The client ignores
// later answers to that tag, and never gives one tag to two requests.
func TestTagsAfterLimitedResend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.expect("@0 PING")
		for _, tag := range []string{"1", "2"} {
			d.say("BACK")
			d.expect("@" + tag + " PING")
		}
		d.say("@2 ERR LIMIT", "@0 OK", "@1 OK")
		pinged.must(t)
		synctest.Wait()
		if c.Err() != nil {
			t.Fatalf("the connection has ended: %v", c.Err())
		}
		d.hangUp()
		var pings []future[int]
		for range 4 {
			pings = append(pings, async(func() (int, error) { return 0, c.Ping(t.Context()) }))
		}
		d.greet()
		tags := map[string]bool{}
		for range pings {
			tag, _ := d.tagged()
			if tags[tag] {
				t.Errorf("tag %s is in flight twice", tag)
			}
			tags[tag] = true
		}
		for tag := range tags {
			d.say("@" + tag + " OK")
		}
		for _, ping := range pings {
			ping.must(t)
		}
	})
}

// The nodes may not be ready right after a restart, so a resend may be granted although the first
// request was refused. If that grant outlasts the connection, Close waits for the answer, and the
// client unlocks the grant as soon as there is a daemon.
func TestStrayGrantThatOutlastsConnection(t *testing.T) {
	refused := func(t *testing.T) (*Client, *scripted) {
		c, d := dialScripted(t)
		tried := async(func() (*Lease, error) { return c.TryLock(t.Context(), "job", WithHold(HoldPID), WithPID(7)) })
		d.expect("@0 TRY job hold=pid pid=7 id=t.1")
		d.say("BACK")
		d.expect("@1 TRY job hold=pid pid=7 id=t.1")
		d.say("@0 ERR NOQUORUM granted=0 needed=2")
		_, err := tried.wait()
		want(t, "try", err, ErrNoQuorum)
		d.expect("CANCEL 1")
		return c, d
	}
	t.Run("Close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, d := refused(t)
			closed := async(func() (int, error) { return 0, c.Close() })
			synctest.Wait()
			d.say(grant("1", "job", "abc", 0, ttl), "OK")
			d.answerUnlock(c)
			closed.must(t)
			d.at("the end", 0)
		})
	})
	t.Run("Close, and it is not granted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, d := refused(t)
			closed := async(func() (int, error) { return 0, c.Close() })
			synctest.Wait()
			d.say("@1 ERR CANCELLED", "OK")
			closed.must(t)
			d.at("the end", 0)
		})
	})
	t.Run("no daemon", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, d := refused(t)
			d.say(grant("1", "job", "abc", 0, ttl), "OK")
			d.expectTagged("UNLOCK lease=abc")
			d.outage(time.Hour)
			d.answerUnlock(c)
		})
	})
}

// A LOCK for a process that failed with ErrUnavailable may have been granted. The next connection
// resends it, and the client unlocks the grant before Close ends.
func TestCloseUnlocksDoubtfulGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) {
			return c.Lock(t.Context(), "job", WithHold(HoldPID), WithTTL(ttl), WithWait(time.Second))
		})
		d.line()
		d.stop()
		time.Sleep(defaultPatience + time.Second)
		if _, err := locked.wait(); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("LOCK without an answer: got %v, want ErrUnavailable", err)
		}
		d.down.Store(false)
		go c.Ping(t.Context())
		d.greet()
		asked := ""
		for range 3 { // LOCK, CANCEL and PING
			switch tag, rest, _ := strings.Cut(d.line(), " "); {
			case strings.HasPrefix(rest, "LOCK"):
				asked = tag[1:]
			case rest == "PING\n":
				d.say(tag + " OK")
			}
		}
		go c.Close()
		synctest.Wait()
		d.conn.SetDeadline(time.Now().Add(time.Minute))
		d.say(grant(asked, "job", "abc", d.elapsed(), ttl))
		tag, rest, _ := strings.Cut(d.line(), " ")
		if rest != "UNLOCK lease=abc\n" {
			t.Fatalf("the daemon read %q, want UNLOCK", rest)
		}
		d.say(tag + " OK")
	})
}
