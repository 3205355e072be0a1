package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

func TestLockAndUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "nightly backup") })
		d.expect("@0 LOCK nightly%20backup owner=1 id=t.1")
		d.say(grant("0", "nightly%20backup", "abc", 0, 10*time.Second))
		l := locked.must(t)
		if l.Name() != "nightly backup" || l.ID() != "abc" || l.Fence() != 77 {
			t.Errorf("lease %q %q %d, want \"nightly backup\" \"abc\" 77", l.Name(), l.ID(), l.Fence())
		}
		if got := l.DeadlineBoottime(); got != bootAt+10*time.Second {
			t.Errorf("deadline %v after boot, want %v", got, bootAt+10*time.Second)
		}
		if got := time.Until(l.Deadline()); got != 10*time.Second || l.Validity() != got {
			t.Errorf("deadline in %v, validity %v, want 10s for both", got, l.Validity())
		}
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		d.expect("@0 UNLOCK lease=abc")
		synctest.Wait()
		if cause := context.Cause(l.Context()); cause != ErrUnlocked || l.Validity() != 0 {
			t.Errorf("while unlocking: cause %v, validity %v, want ErrUnlocked and 0", cause, l.Validity())
		}
		d.say("@0 OK lock=nightly%20backup")
		unlocked.must(t)
		for op, err := range map[string]error{"unlock": l.Unlock(t.Context()), "check": l.Check(t.Context()), "extend": l.Extend(t.Context(), 0)} {
			want(t, op+" after the unlock", err, ErrNotHeld)
		}
		nothingLeft(t, c)
	})
}

func TestLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.LockAll(t.Context(), []string{"b,c", "a"}, WithTTL(time.Second)) })
		d.expect("@0 LOCK b%2Cc,a ttl=1000 owner=1 id=t.1")
		d.say(grant("0", "b%2Cc,a", "abc", 0, time.Second))
		l := locked.must(t)
		if l.Name() != "b,c,a" || l.Slot() != 0 {
			t.Errorf("lease of %q, slot %d, want \"b,c,a\" and 0", l.Name(), l.Slot())
		}
		tried := async(func() (*Lease, error) { return c.TryLockAll(t.Context(), []string{"x", "y"}) })
		d.expect("@0 TRY x,y owner=2 id=t.2")
		d.say("@0 ERR HELD lock=x,y mode=shared host=web3 pid=7 user=cron : somebody reads")
		err := lockErr(tried.wait())
		want(t, "TryLockAll", err, ErrHeld)
		if refused, _ := errors.AsType[*Error](err); refused == nil || refused.Holder == nil || refused.Holder.Mode != "shared" || refused.Name != "x,y" {
			t.Errorf("TryLockAll: %#v", err)
		}
		d.say("LOST lock=b%2Cc,a lease=abc reason=forced")
		<-l.Context().Done()
		want(t, "after LOST", context.Cause(l.Context()), ErrLost)
		for _, names := range [][]string{nil, {}, {"a", "a"}, {"a", ""}, make([]string, 101)} {
			want(t, fmt.Sprintf("LockAll of %q", names), lockErr(c.LockAll(t.Context(), names)), ErrInvalid)
		}
	})
}

// If one of several names was revoked (FORCE), the daemon keeps the others until the holder says
// that it has stopped. Unlock after the work says so, once.
func TestRestOfForcedLeaseIsUnlocked(t *testing.T) {
	for _, reason := range []string{"forced", "forced, as CHECK says", "max"} { // max releases all names together
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			locked := async(func() (*Lease, error) { return c.LockAll(t.Context(), []string{"a", "b"}) })
			d.line()
			d.say(grant("0", "a,b", "abc", 0, ttl))
			l := locked.must(t)
			if reason == "forced, as CHECK says" {
				checked := async(func() (int, error) { return 0, l.Check(t.Context()) })
				d.say(d.expectTagged("CHECK lease=abc") + " ERR LOST lock=a,b reason=forced")
				_, _ = checked.wait()
			} else {
				d.say("LOST lock=a,b lease=abc reason=" + reason)
			}
			<-l.Context().Done()
			time.Sleep(time.Second) // the holder is still working
			want(t, "unlock", l.Unlock(t.Context()), ErrLost)
			if reason != "max" {
				tag := d.expectTagged("UNLOCK lease=abc")
				d.at("UNLOCK", time.Second)
				d.say(tag + " ERR LOST lock=a,b reason=forced")
			}
			want(t, "unlock again", l.Unlock(t.Context()), ErrLost)
			time.Sleep(time.Minute)
			nothingLeft(t, c)
		})
	}
}

