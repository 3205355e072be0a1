package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// A ttl of 10 s has a guard of 2 s. Unless its deadline moves, the lease ends after 8 s. The client
// sends CHECK after 4 s.
const (
	checkAfter = 4 * time.Second
	overAfter  = 8 * time.Second
	ttl        = 10 * time.Second
)

func TestHungDaemonThatReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.expectTagged("CHECK lease=abc")
		d.at("CHECK", checkAfter)
		<-l.Context().Done()
		d.at("the end of the lease", overAfter)
		want(t, "cause", endCause(l.Context()), ErrLost)
		if l.Validity() != 0 {
			t.Errorf("validity %v after the loss, want 0", l.Validity())
		}
		d.expectTagged("UNLOCK lease=abc")
		d.at("UNLOCK of the lost lease", ttl)
		want(t, "unlock", l.Unlock(t.Context()), ErrLost)
		want(t, "check", l.Check(t.Context()), ErrLost)
	})
}

func TestHungDaemonThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		<-l.Context().Done()
		d.at("the end of the lease", overAfter)
		want(t, "cause", endCause(l.Context()), ErrLost)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, "ping", c.Ping(ctx), context.DeadlineExceeded)
		d.at("the end of the ping", overAfter+time.Second)
	})
}

// If a lease was lost because the daemon was silent, its holder may still call Unlock. UNLOCK is
// sent at once.
func TestUnlockAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.expectTagged("CHECK lease=abc")
		<-l.Context().Done()
		want(t, "unlock", l.Unlock(t.Context()), ErrLost)
		tag := d.expectTagged("UNLOCK lease=abc")
		d.at("UNLOCK", overAfter)
		d.say(tag + " OK")
		time.Sleep(time.Minute)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.say(d.expectTagged("PING") + " OK") // no other UNLOCK was sent before
		pinged.must(t)
	})
}

func TestDeadlineMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		tag := d.expectTagged("CHECK lease=abc")
		d.at("first CHECK", checkAfter)
		d.say(grant(tag[1:], "job", "abc", checkAfter, 8*time.Second)) // ends at 12 s, less the guard of 2 s
		tag = d.expectTagged("CHECK lease=abc")
		d.at("second CHECK", 7*time.Second)
		if got := l.Validity(); got != 5*time.Second {
			t.Errorf("validity %v, want 5s", got)
		}
		d.say(tag + " ERR INTERNAL : not this time")
		tag = d.expectTagged("CHECK lease=abc")
		d.at("third CHECK", 8500*time.Millisecond)
		d.say(grant(tag[1:], "job", "abc", 7*time.Second, time.Second)) // older than what the client knows
		d.expectTagged("CHECK lease=abc")
		d.at("fourth CHECK", 9250*time.Millisecond)
		<-l.Context().Done()
		d.at("the end of the lease", 10*time.Second)
	})
}

func TestCheckReportsTheEnd(t *testing.T) {
	for reply, wanted := range map[string][]error{
		"ERR LOST lease=abc reason=quorum : no quorum": {ErrLost},
		"ERR NOTHELD": {ErrLost, ErrNotHeld},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			d.say(d.expectTagged("CHECK lease=abc") + " " + reply)
			<-l.Context().Done()
			d.at("the end of the lease", checkAfter)
			for _, sentinel := range wanted {
				want(t, reply, endCause(l.Context()), sentinel)
			}
			synctest.Wait()
			nothingLeft(t, c)
		})
	}
}

func TestCheckAndExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc", WithHold(HoldTTL))
		time.Sleep(time.Second)
		checked := async(func() (int, error) { return 0, l.Check(t.Context()) })
		d.say(grant(d.expectTagged("CHECK lease=abc")[1:], "job", "abc", 0, ttl))
		checked.must(t)
		extended := async(func() (int, error) { return 0, l.Extend(t.Context(), 20*time.Second) })
		d.say(grant(d.expectTagged("EXTEND ttl=20000 lease=abc")[1:], "job", "abc", time.Second, 20*time.Second))
		extended.must(t)
		if got := l.Validity(); got != 20*time.Second {
			t.Errorf("validity %v, want 20s", got)
		}
		refused := async(func() (int, error) { return 0, l.Extend(t.Context(), 0) })
		d.say(d.expectTagged("EXTEND lease=abc") + " ERR NOQUORUM granted=2 needed=3")
		_, err := refused.wait()
		want(t, "extend", err, ErrNoQuorum)
		want(t, "extend by less than nothing", l.Extend(t.Context(), -1), ErrInvalid)
		<-l.Context().Done()
		d.at("the end of the lease, with the guard of the new ttl", 17*time.Second)
	})
}

