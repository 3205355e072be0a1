package client

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// The process holds the lock: the request has no owner, and the lease outlives the connection.
func TestHoldPID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		locked := async(func() (*Lease, error) {
			return c.Lock(t.Context(), "job", WithHold(HoldPID), WithPID(4121), WithBeat(time.Minute), WithTTL(ttl))
		})
		tag := d.expectTagged("LOCK job ttl=10000 hold=pid pid=4121 beat=60000 id=t.1")
		d.say(grant(tag[1:], "job", "abc", 0, ttl))
		l := locked.must(t)
		beaten := async(func() (int, error) { return 0, l.Beat(t.Context()) })
		d.say(d.expectTagged("BEAT lease=abc") + " OK lock=job")
		beaten.must(t)
		d.expectTagged("CHECK lease=abc")
		d.at("CHECK", checkAfter)
		d.stop()
		want(t, "cause after the end of the connection", endCause(l.Context()), nil)
		<-l.Context().Done()
		d.at("the end, as nobody confirms it", overAfter)
	})
}

func TestInvalidPIDOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := dialScripted(t)
		for _, opts := range [][]Option{
			{WithPID(7)}, {WithHold(HoldPID), WithPID(0)}, {WithHold(HoldPID + 1)}, {WithBeat(0)},
		} {
			want(t, fmt.Sprint(len(opts)), lockErr(c.Lock(t.Context(), "job", opts...)), ErrInvalid)
		}
		nothingLeft(t, c)
	})
}

// A BEAT that comes too late ends the lease, and its caller gets the error.
func TestBeatTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		beaten := async(func() (int, error) { return 0, l.Beat(t.Context()) })
		d.say(d.expectTagged("BEAT lease=abc") + " ERR LOST lock=job : lost (beat)")
		_, err := beaten.wait()
		want(t, "beat", err, ErrLost)
		want(t, "cause", endCause(l.Context()), ErrLost)
		nothingLeft(t, c)
	})
}

// Goroutines that find a lease at the same time get the same Lease, with all its fields set.
func TestLeaseIsFoundByManyAtOnce(t *testing.T) {
	const rounds, many = 300, 8
	synctest.Test(t, func(t *testing.T) {
		c, _ := dialScripted(t)
		find := func() (*Lease, error) {
			cl := findCall(t, c, "a")
			var r ipc.Response
			if err := ipc.ParseResponse([]byte(grant("1", "a", "abc", 0, ttl)), &r); err != nil {
				return nil, err
			}
			c.enter()
			err := c.core.found(cl, &r)
			c.exit()
			if l := cl.lease; err == nil && (l.Fence() != 77 || l.Validity() == 0) {
				err = fmt.Errorf("found one with the fencing token %d, valid for %v", l.Fence(), l.Validity())
			}
			return cl.lease, err
		}
		for range rounds {
			begin := make(chan struct{})
			var all []future[*Lease]
			for range many {
				all = append(all, async(func() (*Lease, error) {
					<-begin
					return find()
				}))
			}
			close(begin)
			first := all[0].must(t)
			for _, other := range all[1:] {
				if other.must(t) != first {
					t.Fatal("one lease is two")
				}
			}
			c.apply(first, wasLost, ErrClosed)
		}
		nothingLeft(t, c)
	})
}

// The end of a lost Lease does not remove another Lease with the same ID that was found later. The
// later one still gets LOST.
func TestOtherLeaseOfOneIDIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		find := func() *Lease {
			found := async(func() (*Lease, error) { return c.LeaseByID(t.Context(), "abc", "a") })
			d.say(grant(d.expectTagged("CHECK a lease=abc")[1:], "a", "abc", 0, ttl))
			return found.must(t)
		}
		before := find()
		c.apply(before, wasLost, ErrClosed)
		now := find()
		want(t, "unlock of the lost one", before.Unlock(t.Context()), ErrClosed)
		d.say("LOST lock=a lease=abc reason=forced : taken")
		synctest.Wait()
		want(t, "cause", endCause(now.Context()), ErrLost)
		nothingLeft(t, c)
	})
}

// findCall returns a CHECK for a lease with that name.
func findCall(t *testing.T, c *Client, name string) *call {
	cl := newCall(ipc.VerbCheck, name)
	cl.req.Names = []string{name}
	cl.lease = &Lease{c: c, name: name, hold: HoldPID, isFound: true, base: t.Context()}
	return cl
}

// lockCall returns a LOCK for that name. Its test passes it to Client.do, and later to core.taken, as Lock
// does.
func lockCall(t *testing.T, c *Client, hold Hold, names ...string) *call {
	cl := newCall(ipc.VerbLock, strings.Join(names, ","))
	cl.req.Names = names
	cl.lease = &Lease{c: c, name: cl.lockName, hold: hold, base: t.Context()}
	if len(names) > 1 {
		cl.lease.names = names
	}
	return cl
}

