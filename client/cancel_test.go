package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

func TestCancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		locked := async(func() (*Lease, error) { return c.Lock(ctx, "job") })
		d.expect("@0 LOCK job owner=1 id=t.1")
		why := errors.New("no more need")
		cancel(why)
		_, err := locked.wait() // before the daemon has read the CANCEL
		want(t, "lock", err, context.Canceled)
		want(t, "lock", err, why)
		d.expect("CANCEL 0")
		d.say("@0 ERR CANCELLED", "OK")
		synctest.Wait()
		nothingLeft(t, c)
	})
}

// crossed returns a client whose LOCK was granted at the moment it was abandoned.
func crossed(t *testing.T) (*Client, *scripted) {
	c, d := dialScripted(t)
	ctx, cancel := context.WithCancel(t.Context())
	locked := async(func() (*Lease, error) { return c.Lock(ctx, "job") })
	d.expect("@0 LOCK job owner=1 id=t.1")
	cancel()
	_, err := locked.wait()
	want(t, "lock", err, context.Canceled)
	d.say(grant("0", "job", "abc", 0, ttl))
	d.expect("CANCEL 0")
	return c, d
}

func TestCancelCrossesWithTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := crossed(t)
		d.say(d.expectTagged("UNLOCK lease=abc")+" OK", "ERR NOTHELD : no request 0")
		synctest.Wait()
		nothingLeft(t, c)
	})
}

// If nobody waits for a grant that would outlast the connection, Close unlocks it first: the
// program may exit right after Close. (With HoldConn a grant outlasts the connection because of its
// linger.) Close waits for byeTimeout at most if the daemon hangs, and not at all if there is none.
func TestCloseAfterCancel(t *testing.T) {
	for name, test := range map[string]struct {
		daemon func(c *Client, d *scripted)
		after  time.Duration
	}{
		"granted": {func(c *Client, d *scripted) {
			d.say(grant("0", "job", "abc", 0, ttl), "ERR NOTHELD : no request 0")
			d.answerUnlock(c)
		}, 0},
		"granted, but not to be given back yet": {func(c *Client, d *scripted) {
			d.say(grant("0", "job", "abc", 0, ttl), "ERR NOTHELD : no request 0")
			d.say(d.expectTagged("UNLOCK lease=abc") + " ERR LIMIT")
		}, 0},
		"not granted": {func(c *Client, d *scripted) { d.say("@0 ERR CANCELLED", "OK") }, 0},
		"no answer":   {func(c *Client, d *scripted) { time.Sleep(time.Minute) }, byeTimeout},
		"no UNLOCK":   {func(c *Client, d *scripted) { d.say(grant("0", "job", "abc", 0, ttl)); time.Sleep(time.Minute) }, byeTimeout},
		"no daemon":   {func(c *Client, d *scripted) { d.stop() }, 0},
	} {
		for _, hold := range []Hold{HoldConn, HoldPID, HoldTTL} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, d := dialScripted(t)
					ctx, cancel := context.WithCancel(t.Context())
					locked := async(func() (*Lease, error) { return c.Lock(ctx, "job", WithHold(hold)) })
					d.line()
					cancel()
					_, err := locked.wait()
					want(t, "lock", err, context.Canceled)
					closed := async(func() (time.Duration, error) { return d.elapsed(), c.Close() })
					ended := async(func() (time.Duration, error) { <-c.Done(); return d.elapsed(), nil })
					d.expect("CANCEL 0")
					test.daemon(c, d)
					closed.must(t)
					if at := ended.must(t); at != test.after {
						t.Errorf("closed after %v, want %v", at, test.after)
					}
				})
			})
		}
	}
}

// Close first cancels waiting calls whose grant would outlast the connection. Their callers get
// ErrClosed.
func TestCloseCancelsLocksThatOutlastIt(t *testing.T) {
	for name, opts := range map[string][]Option{
		"for a process":  {WithHold(HoldPID)},
		"for its ttl":    {WithHold(HoldTTL)},
		"for its linger": {WithLinger(time.Second)},
	} {
		for _, granted := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, d := dialScripted(t)
					locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", opts...) })
					d.line()
					closed := async(func() (int, error) { return 0, c.Close() })
					d.expect("CANCEL 0")
					_, err := locked.wait()
					want(t, "lock", err, ErrClosed)
					if granted {
						d.say(grant("0", "job", "abc", 0, ttl), "OK")
						d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
					} else {
						d.say("@0 ERR CANCELLED", "OK")
					}
					closed.must(t)
					d.at("the end", 0)
					nothingLeft(t, c)
				})
			})
		}
	}
}

