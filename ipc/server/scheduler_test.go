package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// While other users are active, a user may take a quarter of the processors, and half a millisecond
// of that at once. A lone user may take everything.
func TestSchedulerAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(2, nil)
		a, b := s.join(user(1)), s.join(user(2))
		wantTaken(t, "alone", a, time.Hour, false)
		wantTaken(t, "the first time of another", b, burst, false)
		wantTaken(t, "beside the other, at once", a, burst, false)
		wantTaken(t, "and more", a, time.Microsecond, true)
		time.Sleep(2 * time.Microsecond)
		wantTaken(t, "what was too much is paid by half a processor", a, 0, false)
		time.Sleep(10 * time.Millisecond)
		wantTaken(t, "a pause saves up no more than a burst", a, burst+time.Microsecond, true)
		wantTaken(t, "the other is not affected", b, burst, false)
		time.Sleep(activityWindow - 1)
		wantTaken(t, "the other was active lately", a, time.Second, true)
		time.Sleep(activityWindow)
		wantTaken(t, "the other was not active lately", a, time.Second, false)
	})
}

// A user that took much is delayed for maxDebt at most.
func TestSchedulerDebtIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(1, nil)
		a, b := s.join(user(1)), s.join(user(2))
		a.noteActive(s.now())
		b.noteActive(s.now())
		a.charge(s.now(), time.Hour)
		time.Sleep(maxDebt - 1)
		b.noteActive(s.now())
		wantTaken(t, "before", a, 0, true)
		time.Sleep(time.Nanosecond)
		b.noteActive(s.now())
		wantTaken(t, "after", a, 0, false)
	})
}

func user(uid uint32) Peer { return Peer{UID: uid, Known: true} }

func wantTaken(t *testing.T, what string, u *userShare, cost time.Duration, over bool) {
	t.Helper()
	if got := u.charge(u.scheduler.now(), cost); got != over {
		t.Errorf("%s: %v exceed the allowance: %v, want %v", what, cost, got, over)
	}
}

// Slots go round by user, and by connection of a user. Each turn starts when the previous use is
// paid.
func TestSchedulerSlotsGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(2, nil)
		users := []*userShare{s.join(user(1)), s.join(user(2))}
		time.Sleep(time.Second)
		users[0].paidAt.Store(int64(time.Hour))
		first := users[0].waitForSlot(nil)
		var turns []string
		start := time.Now()
		for _, name := range []string{"a1", "a2", "b1", "a3", "b2"} {
			go func() {
				u := users[name[0]-'a']
				u.paidAt.Store(int64(time.Hour))
				p := u.waitForSlot(nil)
				turns = append(turns, fmt.Sprint(name, " ", time.Since(start)))
				p.used = quantum
				s.returnSlot(p, s.now())
			}()
			synctest.Wait() // so that they queue in this order
		}
		first.used = 10 * quantum
		s.returnSlot(first, s.now())
		time.Sleep(time.Second)
		synctest.Wait()
		// The first holder may use half a millisecond before it is paid for.
		want := []string{"a1 3.5ms", "b1 3.9ms", "a2 4.3ms", "b2 4.7ms", "a3 5.1ms"}
		if !slices.Equal(turns, want) {
			t.Errorf("got  %v\nwant %v", turns, want)
		}
	})
}

// If a connection is woken while it waits for a slot, it does not block the others.
func TestSchedulerWaitIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(2, nil)
		u := s.join(user(1))
		u.paidAt.Store(int64(time.Hour))
		p := u.waitForSlot(nil)
		stops, over := make([]chan struct{}, 3), make(chan *slot, 3)
		for i := range stops { // one waits for the slot, and two for their turn
			stops[i] = make(chan struct{}, 1)
			go func() { over <- u.waitForSlot(stops[i]) }()
			synctest.Wait()
		}
		for _, stop := range slices.Backward(stops) { // each returns at once, even if the one before still waits
			start := time.Now()
			stop <- struct{}{}
			if got := <-over; got != nil || time.Since(start) > 0 {
				t.Errorf("a stopped wait returned %v after %v, want no slot at once", got, time.Since(start))
			}
		}
		p.used = time.Second
		s.returnSlot(p, s.now())
		go func() { over <- u.waitForSlot(stops[0]) }() // waits until the slot is paid for
		synctest.Wait()
		stops[0] <- struct{}{}
		if got := <-over; got != nil {
			t.Error("a stopped wait got the slot")
		}
		if got := u.waitForSlot(nil); got != p {
			t.Error("the slot is lost")
		}
	})
}

// The scheduler forgets a user without connections once its debt is paid. Reconnecting does not
// clear a debt.
func TestSchedulerForgetsPaidUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(2, nil)
		s.join(user(0)).noteActive(s.now())
		for uid := range uint32(1000) {
			u := s.join(user(uid + 1))
			u.charge(s.now(), time.Second)
			s.leave(u)
		}
		again := s.join(user(1))
		wantTaken(t, "after connecting again", again, 0, true)
		time.Sleep(maxDebt)
		s.join(user(0))
		if got := len(s.users); got != 2 {
			t.Errorf("%d users are known, want the 2 that are connected", got)
		}
	})
}