// If a lease is found as the Client is closed, it has ended.
func TestFoundWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		found := async(func() (*Lease, error) { return c.LeaseOf(t.Context(), 7, "a") })
		tag := d.expectTagged("CHECK a pid=7")
		c.stop() // a step of Close
		d.say(grant(tag[1:], "a", "abc", 0, ttl))
		l := found.must(t)
		c.Close()
		want(t, "cause", endCause(l.Context()), ErrClosed)
		want(t, "cause", endCause(l.Context()), ErrLost)
		if n := c.leaseCount(); n > 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

// A search finds a lease of this Client with all its fields set, even if Lock has not returned yet.
func TestOwnLeaseIsFoundBeforeLockReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		cl := lockCall(t, c, HoldConn, "job")
		l := cl.lease
		asked := async(func() (int, error) { return 0, c.do(t.Context(), cl) })
		d.expect("@0 LOCK job")
		d.say(grant("0", "job", "abc", 0, ttl) + " slot=3")
		asked.must(t)
		found := async(func() (*Lease, error) { return c.LeaseByID(t.Context(), "abc", "job") })
		d.say(grant(d.expectTagged("CHECK job lease=abc")[1:], "job", "abc", 0, ttl))
		if own := found.must(t); own != l || own.Fence() != 77 || own.Slot() != 3 || own.Validity() != ttl {
			t.Errorf("found one with the fencing token %d, slot %d, valid for %v", own.Fence(), own.Slot(), own.Validity())
		}
	})
}

// A search can come across a lease of this Client whose Lock has not returned yet. If the process is
// stopped meanwhile until the lease has ended, both get ErrLost, and the lease is unlocked.
func TestOwnLeaseEndsBeforeLockReturns(t *testing.T) {
	for _, hold := range []Hold{HoldConn, HoldPID} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			cl := lockCall(t, c, hold, "job")
			asked := async(func() (int, error) { return 0, c.do(t.Context(), cl) })
			d.expect("@0 LOCK job")
			d.say(grant("0", "job", "abc", 0, ttl))
			asked.must(t)
			var r ipc.Response
			want(t, "answer", ipc.ParseResponse([]byte(grant("1", "job", "abc", 0, ttl)), &r), nil)
			d.slept.Store(int64(ttl - ttl/5)) // both answers have arrived, but neither goroutine has run
			c.enter()
			want(t, "find", c.core.found(findCall(t, c, "job"), &r), ErrLost)
			want(t, "Lock", c.core.taken(cl.lease), ErrLost)
			c.exit()
			d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
			synctest.Wait()
			nothingLeft(t, c)
		})
	}
}

// A search does not find a lease of this Client that has ended here, although the daemon keeps it
// until the UNLOCK.
func TestOwnLeaseThatHasEndedIsNotFound(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(t *testing.T, d *scripted, l *Lease)
		want error
	}{
		"lost": {func(t *testing.T, d *scripted, l *Lease) { // the daemon hangs
			d.expectTagged("CHECK lease=abc")
			<-l.Context().Done()
		}, ErrLost},
		"unlocked": {func(t *testing.T, d *scripted, l *Lease) {
			go l.Unlock(t.Context())
			d.expectTagged("UNLOCK lease=abc")
		}, ErrNotHeld},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "job", "abc", WithHold(HoldPID))
				test.end(t, d, l)
				found := async(func() (*Lease, error) { return c.LeaseByID(t.Context(), "abc", "job") })
				d.say(grant(d.expectTagged("CHECK job lease=abc")[1:], "job", "abc", d.elapsed(), ttl))
				_, err := found.wait()
				want(t, "find", err, test.want)
			})
		})
	}
}

// A lease that another connection took is found by its process or its ID. Only Unlock releases it.
func TestLeaseOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		found := async(func() (*Lease, error) { return c.LeaseOf(t.Context(), 0, "a", "b") })
		d.say(grant(d.expectTagged(fmt.Sprintf("CHECK a,b pid=%d", os.Getpid()))[1:], "a,b", "abc", 0, ttl))
		l := found.must(t)
		if l.Name() != "a,b" || l.ID() != "abc" || l.Fence() != 77 || l.Validity() != ttl {
			t.Errorf("found %s, %s, %d, valid for %v", l.Name(), l.ID(), l.Fence(), l.Validity())
		}
		again := async(func() (*Lease, error) { return c.LeaseByID(t.Context(), "abc", "a", "b") })
		d.say(grant(d.expectTagged("CHECK a,b lease=abc")[1:], "a,b", "abc", 0, ttl))
		if again.must(t) != l {
			t.Error("one lease is two")
		}
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		d.say(d.expectTagged("UNLOCK lease=abc") + " OK lock=a,b")
		unlocked.must(t)
		nothingLeft(t, c)
	})
}