// If the lock is granted as Close is called, the caller gets the lease or the client unlocks it.
func TestCloseAsALockIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job", WithHold(HoldPID)) })
		d.line()
		d.say(grant("0", "job", "abc", 0, ttl))
		closed := async(func() (int, error) { return 0, c.Close() })
		if _, err := locked.wait(); err != nil { // without an error the process keeps the lock, as documented
			want(t, "lock", err, ErrClosed)
			tag, line := d.tagged()
			if tag == "CANCEL" { // it was not granted yet
				tag, line = d.tagged()
			}
			if line != "UNLOCK lease=abc" {
				t.Errorf("the daemon read %q, want UNLOCK", line)
			}
			d.say("@" + tag + " OK")
			synctest.Wait()
			nothingLeft(t, c)
		}
		closed.must(t)
	})
}

// The next connection unlocks a grant that nobody waits for. It does not resume it first, because
// nobody uses it.
func TestUnlockOfAbandonedGrantAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := crossed(t)
		d.expectTagged("UNLOCK lease=abc")
		d.hangUp()
		d.greet()
		d.answerUnlock(c)
		if n := c.Resumed(); n > 0 {
			t.Errorf("%d leases were resumed", n)
		}
	})
}

// The grant arrives at the moment the caller gives up. Whichever is first, the lock is released.
func TestGrantBeforeTheCancel(t *testing.T) {
	c, d := dialScripted(t)
	ctx, cancel := context.WithCancel(t.Context())
	locked := async(func() (*Lease, error) { return c.Lock(ctx, "job") })
	d.expect("@0 LOCK job owner=1 id=t.1")
	c.mu.Lock() // the caller and the reader wait for it
	cancel()
	d.say(grant("0", "job", "abc", 0, ttl))
	c.mu.Unlock()
	l, err := locked.wait()
	if err == nil {
		defer async(func() (int, error) { return 0, l.Unlock(t.Context()) }).must(t)
	} else {
		want(t, "lock", err, context.Canceled)
		d.expect("CANCEL 0")
		d.say("ERR NOTHELD")
	}
	d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
	pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
	d.say(d.expectTagged("PING") + " OK") // by now the answer to UNLOCK has been read
	pinged.must(t)
	nothingLeft(t, c)
}

// If the daemon's wait ends less than a millisecond before the context's deadline, the deadline
// counts as reached.
func TestDeadlineInFractions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+900*time.Microsecond)
		defer cancel()
		locked := async(func() (int, error) { return 0, lockErr(c.Lock(ctx, "job")) })
		tag := d.expectTagged("LOCK job wait=980 owner=1 id=t.1")
		time.Sleep(980 * time.Millisecond)
		d.say(tag + " ERR HELD lock=job ttl=5000")
		_, err := locked.wait()
		want(t, "lock", err, context.DeadlineExceeded)
		want(t, "lock", err, ErrHeld)
	})
}

// The daemon hangs: CANCEL cannot even be written.
func TestCancelWhileTheDaemonHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, "lock", lockErr(c.Lock(ctx, "job")), context.DeadlineExceeded)
		d.at("the end of the call", time.Second)
		d.expect("@0 LOCK job wait=980 owner=1 id=t.1")
		d.expect("CANCEL 0")
		d.say("@0 ERR CANCELLED", "OK")
		synctest.Wait()
		nothingLeft(t, c)
	})
}

func TestCancelAndThenTheConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithCancel(t.Context())
		locked := async(func() (*Lease, error) { return c.Lock(ctx, "job") })
		d.line()
		cancel()
		_, err := locked.wait()
		want(t, "lock", err, context.Canceled)
		d.hangUp()
		nothingLeft(t, c)
	})
}

// An answer that has arrived counts, even if the context has ended.
func TestAnswerBeforeTheEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := dialScripted(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // either of the two cases of await's select may win
			cl := newCall(ipc.VerbLock, "job")
			c.enter()
			c.core.end(cl, ErrHeld, false)
			c.exit()
			want(t, "lock", c.await(ctx, cl), ErrHeld)
		}
	})
}

// CANCEL is sent for LOCK only. The answer to any other abandoned request is dropped.
func TestOtherRequestsAreAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked := async(func() ([]Holder, error) { return c.Who(ctx, "job") })
		d.expect("@0 WHO job")
		_, err := asked.wait()
		want(t, "who", err, context.DeadlineExceeded)
		d.at("the end of the call", time.Second)
		again := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.expect("@1 PING") // not tag 0, because its request is not answered yet
		d.say("@0 - lock=job", "@0 OK n=1", "@1 OK")
		again.must(t)
		synctest.Wait()
		nothingLeft(t, c)
	})
}

// The client's permits are not more than the requests in flight that the daemon accepts by default.
func TestPermitsFitLimitOfDaemon(t *testing.T) {
	if n := maxInFlight[roomLock] + maxInFlight[roomOther] + maxInFlight[roomResume]; n > server.DefaultMaxInFlight {
		t.Errorf("%d requests can be in flight, and the daemon takes %d", n, server.DefaultMaxInFlight)
	}
}