// A connection that waits for a slot goes on as soon as the user's allowance has paid its debt.
func TestSchedulerWaitEndsWithDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(2, nil)
		u := s.join(user(1))
		for _, take := range []bool{true, false} {
			u.paidAt.Store(int64(s.now() + time.Millisecond))
			start := time.Now()
			if take { // the slot is free, but not yet paid for
				p := <-s.slots
				p.paidAt = s.now() + time.Second
				s.slots <- p
			} else {
				<-s.slots
			}
			if got := u.waitForSlot(nil); got != nil {
				t.Error("a connection without debt got the slot")
			}
			if took := time.Since(start); took != time.Millisecond {
				t.Errorf("it took %v, want 1ms", took)
			}
		}
	})
}

// A user that was alone and reconnects after a long time is not limited.
func TestSchedulerReturningLoneUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(2, nil)
		for range 2 {
			u := s.join(user(1))
			wantTaken(t, "alone", u, time.Second, false)
			s.leave(u)
			time.Sleep(time.Hour)
		}
	})
}

// costly is a session whose PINGs cost 10 µs of processing. All else costs nothing.
type costly struct {
	fakeSession
	pings *atomic.Int64 // shared by all sessions
}

func (c *costly) Begin(call *Call) Work {
	switch call.Verb {
	case ipc.VerbPing:
		c.pings.Add(1)
		time.Sleep(10 * time.Microsecond)
	case ipc.VerbWho:
		return workFunc(func() { call.Reply(call.OK()) })
	case ipc.VerbQuit:
		call.Quit()
	}
	call.Reply(call.OK())
	return nil
}

// costs is a server with two processors.
type costs struct {
	*fakeDaemon
	pings, heldBack atomic.Int64
}

func startCostly(t *testing.T) *costs {
	c := &costs{fakeDaemon: newFake()}
	c.Open = func(conn *Conn) (Session, error) { return &costly{fakeSession{c.fakeDaemon, conn}, &c.pings}, nil }
	c.schedulerOnce.Do(func() { c.sharedScheduler = newScheduler(2, func() { c.heldBack.Add(1) }) })
	t.Cleanup(func() {
		if err := c.Shutdown(context.Background(), nil); err != nil {
			t.Error(err)
		}
	})
	return c
}

// as returns a connection of that user, through a pipe.
func (c *costs) as(uid uint32) net.Conn {
	here, there := net.Pipe()
	conn := newConn(&c.Server, there)
	conn.fairness = c.sharedScheduler.newFairness(user(uid)) // instead of the fairness of a pipe, which has no user
	c.register(conn)
	go c.serve(conn)
	return here
}

// flood sends PINGs without end.
func (c *costs) flood(uid uint32) {
	nc := c.as(uid)
	go io.WriteString(nc, strings.Repeat("@a PING\n", 100_000))
	go io.Copy(io.Discard, nc)
}

// A lone user is not slowed down, however many connections it has.
func TestSchedulerPipeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCostly(t)
		c.flood(1)
		c.flood(1)
		time.Sleep(200 * time.Millisecond)
		if got := c.pings.Load(); got < 39_980 || c.heldBack.Load() != 0 {
			t.Errorf("two connections have begun %d requests of 10 µs each in 200 ms, want 40000; held back: %d times", got, c.heldBack.Load())
		}
	})
}

// With two processors and two active users, a greedy user gets half of a processor as its allowance
// and a quarter of one from the slots, however many connections it has. The other user never waits.
func TestSchedulerPipeBesideAnother(t *testing.T) {
	for _, conns := range []int{1, 2, 20} {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCostly(t)
				good := c.as(2)
				for range conns {
					c.flood(1)
				}
				waited := askEach(t, good, time.Millisecond, 200*time.Millisecond)
				if got := c.pings.Load(); got < 14_250 || got > 15_750 {
					t.Errorf("%d requests of 10 µs have begun in 200 ms, want 15000; held back: %d times", got, c.heldBack.Load())
				}
				if waited > 0 {
					t.Errorf("the other has waited for %v", waited)
				}
			})
		})
	}
}

// Users that want more than their allowances share the slots evenly.
func TestSchedulerPipeAmongFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCostly(t)
		for _, uid := range []uint32{1, 2, 2, 2, 2} {
			c.flood(uid)
		}
		time.Sleep(200 * time.Millisecond)
		if got := c.pings.Load(); got < 23_750 || got > 26_250 {
			t.Errorf("%d requests of 10 µs have begun in 200 ms, want 25000", got)
		}
	})
}

// askEach sends one request at a time, and returns how long it waited for answers.
func askEach(t *testing.T, nc net.Conn, pause, until time.Duration) (waited time.Duration) {
	t.Helper()
	for range until / pause {
		start := time.Now()
		say(t, nc, "HELLO\n")
		hear(t, nc, "OK\n")
		waited += time.Since(start)
		time.Sleep(pause)
	}
	return waited
}

// Delayed connections do not delay a server that stops.
func TestSchedulerPipeShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCostly(t)
		good := c.as(2)
		for range 20 {
			c.flood(1)
		}
		askEach(t, good, time.Millisecond, 10*time.Millisecond)
		<-c.sharedScheduler.slots // takes the slot and never returns it
		c.sharedScheduler.users[userKey{1, true}].paidAt.Store(int64(time.Hour))
		askEach(t, good, time.Millisecond, 10*time.Millisecond)
		start := time.Now()
		if err := c.Shutdown(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}