// With HoldTTL nothing but the client moves the deadline, so no CHECK is sent.
func TestHoldTTLEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc", WithHold(HoldTTL))
		<-l.Context().Done()
		d.at("the end of the lease", overAfter)
		want(t, "cause", endCause(l.Context()), ErrLost)
		d.expectTagged("UNLOCK lease=abc")
		d.at("UNLOCK", ttl)
	})
}

// The timer stops while the host is suspended. When it fires, the lease ends at once if the daemon is
// not to be asked.
func TestSuspendedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc", WithLateCheck(0))
		d.slept.Store(int64(time.Hour))
		if got := l.Validity(); got != 0 {
			t.Errorf("validity %v after an hour of sleep, want 0", got)
		}
		<-l.Context().Done()
		d.at("the end of the lease", checkAfter)
		d.expectTagged("UNLOCK lease=abc")
		d.at("UNLOCK", checkAfter)
	})
}

// With HoldTTL there is no CHECK, but the timer still fires at checkAfter, and notices a
// suspension.
func TestSuspendedHostAndTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc", WithHold(HoldTTL))
		time.Sleep(time.Second)
		d.slept.Store(int64(time.Hour))
		<-l.Context().Done()
		d.at("the end of the lease", checkAfter)
		d.expectTagged("UNLOCK lease=abc")
	})
}

// If the CHECK got no answer, the timer notices a suspension half way to the lease's end.
func TestSuspendedHostAndDaemonThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.expectTagged("CHECK lease=abc")
		d.slept.Store(int64(time.Hour))
		d.expectTagged("CHECK lease=abc")
		d.at("the second CHECK", checkAfter+(overAfter-checkAfter)/2)
		<-l.Context().Done()
		d.at("the end of the lease", checkAfter+(overAfter-checkAfter)/2+defaultLateCheck)
		d.expectTagged("UNLOCK lease=abc")
	})
}

// A daemon in another time namespace has another clock, so the client ignores its deadline=.
func TestDeadlineOfAnotherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.expect("@0 LOCK job owner=1 id=t.1")
		d.say("@0 OK lock=job lease=abc fence=1 ttl=10000 deadline=999999999")
		if got := locked.must(t).Validity(); got != ttl+time.Millisecond {
			t.Errorf("validity %v, want the ttl of 10s, which may be rounded down by 1ms", got)
		}
	})
}

// A client in a time namespace, whose clock is ahead of the daemon's or behind it, holds a lease as
// long as any other one.
func TestOtherClock(t *testing.T) {
	for _, ahead := range []time.Duration{-100 * time.Hour, -time.Second, 0, time.Second, 100 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c, d := newScripted(t)
			base := 200 * time.Hour
			daemons := func() time.Duration { return base + d.boottime() }
			c.clock = func() time.Duration { return daemons() + ahead }
			c.eventTime = c.clock
			opened := async(func() (int, error) { return 0, c.open(t.Context()) })
			d.accept()
			d.expect("@0 HELLO 1")
			d.say(fmt.Sprintf("@0 OK version=1 clock=%d", daemons().Milliseconds()))
			opened.must(t)
			defer c.Close()
			defer d.conn.Close()
			locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
			d.expect("@0 LOCK job owner=1 id=t.1")
			time.Sleep(time.Minute) // the client waits
			d.say(fmt.Sprintf("@0 OK lock=job lease=abc fence=1 ttl=10000 deadline=%d", (daemons() + ttl).Milliseconds()))
			l, err := locked.wait()
			switch {
			case err != nil:
				t.Errorf("%v ahead: %v", ahead, err)
			case l.Validity() > ttl+time.Millisecond || l.Validity() < ttl-2*time.Millisecond:
				t.Errorf("%v ahead: validity %v, want %v", ahead, l.Validity(), ttl)
			}
		})
	}
}

// If the clocks differ and HELLO took long, the difference is known only roughly. The earliest
// deadline counts.
func TestOtherClockAfterSlowHello(t *testing.T) {
	now := 100 * time.Hour
	var clock daemonClock
	var hello, grant ipc.Response
	for line, r := range map[string]*ipc.Response{"@0 OK clock=3600000": &hello, "@0 OK ttl=10000 deadline=3610000": &grant} {
		if err := ipc.ParseResponse([]byte(line), r); err != nil {
			t.Fatal(err)
		}
	}
	clock.note(&hello, now-3*time.Second, now) // written at most 3 s ago
	if got := clock.deadlineOf(&grant, now); got != now+7*time.Second-time.Millisecond {
		t.Errorf("the deadline is in %v, want 6.999s", got-now)
	}
	now = time.Hour + time.Second
	clock.note(&hello, now-3*time.Second, now) // the same clock
	if got := clock.deadlineOf(&grant, now); got != time.Hour+10*time.Second {
		t.Errorf("the deadline is at %v, want the daemon's", got)
	}
}