// If LOST comes with the grant, the caller may never get the lease. The other names are unlocked
// nevertheless.
func TestRestOfForcedLeaseIsUnlockedOnArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.LockAll(t.Context(), []string{"a", "b"}) })
		d.line()
		d.say(grant("0", "a,b", "abc", 0, ttl), "LOST lock=a,b lease=abc reason=forced")
		l, err := locked.wait()
		unlocked := async(func() (*Lease, error) {
			if err != nil {
				return nil, err
			}
			return nil, l.Unlock(t.Context()) // LOST may come before or after Unlock
		})
		d.say(d.expectTagged("UNLOCK lease=abc") + " ERR LOST lock=a,b reason=forced")
		_, err = unlocked.wait()
		want(t, "the lease, or unlock", err, ErrLost)
		synctest.Wait()
		nothingLeft(t, c)
	})
}

// The same, but the reader takes LOST before Lock returns.
func TestRestOfForcedLeaseIsUnlockedBeforeGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		cl := lockCall(t, c, HoldConn, "a", "b")
		asked := async(func() (int, error) { return 0, c.do(t.Context(), cl) })
		d.expect("@0 LOCK a,b")
		d.say(grant("0", "a,b", "abc", 0, ttl), "LOST lock=a,b lease=abc reason=forced")
		asked.must(t)
		synctest.Wait()
		c.enter()
		want(t, "the lease", c.core.taken(cl.lease), ErrLost)
		c.exit()
		d.say(d.expectTagged("UNLOCK lease=abc") + " ERR LOST lock=a,b reason=forced")
		synctest.Wait()
		nothingLeft(t, c)
	})
}

func TestSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "a", WithSlots(3)) })
		d.expect("@0 LOCK a slots=3 owner=1 id=t.1")
		d.say(grant("0", "a", "abc", 0, time.Second) + " slot=2")
		if l := locked.must(t); l.Slot() != 2 {
			t.Errorf("slot %d, want 2", l.Slot())
		}
		want(t, "no slots", lockErr(c.Lock(t.Context(), "a", WithSlots(0))), ErrInvalid)
	})
}

func TestRequestsOfOptions(t *testing.T) {
	for _, test := range []struct {
		opts []Option
		line string
	}{
		{nil, "LOCK job owner=1 id=t.1"},
		{[]Option{WithTTL(3 * time.Second)}, "LOCK job ttl=3000 owner=1 id=t.1"},
		{[]Option{WithWait(0)}, "LOCK job wait=0 owner=1 id=t.1"},
		{[]Option{WithWait(time.Microsecond)}, "LOCK job wait=1 owner=1 id=t.1"},
		{[]Option{WithWait(math.MaxInt64)}, "LOCK job wait=9223372036854 owner=1 id=t.1"},
		{[]Option{WithMax(time.Hour), WithLinger(0), WithGuard(time.Second)}, "LOCK job max=3600000 linger=0 owner=1 guard=1000 id=t.1"},
		{[]Option{WithNote("a = b, 5%")}, "LOCK job owner=1 note=a%20%3D%20b%2C%205%25 id=t.1"},
		{[]Option{WithHold(HoldConn)}, "LOCK job hold=conn owner=1 id=t.1"},
		{[]Option{WithHold(HoldTTL)}, "LOCK job hold=ttl owner=1 id=t.1"},
		{[]Option{WithShared()}, "LOCK job mode=shared owner=1 id=t.1"},
		{[]Option{WithHold(HoldTTL), WithHold(HoldConn)}, "LOCK job hold=conn owner=1 id=t.1"},
		{[]Option{WithHold(HoldPID), WithPID(1)}, "LOCK job hold=pid pid=1 id=t.1"},
		{[]Option{WithSlots(3)}, "LOCK job slots=3 owner=1 id=t.1"},
		{[]Option{WithSlots(1), WithTTL(1), WithNote(strings.Repeat("x", ipc.MaxNote))}, "LOCK job ttl=1 slots=1 owner=1 note=" + strings.Repeat("x", ipc.MaxNote) + " id=t.1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", test.opts...) })
			d.expect("@0 " + test.line)
			d.say("@0 ERR DENIED")
			_, err := locked.wait()
			want(t, test.line, err, ErrDenied)
		})
	}
}

