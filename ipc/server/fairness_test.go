package server

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// costlyBeside is startCostly with two active users: the second has just sent a request.
func costlyBeside(t *testing.T) *costs {
	t.Helper()
	c := startCostly(t)
	time.Sleep(time.Second) // fake time: there was nobody
	for uid := range uint32(2) {
		askEach(t, c.as(uid+1), time.Microsecond, time.Microsecond)
	}
	return c
}

// A slot is returned after a quantum, even if each request takes little.
func TestFairnessReturnsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(2, nil)
		p := s.newFairness(user(1))
		p.slot = <-s.slots
		for i := range 10 {
			if p.slot == nil {
				t.Fatalf("the slot is returned after %d tenths of a quantum", i)
			}
			p.extraCost = quantum / 10
			p.charge()
		}
		if p.slot != nil || len(s.slots) != 1 {
			t.Error("the slot is not returned")
		}
	})
}

// A connection that waits for input, or has ended, has no slot.
func TestFairnessIdleHasNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := costlyBeside(t)
		nc := c.as(1)
		for n := range 30 {
			go io.WriteString(nc, strings.Repeat("PING\n", 200+n)) // what fails is not heard
			hear(t, nc, strings.Repeat("OK\n", 200+n))
			synctest.Wait()
			if len(c.sharedScheduler.slots) != 1 {
				t.Fatalf("after %d lines it has a place", 200+n)
			}
		}
		if c.heldBack.Load() == 0 {
			t.Error("it never had one")
		}
		u := c.sharedScheduler.users[userKey{1, true}]
		if u.refs != 2 {
			t.Errorf("two connections are %d", u.refs)
		}
		nc.Close()
		synctest.Wait()
		if u.refs != 1 {
			t.Errorf("one connection is %d", u.refs)
		}
	})
}

// A connection whose client does not read its last answers has no slot either.
func TestFairnessLastAnswersHoldNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := range 20 { // around what it has before it needs a place
			c := costlyBeside(t)
			nc := c.as(1)
			go io.WriteString(nc, strings.Repeat("PING\n", 110+n)+"QUIT\n") // what fails is not heard
			time.Sleep(activityWindow)
			if int(c.pings.Load()) < 110+n || len(c.sharedScheduler.slots) != 1 {
				t.Fatalf("after %d of %d lines there are %d places", c.pings.Load(), 110+n, len(c.sharedScheduler.slots))
			}
			nc.Close()
		}
	})
}

// costlyTable is costly, and a Journal.
type costlyTable struct {
	costly
	*table
}

// Before a connection is delayed, the answers to its requests are sent, and the journal has what
// was read and has not begun.
func TestFairnessDelayedIsRecordedAndAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCostly(t)
		tab := newTable()
		c.Open = func(conn *Conn) (Session, error) {
			return &costlyTable{costly{fakeSession{c.fakeDaemon, conn}, &c.pings}, tab}, nil
		}
		held, goOn := make(chan struct{}), make(chan struct{})
		c.sharedScheduler.heldBack = sync.OnceFunc(func() {
			close(held)
			<-goOn
		})
		askEach(t, c.as(2), time.Microsecond, time.Microsecond)
		const n = 200
		nc := c.as(1)
		say(t, nc, strings.Repeat("PING\n", n))
		<-held
		begun := int(c.pings.Load())
		if want := strings.Repeat("PING\n", n-begun); begun == 0 || tab.rest != want {
			t.Errorf("%d of %d have begun, and noted is %q", begun, n, tab.rest)
		}
		hear(t, nc, strings.Repeat("OK\n", begun))
		close(goOn)
		hear(t, nc, strings.Repeat("OK\n", n-begun))
	})
}

// Costs that are not measured have a price: a connection, being woken, and a Work.
func TestFairnessPrices(t *testing.T) {
	for what, tt := range map[string]struct {
		price time.Duration
		do    func(c *costs, nc net.Conn) net.Conn
		line  string
	}{
		"waking":     {receiveCost, func(_ *costs, nc net.Conn) net.Conn { return nc }, "HELLO\n"},
		"a Work":     {receiveCost + workCost, func(_ *costs, nc net.Conn) net.Conn { return nc }, "WHO x\n"},
		"connecting": {openCost + 2*receiveCost, func(c *costs, nc net.Conn) net.Conn { return c.as(1) }, "HELLO\n"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := costlyBeside(t)
				<-c.sharedScheduler.slots // there is only the allowance, which is half a processor
				nc, start := c.as(1), time.Now()
				const n = 500
				for range n {
					nc = tt.do(c, nc)
					say(t, nc, tt.line)
					hear(t, nc, "OK\n")
				}
				if took, want := time.Since(start), 2*(n*tt.price-burst); took < want || took > want+200*time.Microsecond {
					t.Errorf("%d times took %v, want %v", n, took, want)
				}
			})
		})
	}
}

// A new user has no debt, and is not delayed.
func TestFairnessOfNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := costlyBeside(t)
		if waited := askEach(t, c.as(3), time.Millisecond, 10*time.Millisecond); waited != 0 || c.heldBack.Load() != 0 {
			t.Errorf("it waited for %v, and was held back %d times", waited, c.heldBack.Load())
		}
	})
}

// Connections that are delayed before they are opened do not delay a server that stops or freezes.
func TestFairnessStopBeforeOpening(t *testing.T) {
	for what, stop := range map[string]func(*Server) error{
		"Shutdown": func(s *Server) error { return s.Shutdown(context.Background(), nil) },
		"Freeze":   func(s *Server) error { return s.Freeze(context.Background(), FreezeOptions{}) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := costlyBeside(t)
				<-c.sharedScheduler.slots // takes the slot and never returns it
				c.sharedScheduler.users[userKey{1, true}].paidAt.Store(int64(time.Hour))
				for range 3 {
					go io.Copy(io.Discard, c.as(1))
				}
				synctest.Wait()
				if c.heldBack.Load() != 3 {
					t.Fatalf("%d are held back, want 3", c.heldBack.Load())
				}
				start := time.Now()
				if err := stop(&c.Server); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took > time.Millisecond {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// The scheduler counts the processors that Go uses, and calls HeldBack.
func TestServerSharesProcessors(t *testing.T) {
	held := 0
	d := newFake()
	d.HeldBack = func() { held++ }
	s := d.scheduler()
	if want := time.Duration(runtime.GOMAXPROCS(0)); s.procs != want {
		t.Errorf("%d processors are divided, want %d", s.procs, want)
	}
	stop := make(chan struct{})
	close(stop)
	if s.join(user(1)).waitForSlot(stop); held != 1 {
		t.Errorf("HeldBack is called %d times, want once", held)
	}
}

// The number of slots is half the number of processors, but at least one.
func TestSchedulerSlots(t *testing.T) {
	for procs, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 64: 32} {
		if got := len(newScheduler(procs, nil).slots); got != want {
			t.Errorf("with %d processors there are %d places, want %d", procs, got, want)
		}
	}
}
