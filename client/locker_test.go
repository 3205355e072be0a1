package client

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// panicked runs f and returns the error that it panics with, or nil.
func panicked(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(error)
		}
	}()
	f()
	return nil
}

// lockLocker calls l.Lock on another goroutine, and grants it the lease for 10 s.
func (d *scripted) lockLocker(l sync.Locker, lease string) {
	d.t.Helper()
	locked := async(func() (int, error) { return 0, panicked(l.Lock) })
	tag, request := d.tagged()
	if !strings.HasPrefix(request, "LOCK job ") || strings.Contains(request, "wait=") {
		d.t.Errorf("the daemon read %q, want a LOCK without a bound", request)
	}
	d.say(grant(tag, "job", lease, d.elapsed(), 10*time.Second))
	locked.must(d.t)
}

func TestLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := c.Locker("job", WithTTL(10*time.Second))
		for range 2 {
			d.lockLocker(l, "abc")
			unlocked := async(func() (int, error) { return 0, panicked(l.Unlock) })
			d.answerUnlock(c)
			unlocked.must(t)
		}
		want(t, "Unlock of a Locker that is not locked", panicked(l.Unlock), ErrNotHeld)
	})
}

func TestLockerPanicsIfRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := c.Locker("job")
		locked := async(func() (int, error) { return 0, panicked(l.Lock) })
		tag, _ := d.tagged()
		d.say("@" + tag + " ERR DENIED : no")
		_, err := locked.wait()
		want(t, "Lock", err, ErrDenied)
		want(t, "Unlock after it", panicked(l.Unlock), ErrNotHeld)
		c.Close()
		want(t, "Lock after Close", panicked(l.Lock), ErrClosed)
	})
}

// After a loss, another goroutine may take the lock through the same Locker. Both then call Unlock.
// The new lease stays until the second Unlock, in whichever order they call it.
func TestLockerUnlockPanicsOnLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := c.Locker("job", WithTTL(10*time.Second))
		d.lockLocker(l, "lost")
		d.say("LOST lock=job lease=lost reason=quorum")
		synctest.Wait()
		d.lockLocker(l, "abc")
		want(t, "the first Unlock", panicked(l.Unlock), ErrLost)
		c.mu.Lock()
		lease, n := c.core.leases["abc"], len(c.core.leases)
		c.mu.Unlock()
		if n != 1 || lease == nil || lease.Validity() == 0 {
			t.Fatalf("after it the client holds %d leases, and %v, want the new lease", n, lease)
		}
		unlocked := async(func() (int, error) { return 0, panicked(l.Unlock) })
		d.answerUnlock(c)
		unlocked.must(t)
	})
}

// Without a daemon the lock expires, so Unlock does not panic.
func TestLockerUnlockWithoutDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t, WithPatience(time.Second))
		l := c.Locker("job", WithTTL(10*time.Second))
		d.lockLocker(l, "abc")
		d.stop()
		if err := panicked(l.Unlock); err != nil {
			t.Errorf("Unlock panics with %v", err)
		}
		if err := panicked(l.Unlock); !errors.Is(err, ErrNotHeld) {
			t.Errorf("a second Unlock panics with %v, want ErrNotHeld", err)
		}
	})
}