func TestRefusedBeforeSent(t *testing.T) {
	c, _ := dialScripted(t)
	for what, try := range map[string]func() error{
		"ttl 0":          func() error { return lockErr(c.Lock(t.Context(), "job", WithTTL(0))) },
		"ttl -1s":        func() error { return lockErr(c.Lock(t.Context(), "job", WithTTL(-time.Second))) },
		"wait -1s":       func() error { return lockErr(c.Lock(t.Context(), "job", WithWait(-time.Second))) },
		"try with wait":  func() error { return lockErr(c.TryLock(t.Context(), "job", WithWait(0))) },
		"a hold of 7":    func() error { return lockErr(c.Lock(t.Context(), "job", WithHold(7))) },
		"long note":      func() error { return lockErr(c.Lock(t.Context(), "job", WithNote(strings.Repeat("x", 201)))) },
		"no name":        func() error { return lockErr(c.Lock(t.Context(), "")) },
		"a long name":    func() error { return lockErr(c.Lock(t.Context(), strings.Repeat("x", 201))) },
		"a name of ours": func() error { return lockErr(c.Lock(t.Context(), "redlockd:x")) },
		"who of no name": func() error { _, err := c.Who(t.Context(), ""); return err },
	} {
		want(t, what, try(), ErrInvalid)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	want(t, "a context that is done", lockErr(c.Lock(canceled, "job")), context.Canceled)
	nothingLeft(t, c)
}

func TestTwoLocksOfOneNameAreTwoOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		first := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.expect("@0 LOCK job owner=1 id=t.1")
		second := async(func() (*Lease, error) { return c.TryLock(t.Context(), "job") })
		d.expect("@1 TRY job owner=2 id=t.2")
		d.say("@1 ERR HELD lock=job ttl=7412 host=web3 pid=4121 user=cron since=2588 : held by cron on web3 (pid 4121)")
		_, err := second.wait()
		want(t, "try", err, ErrHeld)
		d.say(grant("0", "job", "abc", 0, 10*time.Second))
		if l := first.must(t); l.ID() != "abc" {
			t.Errorf("lease %q, want abc", l.ID())
		}
	})
}

func TestHeldNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		tried := async(func() (*Lease, error) { return c.TryLock(t.Context(), "job") })
		d.expect("@0 TRY job owner=1 id=t.1")
		d.say("@0 ERR HELD lock=job ttl=7412 host=web3 pid=4121 user=cron since=2588 : held by cron on web3 (pid 4121)")
		_, err := tried.wait()
		var e *Error
		if !errors.As(err, &e) || e.Holder == nil {
			t.Fatalf("error %v, want an *Error with a Holder", err)
		}
		if want := (Holder{Name: "job", Mode: "exclusive", Host: "web3", PID: 4121, User: "cron", TTL: 7412 * time.Millisecond, Since: 2588 * time.Millisecond}); *e.Holder != want {
			t.Errorf("holder %+v, want %+v", *e.Holder, want)
		}
		if want := `try "job": held by cron on web3 (pid 4121)`; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
	})
}

// If the daemon does not name a holder, the error has no Holder.
func TestNoHolder(t *testing.T) {
	for _, refusal := range []string{"HELD lock=job ttl=7412", "ALREADY lock=job host=web3 pid=4121 user=cron"} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			tried := async(func() (*Lease, error) { return c.TryLock(t.Context(), "job") })
			d.line()
			d.say("@0 ERR " + refusal)
			_, err := tried.wait()
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, ErrHeld) || e.Holder != nil {
				t.Errorf("%s: %#v, want ErrHeld without a Holder", refusal, err)
			}
		})
	}
}

