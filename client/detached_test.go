package client

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// If there are more leases than permits for RESUME, all are resumed as permits become free.
func TestAllLeasesAreResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 2*256 + 1
		c, d := dialScripted(t)
		for i := range leases {
			d.lock(c, "job", "abc"+ms(time.Duration(i)*time.Millisecond))
		}
		d.hangUp()
		d.greet()
		for range leases {
			tag, line := d.tagged()
			_, lease, found := strings.Cut(line, " lease=")
			if !found || !strings.HasPrefix(line, "RESUME job ") {
				t.Fatalf("the daemon read %q, want RESUME", line)
			}
			d.say(grant(tag, "job", lease, d.elapsed(), ttl))
		}
		synctest.Wait()
		if n := c.Resumed(); n != leases {
			t.Errorf("%d leases are resumed, want %d", n, leases)
		}
	})
}

// A lease with HoldTTL needs no connection. The client does not reconnect or resume for it, and
// queries about it do not wait.
func TestHoldTTLIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "kept", "abc", WithHold(HoldTTL))
		d.hangUp()
		time.Sleep(time.Second)
		if len(d.dials) > 0 {
			t.Error("a connection was made for nothing")
		}
		extended := async(func() (int, error) { return 0, l.Extend(t.Context(), 0) })
		d.greet()
		tag := d.expectTagged("EXTEND lease=abc")
		d.say(grant(tag[1:], "kept", "abc", d.elapsed(), ttl))
		extended.must(t)
		if l.Validity() != ttl || c.Resumed() != 0 {
			t.Errorf("validity %v, %d resumed, want 10s and none", l.Validity(), c.Resumed())
		}
	})
}

// Queries about a lease of a process do not wait for its RESUME.
func TestQueriesAboutProcessDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "kept", "abc", WithHold(HoldPID))
		d.hangUp()
		d.greet()
		d.expectTagged("RESUME kept lease=abc")
		extended := async(func() (int, error) { return 0, l.Extend(t.Context(), 0) })
		d.say(grant(d.expectTagged("EXTEND lease=abc")[1:], "kept", "abc", d.elapsed(), ttl))
		extended.must(t)
	})
}

// Queries about a lease wait until it is resumed. A daemon asked earlier would not know the lease,
// and its answer would end it.
func TestQueriesWaitForTheirOwnLease(t *testing.T) {
	for verb, ask := range questions {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			leases := map[string]*Lease{"abc": d.lock(c, "one", "abc"), "def": d.lock(c, "two", "def")}
			d.stop()
			asked := map[string]future[int]{}
			for id, l := range leases {
				asked[id] = async(func() (int, error) { return 0, ask(t.Context(), l) })
			}
			synctest.Wait()
			d.down.Store(false)
			d.greet()
			var tags, ids [2]string
			for i := range tags {
				tag, line := d.tagged()
				tags[i], ids[i] = tag, line[strings.LastIndexByte(line, '=')+1:]
				if !strings.HasPrefix(line, "RESUME ") {
					t.Errorf("the daemon read %q, want RESUME", line)
				}
			}
			for i, id := range ids {
				pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
				d.say(d.expectTagged("PING") + " OK") // no query about a lease was sent before
				pinged.must(t)
				d.say(grant(tags[i], "x", id, d.elapsed(), ttl))
				tag := d.expectTagged(verb + " lease=" + id)
				d.say(grant(tag[1:], "x", id, d.elapsed(), ttl))
				asked[id].must(t)
			}
		})
	}
}

// A RESUME that has to be repeated while there is no connection is sent on the next one.
func TestResumeIsRetriedOnTheNextConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.hangUp()
		d.greet()
		d.say(d.expectTagged("RESUME job owner=1 lease=abc") + " ERR NOQUORUM granted=1 needed=3")
		d.outage(2 * retryResume)
		tag := d.expectTagged("RESUME job owner=1 lease=abc")
		d.say(grant(tag[1:], "job", "abc", d.elapsed(), ttl))
		synctest.Wait()
		if l.Validity() < ttl-time.Millisecond {
			t.Errorf("validity %v, want 10s", l.Validity())
		}
	})
}

