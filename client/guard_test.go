package client

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestGuardOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc", WithGuard(9*time.Second))
		d.expectTagged("CHECK lease=abc")
		d.at("CHECK", 500*time.Millisecond)
		<-l.Context().Done()
		d.at("the end of the lease", time.Second)
	})
}

// WithMax, or the daemon's config, may bound the holding time below the requested ttl. The guard is
// then a fifth of the granted time.
func TestGuardWithinMax(t *testing.T) {
	for name, opts := range map[string][]Option{"WithMax": {WithMax(time.Second)}, "max_hold": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", append(opts, WithTTL(ttl))...) })
				tag, _, _ := strings.Cut(d.line(), " ")
				d.say(grant(tag[1:], "job", "abc", 0, time.Second))
				l := locked.must(t)
				d.expectTagged("CHECK lease=abc")
				d.at("CHECK", 400*time.Millisecond)
				<-l.Context().Done()
				d.at("the end of the lease", 800*time.Millisecond)
			})
		})
	}
}

// After the ttl is changed, the guard follows the new ttl and the time granted with it.
func TestGuardOfAnotherTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		for _, c := range []struct{ ttl, granted, guard time.Duration }{
			{time.Minute, time.Minute, 12 * time.Second},
			{20 * time.Second, time.Minute, 4 * time.Second},
			{time.Minute, 5 * time.Second, time.Second},
		} {
			extended := async(func() (bool, error) { return true, l.Extend(t.Context(), c.ttl) })
			tag, _ := d.tagged()
			d.say(grant(tag, "job", "abc", d.elapsed(), c.granted))
			extended.must(t)
			l.c.mu.Lock()
			if l.guard != c.guard {
				t.Errorf("a ttl of %v, granted %v: a guard of %v, want %v", c.ttl, c.granted, l.guard, c.guard)
			}
			l.c.mu.Unlock()
		}
	})
}

// Another program may change the ttl. Then the client uses the daemon's guard, but at most a fifth
// of the lease's remaining time.
func TestGuardReportedByTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		for _, c := range []struct{ told, stands, guard time.Duration }{
			{600 * time.Millisecond, 3 * time.Second, 600 * time.Millisecond},
			{4 * time.Second, 20 * time.Second, 4 * time.Second},
			{time.Minute, 30 * time.Second, 6 * time.Second},
		} {
			checked := async(func() (bool, error) { return true, l.Check(t.Context()) })
			tag, _ := d.tagged()
			d.say(fmt.Sprint(grant(tag, "job", "abc", d.elapsed(), c.stands), " guard=", c.told.Milliseconds()))
			checked.must(t)
			if got := l.Guard(); got != c.guard {
				t.Errorf("guard=%v for a validity of %v: the guard is %v, want %v", c.told, c.stands, got, c.guard)
			}
			beaten := async(func() (bool, error) { return true, l.Beat(t.Context()) })
			d.say(d.expectTagged("BEAT lease=abc") + " OK lock=job") // BEAT is answered without guard=
			beaten.must(t)
			if got := l.Guard(); got != c.guard {
				t.Errorf("a guard of %v after BEAT, want %v", got, c.guard)
			}
		}
	})
}