func TestLostEvent(t *testing.T) {
	for _, reason := range []string{"quorum", "forced", "max", "beat", "expired", "newer"} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l, other := d.lock(c, "job", "abc"), d.lock(c, "other", "def")
			time.Sleep(time.Second)
			d.say("LOST lock=job lease=abc reason=" + reason) // the lease has one name, so no UNLOCK is needed for others
			<-l.Context().Done()
			d.at("the end of the lease", time.Second)
			cause := endCause(l.Context())
			want(t, "cause", cause, ErrLost)
			if got := cause.(*Error).Fields["reason"]; got != reason {
				t.Errorf("reason %q, want %q", got, reason)
			}
			want(t, "unlock", l.Unlock(t.Context()), ErrLost) // and sends nothing
			unlocked := async(func() (int, error) { return 0, other.Unlock(t.Context()) })
			d.say(d.expectTagged("UNLOCK lease=def") + " OK")
			unlocked.must(t)
			time.Sleep(time.Minute) // a timer that is left would send UNLOCK, which blocks the test
			nothingLeft(t, c)
		})
	}
}

func TestContextKeepsValues(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		locked := async(func() (*Lease, error) { return c.Lock(ctx, "job") })
		d.line()
		d.say(grant("0", "job", "abc", 0, ttl))
		l := locked.must(t)
		cancel()
		if err := endCause(l.Context()); err != nil || l.Context().Value(key{}) != "v" || l.Context() != l.Context() {
			t.Errorf("cause %v, value %v, want a context that has the values of the one given, but not its end", err, l.Context().Value(key{}))
		}
	})
}

func TestRefusedUnlockCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		for reply, wanted := range map[string]error{"ERR LIMIT : too many": ErrLimit, "ERR INTERNAL": ErrInternal} {
			unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
			d.say(d.expectTagged("UNLOCK lease=abc") + " " + reply)
			_, err := unlocked.wait()
			want(t, reply, err, wanted)
		}
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		d.say(d.expectTagged("UNLOCK lease=abc") + " OK pending=1")
		unlocked.must(t)
		want(t, "once more", l.Unlock(t.Context()), ErrNotHeld)
		nothingLeft(t, c)
	})
}

func TestUnlockIsAnswered(t *testing.T) {
	for reply, wanted := range map[string][]error{"ERR LOST": {ErrLost}, "ERR NOTHELD": {ErrLost, ErrNotHeld}} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
			d.say(d.expectTagged("UNLOCK lease=abc") + " " + reply)
			_, err := unlocked.wait()
			for _, wanted := range wanted {
				want(t, reply, err, wanted)
			}
			nothingLeft(t, c)
		})
	}
}

// The client goes on with the release if the context has already ended.
func TestUnlockWithContextThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		want(t, "unlock", l.Unlock(ctx), context.Canceled)
		d.answerUnlock(c)
	})
}

// A context derived from the lease's own ends with the lease, but Unlock still waits.
func TestUnlockWithTheLeasesContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		unlocked := async(func() (int, error) { return 0, l.Unlock(l.Context()) })
		tag := d.expectTagged("UNLOCK lease=abc")
		synctest.Wait()
		if !unlocked.pending() {
			t.Error("unlock did not wait for the answer")
		}
		d.say(tag + " OK")
		unlocked.must(t)
	})
}

// If no caller waits for an UNLOCK, the client repeats it until it is answered.
func TestBackgroundUnlockIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		want(t, "unlock", l.Unlock(ctx), context.Canceled)
		d.say(d.expectTagged("UNLOCK lease=abc") + " ERR LIMIT : 100 requests a second")
		d.say(d.expectTagged("UNLOCK lease=abc") + " ERR LIMIT : 100 requests a second")
		d.at("the second UNLOCK", retryUnlock)
		tag := d.expectTagged("UNLOCK lease=abc")
		d.at("the third UNLOCK", 2*retryUnlock)
		d.say(tag + " OK")
		synctest.Wait()
		nothingLeft(t, c)
	})
}

func TestLateGrantIsUnlockedUntilThatIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, "lock", lockErr(c.Lock(ctx, "job")), context.DeadlineExceeded)
		d.expect("@0 LOCK job wait=980 owner=1 id=t.1")
		d.expect("CANCEL 0")
		d.say(grant("0", "job", "abc", time.Second, ttl), "ERR LIMIT : of CANCEL, which ends no connection")
		d.say(d.expectTagged("UNLOCK lease=abc") + " ERR LIMIT")
		tag := d.expectTagged("UNLOCK lease=abc")
		d.at("the second UNLOCK", 2*time.Second)
		d.say(tag + " OK")
		synctest.Wait()
		nothingLeft(t, c)
		d.hangUp()
		if errors.Is(c.Err(), ErrLimit) {
			t.Errorf("Err %v, which is about an answer to CANCEL", c.Err())
		}
	})
}