// The daemon's wait ends just before the context's deadline, so that its answer can name the
// holder. The error matches both the deadline and HELD.
func TestContextDeadlineBoundsTheWait(t *testing.T) {
	for _, test := range []struct {
		name    string
		timeout time.Duration
		opts    []Option
		line    string
		after   time.Duration // when the test answers HELD
		both    bool
	}{
		{"of the context", 5 * time.Second, nil, "@0 LOCK job wait=4980 owner=1 id=t.1", 4980 * time.Millisecond, true},
		{"of the context, short", 10 * time.Millisecond, nil, "@0 LOCK job wait=5 owner=1 id=t.1", 5 * time.Millisecond, true},
		{"of the context, as it is shorter", time.Second, []Option{WithWait(time.Minute)}, "@0 LOCK job wait=980 owner=1 id=t.1", 980 * time.Millisecond, true},
		{"of the option, as it is shorter", time.Minute, []Option{WithWait(time.Second)}, "@0 LOCK job wait=1000 owner=1 id=t.1", time.Second, false},
		{"of neither, refused early", time.Minute, nil, "@0 LOCK job wait=59980 owner=1 id=t.1", time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
			defer cancel()
			locked := async(func() (*Lease, error) { return c.Lock(ctx, "job", test.opts...) })
			d.expect(test.line)
			time.Sleep(test.after)
			d.say("@0 ERR HELD lock=job user=cron")
			_, err := locked.wait()
			want(t, test.name, err, ErrHeld)
			if got := errors.Is(err, context.DeadlineExceeded); got != test.both {
				t.Errorf("wait %s: %v matches DeadlineExceeded: %v, want %v", test.name, err, got, test.both)
			}
		})
	}
}

func TestRepliesOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		const n = 100
		results := make([]future[*Lease], n)
		tags := make([]string, n)
		for i := range n {
			results[i] = async(func() (*Lease, error) { return c.Lock(t.Context(), "job-"+strconv.Itoa(i)) })
			fields := strings.Fields(d.line())
			tags[i] = strings.TrimPrefix(fields[0], "@")
		}
		for i := n - 1; i >= 0; i-- {
			d.say(grant(tags[i], "x", "lease-"+tags[i], 0, 10*time.Second))
		}
		for i := range n {
			if l := results[i].must(t); l.ID() != "lease-"+tags[i] {
				t.Errorf("lock %d got %s, want lease-%s", i, l.ID(), tags[i])
			}
		}
	})
}

func TestDo(t *testing.T) {
	errWork := errors.New("work failed")
	for name, test := range map[string]struct {
		fn     func(ctx context.Context, l *Lease) error
		reply  string // to UNLOCK
		wanted []error
	}{
		"well":              {func(context.Context, *Lease) error { return nil }, "@0 OK", nil},
		"the work failed":   {func(context.Context, *Lease) error { return errWork }, "@0 OK", []error{errWork}},
		"the unlock failed": {func(context.Context, *Lease) error { return nil }, "@0 ERR DENIED", []error{ErrDenied}},
		"both failed":       {func(context.Context, *Lease) error { return errWork }, "@0 ERR INTERNAL", []error{errWork, ErrInternal}},
		"unlocked by fn":    {func(ctx context.Context, l *Lease) error { return l.Unlock(ctx) }, "@0 OK", nil},
		"lost unheard":      {func(context.Context, *Lease) error { return nil }, "@0 ERR NOTHELD", []error{ErrLost, ErrNotHeld}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			done := async(func() (int, error) { return 0, c.Do(t.Context(), "job", test.fn) })
			d.expect("@0 LOCK job owner=1 id=t.1")
			d.say(grant("0", "job", "abc", 0, 10*time.Second))
			d.expect("@0 UNLOCK lease=abc")
			d.say(test.reply)
			_, err := done.wait()
			if test.wanted == nil && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, wanted := range test.wanted {
				want(t, name, err, wanted)
			}
		})
	}
}

func TestDoUnlocksAfterPanicAndEndOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithCancel(t.Context())
		panicked := async(func() (value any, err error) {
			defer func() { value = recover() }()
			return nil, c.Do(ctx, "job", func(ctx context.Context, l *Lease) error {
				cancel()
				<-ctx.Done()
				panic("the work")
			})
		})
		d.line()
		d.say(grant("0", "job", "abc", 0, 10*time.Second))
		d.expect("@0 UNLOCK lease=abc")
		d.say("@0 OK")
		if value := panicked.must(t); value != "the work" {
			t.Errorf("recovered %v, want the panic of the work", value)
		}
	})
}

func TestDoReportsLossToFnAndCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		var within error
		done := async(func() (int, error) {
			return 0, c.Do(t.Context(), "job", func(ctx context.Context, l *Lease) error {
				d.say("LOST lock=job lease=abc reason=quorum")
				<-ctx.Done()
				within = context.Cause(ctx)
				return nil
			})
		})
		d.line()
		d.say(grant("0", "job", "abc", 0, 10*time.Second))
		_, err := done.wait()
		want(t, "fn's context", within, ErrLost)
		want(t, "Do", err, ErrLost)
		synctest.Wait() // the reader first ends the context, then removes the lease
		nothingLeft(t, c)
	})
}

// LOST may come right after the grant, before Lock returns.
func TestGrantLostOnArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
		d.line()
		d.say(grant("0", "job", "abc", 0, 10*time.Second), "LOST lock=job lease=abc reason=forced")
		l, err := locked.wait()
		synctest.Wait() // otherwise the next line may be unread
		if err == nil {
			err = endCause(l.Context())
		}
		want(t, "the lease, or lock", err, ErrLost)
		nothingLeft(t, c)
	})
}

// If a process was stopped between the grant and its arrival until the ttl passed, Lock fails.
func TestGrantExpiredOnArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithTTL(10*time.Second)) })
		d.expect("@0 LOCK job ttl=10000 owner=1 id=t.1")
		time.Sleep(8 * time.Second)
		d.say("@0 OK lock=job lease=abc fence=1 ttl=10000 deadline=" + "1010000")
		_, err := locked.wait()
		want(t, "lock", err, ErrLost)
		d.answerUnlock(c)
	})
}

func TestOpNamesAreVerbs(t *testing.T) {
	if got := op(ipc.VerbUnlock); got != "unlock" {
		t.Errorf("op(UNLOCK) = %q, want unlock", got)
	}
}

// A request with MaxNames names is sent. A request with more is refused.
func TestBoundOnNames(t *testing.T) {
	var names []string
	for i := range ipc.MaxNames + 1 {
		names = append(names, strconv.Itoa(i))
	}
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		tried := async(func() (*Lease, error) { return c.TryLockAll(t.Context(), names[1:]) })
		d.expect("@0 TRY " + strings.Join(names[1:], ",") + " owner=1 id=t.1")
		d.say("@0 ERR HELD")
		_, err := tried.wait()
		want(t, "all", err, ErrHeld)
		want(t, "one more", lockErr(c.TryLockAll(t.Context(), names)), ErrInvalid)
	})
}

// The error names the wrong option and the lock.
func TestTextsOfOptions(t *testing.T) {
	c, _ := dialScripted(t)
	for want, err := range map[string]error{
		`lock "job": a ttl of 0s: must be more than 0 (omit it for redlockd's default)`:          lockErr(c.Lock(t.Context(), "job", WithTTL(0))),
		`lock "job": a wait of -1s: must not be negative, a linger of -1s: must not be negative`: lockErr(c.Lock(t.Context(), "job", WithWait(-time.Second), WithLinger(-time.Second))),
		`lock "a,b": 0 slots: must be at least 1`:                                                lockErr(c.LockAll(t.Context(), []string{"a", "b"}, WithSlots(0))),
		`lock "a,a": NAME: the name "a" is given twice`:                                          lockErr(c.LockAll(t.Context(), []string{"a", "a"})),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
	}
}

// If only fn fails, Do returns its error unchanged.
func TestDoReturnsTheErrorOfTheWork(t *testing.T) {
	errWork := errors.New("work failed")
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		done := async(func() (int, error) {
			return 0, c.Do(t.Context(), "job", func(context.Context, *Lease) error { return errWork })
		})
		d.line()
		d.say(grant("0", "job", "abc", 0, ttl))
		d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
		if _, err := done.wait(); err != errWork {
			t.Errorf("Do: %#v, want what fn has returned", err)
		}
	})
}