// If the CHECK of a process's lease failed during an outage, the client sends another one after it
// reconnects. Without a quorum no other answer says that the lease was extended.
func TestCheckAfterReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = time.Minute // its CHECK is due after 24 s, its end after 48 s
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithHold(HoldPID), WithTTL(long)) })
		d.say(grant(d.expectTagged("LOCK job ttl=60000 hold=pid id=t.1")[1:], "job", "abc", 0, long))
		l := locked.must(t)
		time.Sleep(23 * time.Second)
		d.outage(17 * time.Second)
		d.say(d.expectTagged("RESUME job lease=abc") + " ERR NOQUORUM granted=1 needed=3")
		tag := d.expectTagged("CHECK lease=abc")
		d.say(grant(tag[1:], "job", "abc", d.elapsed(), long))
		synctest.Wait()
		if endCause(l.Context()) != nil || l.Validity() <= long-time.Millisecond {
			t.Errorf("validity %v (%v), want 1m", l.Validity(), endCause(l.Context()))
		}
	})
}

// A lease of a process may be revoked (FORCE), and another client may hold the lock at once. So the
// client sends RESUME on the next connection, and the daemon reports the loss there.
func TestLossForAProcessIsReportedOnTheNextConnection(t *testing.T) {
	for name, answer := range map[string]string{
		"resumed":    "",
		"no quorum":  " ERR NOQUORUM granted=1 needed=3", // the daemon reports a later loss nevertheless
		"an old one": " ERR VERB : RESUME is not in this version",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "kept", "abc", WithHold(HoldPID))
				d.hangUp()
				d.greet()
				tag := d.expectTagged("RESUME kept lease=abc")
				if answer == "" {
					d.say(grant(tag[1:], "kept", "abc", 0, ttl))
				} else {
					d.say(tag + answer)
				}
				time.Sleep(time.Second)
				want(t, "cause", endCause(l.Context()), nil)
				d.say("LOST lock=kept lease=abc reason=forced")
				<-l.Context().Done()
				d.at("the end of the lease", time.Second)
				want(t, "cause", endCause(l.Context()), ErrLost)
				synctest.Wait()
				nothingLeft(t, c)
			})
		})
	}
}

// A RESUME for a process is answered LOST or LIMIT.
func TestResumeForAProcessIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l, limited := d.lock(c, "lost", "abc", WithHold(HoldPID)), d.lock(c, "limited", "def", WithHold(HoldPID))
		d.hangUp()
		d.greet()
		for range 2 {
			switch tag, line := d.tagged(); line {
			case "RESUME lost lease=abc":
				d.say("@" + tag + " ERR LOST lock=lost reason=forced")
			case "RESUME limited lease=def":
				d.say("@" + tag + " ERR LIMIT")
			default:
				t.Errorf("the daemon read %q, want RESUME", line)
			}
		}
		<-l.Context().Done()
		d.at("the end of the lease", 0)
		want(t, "cause", endCause(l.Context()), ErrLost)
		tag := d.expectTagged("RESUME limited lease=def")
		d.at("the next RESUME", retryResume)
		d.say(grant(tag[1:], "limited", "def", d.elapsed(), ttl))
		synctest.Wait()
		if limited.Validity() != ttl || c.Resumed() != 1 {
			t.Errorf("validity %v, %d resumed, want 10s and one", limited.Validity(), c.Resumed())
		}
	})
}

// The client does not resume a lease that another connection took: the daemon reports its loss
// there.
func TestFoundLeaseIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		found := async(func() (*Lease, error) { return c.LeaseOf(t.Context(), 7, "job") })
		d.say(grant(d.expectTagged("CHECK job pid=7")[1:], "job", "abc", 0, ttl))
		found.must(t)
		d.hangUp()
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.greet()
		d.say(d.expectTagged("PING") + " OK")
		pinged.must(t)
	})
}
