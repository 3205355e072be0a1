package client

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An answer that comes after the lease has ended changes nothing. The holder may still be stopping,
// so the client unlocks the lease exactly at the deadline that the holder knew.
func TestAnswerAfterSilence(t *testing.T) {
	for name, answer := range map[string]func(tag string, now time.Duration) string{
		"a later deadline": func(tag string, now time.Duration) string { return grant(tag, "job", "abc", now, ttl) },
		"an earlier one":   func(tag string, now time.Duration) string { return grant(tag, "job", "abc", now, time.Second) },
		"a refusal":        func(tag string, _ time.Duration) string { return "@" + tag + " ERR LIMIT" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "job", "abc")
				tag := d.expectTagged("CHECK lease=abc")
				<-l.Context().Done()
				d.at("the end of the lease", overAfter)
				d.say(answer(tag[1:], d.elapsed()))
				tag = d.expectTagged("UNLOCK lease=abc")
				d.at("UNLOCK", ttl)
				d.say(tag + " OK")
				synctest.Wait()
				if l.DeadlineBoottime() != bootAt+ttl || l.Validity() != 0 {
					t.Errorf("deadline %v, validity %v, want the earlier ones", l.DeadlineBoottime()-bootAt, l.Validity())
				}
				nothingLeft(t, c)
			})
		})
	}
}

// If the daemon reports a lease as lost, the client does not unlock it.
func TestLostAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.expectTagged("CHECK lease=abc")
		<-l.Context().Done()
		d.say("LOST lock=job lease=abc reason=quorum")
		time.Sleep(time.Minute)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.say(d.expectTagged("PING") + " OK") // no UNLOCK was sent before
		pinged.must(t)
	})
}

// TestCausesOfSilence checks the error of a lease that ended without LOST.
func TestCausesOfSilence(t *testing.T) {
	for _, test := range []struct {
		name string
		opt  Option
		stop bool
		want string
	}{
		{"the daemon hangs", WithHold(HoldConn), false, "not confirmed 2s before its deadline: redlockd hangs, or could not extend it"},
		{"there is none", WithHold(HoldConn), true, "not confirmed 2s before its deadline: there is no connection: " + errNobody.Error()},
		{"its time is over", WithMax(10 * time.Second), false, "its maximum holding time ends in less than the guard of 2s"},
		{"its time is over, and there is none", WithMax(10 * time.Second), true, "its maximum holding time ends in less than the guard of 2s"},
		{"the daemon hangs long before", WithMax(11 * time.Second), false, "not confirmed 2s before its deadline: redlockd hangs, or could not extend it"},
		{"its ttl is over", WithHold(HoldTTL), false, "its ttl ends in less than the guard of 2s, and Extend was not called"},
		{"its ttl is over, and there is none", WithHold(HoldTTL), true, "its ttl ends in less than the guard of 2s, and Extend was not called"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "job", "abc", test.opt)
				if test.stop {
					d.stop()
				}
				<-l.Context().Done()
				if got := endCause(l.Context()).Error(); !strings.HasSuffix(got, test.want) {
					t.Errorf("cause %q, want %q", got, test.want)
				}
			})
		})
	}
}

// If a query is answered OK after the lease has ended here, it returns an error. The lease is
// unlocked at the deadline.
func TestOKForAnEndedLease(t *testing.T) {
	for verb, ask := range questions {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "job", "abc", WithHold(HoldTTL))
				time.Sleep(overAfter - 100*time.Millisecond)
				asked := async(func() (int, error) { return 0, ask(t.Context(), l) })
				tag := d.expectTagged(verb + " lease=abc")
				<-l.Context().Done()
				d.at("the end of the lease", overAfter)
				d.say(grant(tag[1:], "job", "abc", d.elapsed(), ttl))
				_, err := asked.wait()
				want(t, verb, err, ErrLost)
				d.expectTagged("UNLOCK lease=abc")
				d.at("UNLOCK", ttl)
			})
		})
	}
}

// If the process was stopped and reads an OK too late, the query returns an error too.
func TestOKReadTooLate(t *testing.T) {
	for _, verb := range []string{"CHECK", "EXTEND"} { // not BEAT: its answer has no deadline
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "job", "abc", WithHold(HoldTTL))
				asked := async(func() (int, error) { return 0, questions[verb](t.Context(), l) })
				tag := d.expectTagged(verb + " lease=abc")
				d.slept.Store(int64(ttl))
				d.say(grant(tag[1:], "job", "abc", 0, ttl))
				_, err := asked.wait()
				want(t, verb, err, ErrLost)
				want(t, "cause", endCause(l.Context()), ErrLost)
			})
		})
	}
}

// A query that is answered after Unlock returns the error of an unlocked lease.
func TestOKAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		checked := async(func() (int, error) { return 0, l.Check(t.Context()) })
		tag := d.expectTagged("CHECK lease=abc")
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		unlock := d.expectTagged("UNLOCK lease=abc")
		d.say(grant(tag[1:], "job", "abc", 0, ttl), unlock+" OK")
		unlocked.must(t)
		_, err := checked.wait()
		want(t, "check", err, ErrNotHeld)
	})
}