// If one of several names was revoked (FORCE), Unlock of a found lease releases the other names.
// Otherwise no client could take them before the deadline.
func TestFoundLeaseUnlocksRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		found := async(func() (*Lease, error) { return c.LeaseOf(t.Context(), 7, "a", "b") })
		d.say(grant(d.expectTagged("CHECK a,b pid=7")[1:], "a,b", "abc", 0, ttl))
		l := found.must(t)
		d.say(d.expectTagged("CHECK lease=abc") + " ERR LOST lock=a,b reason=forced")
		<-l.Context().Done()
		want(t, "unlock", l.Unlock(t.Context()), ErrLost)
		synctest.Wait()
		go c.Ping(t.Context()) // otherwise a failing test would hang
		d.say(d.expectTagged("UNLOCK lease=abc") + " ERR LOST lock=a,b reason=forced")
		d.say(d.expectTagged("PING") + " OK")
	})
}

// A found lease uses the daemon's guard, even if little time is left. NOTHELD at Unlock is not a
// loss, because the client that took the lease may have released it.
func TestFoundLeaseHasItsGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		found := async(func() (*Lease, error) { return c.LeaseOf(t.Context(), 7, "job") })
		d.say(grant(d.expectTagged("CHECK job pid=7")[1:], "job", "abc", 0, 1100*time.Millisecond) + " guard=1000")
		l := found.must(t)
		if l.Guard() != time.Second {
			t.Errorf("the guard is %v, want 1s", l.Guard())
		}
		extended := async(func() (int, error) { return 0, l.Extend(t.Context(), 0) })
		d.say(grant(d.expectTagged("EXTEND lease=abc")[1:], "job", "abc", 0, 2*time.Second) + " guard=900")
		extended.must(t)
		if l.Guard() != 900*time.Millisecond {
			t.Errorf("the guard is %v then, want 900 ms", l.Guard())
		}
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		d.say(d.expectTagged("UNLOCK lease=abc") + " ERR NOTHELD")
		if _, err := unlocked.wait(); !errors.Is(err, ErrNotHeld) || errors.Is(err, ErrLost) {
			t.Errorf("unlock: %v, want ErrNotHeld alone", err)
		}
		nothingLeft(t, c)
	})
}

// The client never unlocks a lease that it did not take, however long the daemon is silent.
func TestFoundLeaseIsNotUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		found := async(func() (*Lease, error) { return c.LeaseOf(t.Context(), 7, "job") })
		d.say(grant(d.expectTagged("CHECK job pid=7")[1:], "job", "abc", 0, ttl))
		l := found.must(t)
		d.expectTagged("CHECK lease=abc")
		<-l.Context().Done()
		d.at("the end, as nobody confirms it", overAfter)
		time.Sleep(time.Minute)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.say(d.expectTagged("PING") + " OK") // no UNLOCK was sent before
		pinged.must(t)
		if n := c.leaseCount(); n > 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

// If a found lease has ended when the answer is read, the client does not unlock it: its holder may
// still be working.
func TestLeaseFoundTooLateIsNotUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		found := async(func() (*Lease, error) { return c.LeaseOf(t.Context(), 7, "job") })
		d.say(grant(d.expectTagged("CHECK job pid=7")[1:], "job", "abc", 0, 0))
		_, err := found.wait()
		want(t, "find", err, ErrLost)
		time.Sleep(time.Minute)
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.say(d.expectTagged("PING") + " OK") // no UNLOCK was sent before
		pinged.must(t)
		nothingLeft(t, c)
	})
}

func TestLeaseOfNoHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		for code, sentinel := range map[ipc.Code]error{
			ipc.CodeNotHeld: ErrNotHeld, ipc.CodeLost: ErrLost, ipc.CodeDenied: ErrDenied,
		} {
			found := async(func() (*Lease, error) { return c.LeaseOf(t.Context(), 7, "job") })
			d.say(d.expectTagged("CHECK job pid=7") + " ERR " + string(code) + " lock=job : no")
			_, err := found.wait()
			want(t, string(code), err, sentinel)
		}
		_, err := c.LeaseOf(t.Context(), 7)
		want(t, "no name", err, ErrInvalid)
		nothingLeft(t, c)
	})
}

// An answer without a lease or a deadline is an error.
func TestLeaseOfWithoutItsFields(t *testing.T) {
	for _, answer := range []string{" OK", " OK lease=abc ttl=9000", " OK deadline=2000000 ttl=9000"} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			found := async(func() (*Lease, error) { return c.LeaseOf(t.Context(), 7, "job") })
			d.say(d.expectTagged("CHECK job pid=7") + answer)
			_, err := found.wait()
			want(t, answer, err, ErrInternal)
			nothingLeft(t, c)
		})
	}
}