// Locks beyond the permits wait for one. The requests that end their wait have permits of their
// own.
func TestPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range maxInFlight[roomLock] {
			wg.Go(func() { _, _ = c.Lock(ctx, strconv.Itoa(i)) })
			d.line()
		}
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		want(t, "a lock too many", lockErr(c.Lock(short, "job")), context.DeadlineExceeded)
		d.at("the end of the call", time.Second)
		patient := async(func() (*Lease, error) { return c.TryLock(t.Context(), "job") })
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.say(d.expectTagged("PING") + " OK")
		pinged.must(t)
		d.say("@0 ERR HELD")
		n := strconv.FormatInt(int64(maxInFlight[roomLock]+2), 36) // the lock too many has one as well
		d.expect("@0 TRY job owner=" + n + " id=t." + n)
		d.say(grant("0", "job", "abc", time.Second, ttl))
		patient.must(t)
		wg.Go(func() {
			for d.line() != "" {
			}
		})
		cancel()
		synctest.Wait()
		c.Close()
		wg.Wait()
	})
}

// If the daemon reads nothing, the client buffers a bounded number of requests.
func TestUnwrittenRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		held := d.lock(c, "held", "abc")
		maxLocks := maxInFlight[roomLock]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		name := strings.Repeat("%", 200) // 600 bytes when escaped; the note as well
		var refused atomic.Int32
		var wg sync.WaitGroup
		for range maxLocks {
			wg.Go(func() {
				_, err := c.Lock(ctx, name, WithNote(name))
				switch {
				case errors.Is(err, ErrUnavailable):
					refused.Add(1)
				case !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("lock: %v, want ErrUnavailable or DeadlineExceeded", err)
				}
			})
		}
		wg.Wait()
		d.at("the end of the calls", time.Second)
		if refused.Load() == 0 || int(refused.Load()) == maxLocks {
			t.Errorf("%d of %d locks were refused, want some", refused.Load(), maxLocks)
		}
		want(t, "unlock", held.Unlock(ctx), context.DeadlineExceeded)
		count := make(map[string]int) // by verb
		for count["UNLOCK"] == 0 {
			line := strings.TrimPrefix(d.line(), "@")
			if _, rest, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "CANCEL") {
				line = rest
			}
			count[strings.Fields(line)[0]]++
		}
		if count["LOCK"] != maxLocks-int(refused.Load()) || count["CANCEL"] != count["LOCK"] {
			t.Errorf("the daemon read %v at last, want as many CANCEL as LOCK, of %d", count, maxLocks-int(refused.Load()))
		}
	})
}

// Locks that are abandoned at any moment leave nothing in the daemon.
func TestCancelAtAnyMoment(t *testing.T) {
	m := startModel(t)
	c := m.dial()
	var inside [8]atomic.Int32
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(50*time.Millisecond))))
			defer cancel()
			l, err := c.Lock(ctx, strconv.Itoa(i%len(inside)))
			if err != nil {
				want(t, "lock", err, context.DeadlineExceeded)
				return
			}
			if n := inside[i%len(inside)].Add(1); n != 1 {
				t.Errorf("%d hold lock %d", n, i%len(inside))
			}
			inside[i%len(inside)].Add(-1)
			if err := l.Unlock(ctx); err != nil {
				want(t, "unlock", err, context.DeadlineExceeded)
			}
		})
	}
	wg.Wait()
	m.mustBecomeEmpty(c)
	nothingLeft(t, c)
}

func TestThousandGoroutines(t *testing.T) {
	m := startModel(t)
	c := m.dial()
	var inside [10]atomic.Int32
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			name := i % len(inside)
			err := c.Do(t.Context(), strconv.Itoa(name), func(ctx context.Context, l *Lease) error {
				if n := inside[name].Add(1); n != 1 {
					t.Errorf("%d hold lock %d", n, name)
				}
				defer inside[name].Add(-1)
				return ctx.Err()
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	m.mustBecomeEmpty(c)
	nothingLeft(t, c)
}

// TestFullSocket stops a daemon (as SIGSTOP does) until its socket is full, and lets it continue.
func TestFullSocket(t *testing.T) {
	m := startModel(t)
	c := m.dial()
	held, err := c.Lock(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock() // the model hangs
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	const locks = 2000 // more than the socket and the model buffer
	for i := range locks {
		wg.Go(func() {
			_, err := c.Lock(ctx, "held", WithNote(strings.Repeat("x", 190)+strconv.Itoa(i)))
			want(t, "lock", err, context.Canceled)
		})
	}
	waitUntil(t, "all are about to be sent", func() bool { return c.busy(roomLock) == locks })
	cancel()
	wg.Wait()
	want(t, "unlock", held.Unlock(ctx), context.Canceled)
	m.mu.Unlock()
	m.mustBecomeEmpty(c)
	if n := c.Reconnects(); n > 0 {
		t.Errorf("%d new connections, want none: a full socket is no end", n)
	}
}

// waitUntil polls for an event. Its time limit ends only a test that fails.
func waitUntil(t *testing.T, what string, happened func() bool) {
	t.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for giveUp := time.Now().Add(2 * time.Minute); !happened(); <-poll.C {
		if time.Now().After(giveUp) {
			t.Fatalf("%s: never", what)
		}
	}
}