// TestCheckOfExtendedLease calls all getters while the lease changes, for the race detector.
func TestCheckOfExtendedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		end := d.elapsed() + time.Minute
		var looking sync.WaitGroup
		for _, look := range []func(){
			func() { l.Deadline() },
			func() { l.Validity() },
			func() { l.Guard() },
		} {
			looking.Go(func() { // nothing but look itself synchronizes with the answers
				for d.elapsed() < end+2*time.Second {
					look()
					time.Sleep(time.Second)
				}
			})
		}
		for d.elapsed() < end {
			d.say(grant(d.expectTagged("CHECK lease=abc")[1:], "job", "abc", d.elapsed(), ttl) + " guard=1000")
		}
		d.say("LOST lock=job lease=abc reason=quorum")
		looking.Wait()
	})
}

// If a ttl is longer than the protocol can express, the longest possible ttl is sent.
func TestExtendForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		extended := async(func() (int, error) { return 0, l.Extend(t.Context(), math.MaxInt64) })
		d.say(d.expectTagged("EXTEND ttl=9223372036854 lease=abc") + " ERR OPTION : at most 30s")
		_, err := extended.wait()
		want(t, "extend", err, ErrInvalid)
	})
}

// If the deadline does not move, the client sends several CHECKs, but not without end.
func TestChecksOfAnUnchangedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		checks := 0
		for last := time.Duration(0); ; checks++ {
			tag, line := d.tagged()
			if line != "CHECK lease=abc" {
				break // UNLOCK, at the deadline
			}
			if now := d.elapsed(); now-last < minCheck {
				t.Errorf("CHECK %v after the one before, want %v at least", now-last, minCheck)
			}
			last = d.elapsed()
			d.say(grant(tag, "job", "abc", 0, ttl))
		}
		d.at("UNLOCK", ttl)
		want(t, "the lease", endCause(l.Context()), ErrLost)
		if checks != 9 { // the 8 s are halved until less than 2 * minCheck is left
			t.Errorf("%d CHECKs, want 9", checks)
		}
	})
}

// While all permits for short requests are in use, the timer tries again later. An UNLOCK that
// cannot be sent is sent when a permit is free.
func TestNoPermitForChecksAndUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		c.occupy(roomOther, maxInFlight[roomOther])
		time.Sleep(5 * time.Second) // after the first CHECK was due
		c.occupy(roomOther, -1)
		tag := d.expectTagged("CHECK lease=abc")
		d.at("the second CHECK", 6*time.Second)
		d.say(grant(tag[1:], "job", "abc", 6*time.Second, ttl))
		synctest.Wait()
		c.occupy(roomOther, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, "check", l.Check(ctx), context.DeadlineExceeded)
		d.at("the end of the check", 7*time.Second)
		want(t, "unlock", l.Unlock(ctx), context.DeadlineExceeded)
		c.occupy(roomOther, -1)
		d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
		synctest.Wait()
		c.occupy(roomOther, 1-maxInFlight[roomOther])
		nothingLeft(t, c)
	})
}

// A process was stopped until its lease had ended by its own clock. It asks the
// daemon before it ends the lease, and waits a bounded time for the answer. If the daemon has
// extended the lease, the lease goes on.
func TestLateCheck(t *testing.T) {
	for name, test := range map[string]struct {
		reply string // empty: no answer
		kept  bool
		end   time.Duration // after the process continues
	}{
		"kept":    {grant("", "job", "abc", time.Minute, ttl)[2:], true, 0},
		"lost":    {"ERR LOST lease=abc reason=quorum : no quorum", false, 0},
		"too old": {grant("", "job", "abc", 0, ttl)[2:], false, defaultLateCheck},
		"silent":  {"", false, defaultLateCheck},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "job", "abc")
				d.expectTagged("CHECK lease=abc")
				d.at("first CHECK", checkAfter)
				d.slept.Add(int64(time.Minute - overAfter)) // as if the process had been stopped
				tag := d.expectTagged("CHECK lease=abc")
				d.at("the timer", checkAfter+2*time.Second)
				if left := l.Validity(); left != 0 {
					t.Errorf("the lease is valid for %v before the answer, want 0", left)
				}
				if test.reply != "" {
					d.say(tag + " " + test.reply)
				}
				if test.kept {
					time.Sleep(2 * time.Second)
					if err := l.Context().Err(); err != nil {
						t.Errorf("a lease that was kept ended: %v", endCause(l.Context()))
					}
					return
				}
				<-l.Context().Done()
				d.at("the end of the lease", checkAfter+2*time.Second+test.end)
				want(t, "cause", endCause(l.Context()), ErrLost)
				if text := endCause(l.Context()).Error(); test.end > 0 && !strings.Contains(text, "this process was stopped for") {
					t.Errorf("the cause is %q, want that the process was stopped", text)
				}
			})
		})
	}
}
