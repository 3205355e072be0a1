package client

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// After a connection that lasted for a while, the client reconnects at once, no matter how many
// short ones came before it.
func TestReconnectPauseIsReset(t *testing.T) {
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
				t.Errorf("reconnected after %v, want at once", took)
			}
		}
		d.say("@0 ERR HELD")
		_, err := locked.wait()
		want(t, "lock", err, ErrHeld)
	})
}

// Without a daemon, a call fails after WithWait, but not before the Client's patience has passed since
// the connection ended. The wait is exact, however long an attempt to connect takes.
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
				t.Errorf("wait=%v, %v after the end of the connection: failed after %v, want %v", test.wait, d.elapsed()-got-start, got, test.want)
			}
		}
	})
}

// Each of several waiters fails when its own wait has passed.
func TestWaitsWithoutADaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		d.stop()
		waits := []time.Duration{40 * time.Second, 20 * time.Second, 30 * time.Second}
		var took [3]future[time.Duration]
		for i, wait := range waits {
			took[i] = async(func() (time.Duration, error) {
				before := d.elapsed()
				_, err := c.Lock(t.Context(), "job", WithWait(wait))
				return d.elapsed() - before, err
			})
			synctest.Wait() // so that they queue in this order
		}
		for i, wait := range waits {
			got, err := took[i].wait()
			want(t, "lock", err, ErrUnavailable)
			if got != wait {
				t.Errorf("wait=%v: failed after %v", wait, got)
			}
		}
	})
}

// A daemon that accepts connections but does not answer HELLO counts as no daemon: calls fail after
// the Client's patience.
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
		want(t, "another one", c.Ping(t.Context()), context.DeadlineExceeded) // the outcome of the attempt to connect
		want(t, "Err", c.Err(), ErrUnavailable)
	})
}

// When garbage ends the connection, leases with HoldPID or HoldTTL go on.
func TestGarbageEndsOnlyLeasesOfTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l, kept := d.lock(c, "job", "abc"), d.lock(c, "kept", "def", WithHold(HoldPID))
		d.say("ssh")
		synctest.Wait()
		want(t, "cause", endCause(l.Context()), ErrLost)
		if err := endCause(kept.Context()); err != nil || kept.Validity() != ttl {
			t.Errorf("the other: validity %v (%v), want 10s", kept.Validity(), err)
		}
	})
}

// closing is a connection that reports its Close.
type closing struct {
	net.Conn
	closed func()
}

func (c closing) Close() error {
	c.closed()
	return c.Conn.Close()
}

// If the client ends the connection, the daemon releases the leases when it sees that. The leases
// end before.
func TestLeasesEndBeforeTheConnection(t *testing.T) {
	for what, end := range map[string]func(*Client, *scripted){
		"garbage":            func(_ *Client, d *scripted) { d.say("ssh") },
		"a write that fails": func(c *Client, _ *scripted) { c.failWrites(syscall.ENOBUFS) },
		"a read that fails":  func(c *Client, _ *scripted) { c.current().conn.SetReadDeadline(time.Now()) },
		"garbage after BYE":  func(_ *Client, d *scripted) { d.say("BYE resume=10", "ssh") },
		"Close":              func(c *Client, _ *scripted) { c.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := newScripted(t)
			var l *Lease
			c.dial = func(ctx context.Context) (net.Conn, error) {
				conn, err := d.dial(ctx)
				return closing{conn, func() {
					if l != nil && endCause(l.Context()) == nil {
						t.Errorf("%s: the lease is held when the daemon sees the end", what)
					}
				}}, err
			}
			opened := async(func() (int, error) { return 0, c.open(t.Context()) })
			d.greet()
			opened.must(t)
			l = d.lock(c, "job", "abc")
			end(c, d)
			<-l.Context().Done()
			synctest.Wait()
			c.Close()
		})
	}
}

// If Inherit is called without a connection, it applies to the next one.
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
		want(t, "Err", c.Err(), errNoSocket) // a pipe is not a socket
		cancel()
		_, err := pinged.wait()
		want(t, "ping", err, context.Canceled)
	})
}

// Close does not wait for the pause between two attempts to connect.
func TestCloseBetweenTwoAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		d.lock(c, "job", "abc") // so that there is a lease to resume
		d.stop()
		time.Sleep(5 * time.Second)
		tries, before := d.tries.Load(), d.elapsed()
		c.Close()
		d.at("the end of Close", before)
		if n := d.tries.Load(); n != tries {
			t.Errorf("%d attempts after Close", n-tries)
		}
	})
}

// Patience runs only while there is no connection. A call that waits for a RESUME on the next
// connection does not fail when patience ends.
func TestPatienceEndsAfterReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.stop()
		checked := async(func() (int, error) { return 0, l.Check(t.Context()) })
		time.Sleep(defaultPatience / 2)
		d.down.Store(false)
		d.greet()
		for d.elapsed() <= defaultPatience {
			d.say(d.expectTagged("RESUME job owner=1 lease=abc") + " ERR NOQUORUM")
		}
		d.say(grant(d.expectTagged("RESUME job owner=1 lease=abc")[1:], "job", "abc", d.elapsed(), ttl))
		d.say(grant(d.expectTagged("CHECK lease=abc")[1:], "job", "abc", d.elapsed(), ttl))
		checked.must(t)
	})
}

// After patience has passed, a new call waits for one attempt to connect, which starts after it was
// called. Other calls do not change that.
func TestOneAttemptIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t, WithPatience(time.Second))
		d.stop()
		time.Sleep(2 * time.Second)
		d.down.Store(false)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		time.Sleep(attemptTimeout / 2)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithWait(time.Minute)) })
		synctest.Wait()
		d.greet()
		tags := map[string]string{}
		for range 2 {
			tag, rest := d.tagged()
			tags[rest] = "@" + tag
		}
		d.say(tags["PING"]+" OK", tags["LOCK job wait=60000 owner=1 id=t.1"]+" ERR HELD")
		pinged.must(t)
		_, err := locked.wait()
		want(t, "lock", err, ErrHeld)
	})
}

// A call that waits for this attempt does not fail together with calls whose own time ends earlier.
func TestOneAttemptOutlastsTheWaitOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t, WithPatience(time.Second))
		d.hangUp()
		time.Sleep(time.Minute)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithWait(2*time.Second)) })
		d.accept()
		d.expect("@0 HELLO 1")
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		_, err := locked.wait()
		want(t, "lock", err, ErrUnavailable)
		d.at("the end of the wait", time.Minute+2*time.Second)
		d.say("@0 OK version=1")
		d.say(d.expectTagged("PING") + " OK")
		pinged.must(t)
	})
}

// If a connection is being made while the Client is closed, Close waits and ends it.
func TestClosedWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := newScripted(t)
		made := async(func() (*link, error) { return c.newLink(t.Context()) })
		d.greet()
		l := made.must(t)
		c.Close()
		want(t, "using it", c.useLink(l), context.Canceled)
		if _, err := d.in.ReadByte(); err != io.EOF {
			t.Errorf("the client sent more (%v), want the end", err)
		}
	})
}
