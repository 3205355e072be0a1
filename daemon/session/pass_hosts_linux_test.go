package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// grantChecker checks the grants of one lock to clients of several hosts.
type grantChecker struct {
	t       *testing.T
	inside  atomic.Int32
	highest atomic.Uint64
}

// enter checks that no other client has the lock.
func (c *grantChecker) enter(who string) {
	if c.inside.Add(1) != 1 {
		c.t.Errorf("%s has the lock beside another client", who)
	}
}

func (c *grantChecker) leave() { c.inside.Add(-1) }

// lockOnce takes and releases the lock over a connection.
func (c *grantChecker) lockOnce(w *wire) {
	grant := w.Say("LOCK a ttl=20s", grantedAs)
	fence, err := strconv.ParseUint(grant[1], 10, 64)
	c.enter("a client of redlockd")
	if last := c.highest.Swap(fence); err != nil || fence <= last {
		c.t.Errorf("the fencing token %s follows %d, %v", grant[1], last, err)
	}
	c.leave()
	w.Say("UNLOCK a", `OK .*`)
}

// tryAsForeign tries once to take the lock as other Redlock clients do, and releases it.
func (c *grantChecker) tryAsForeign(d *testDaemon, value string) (granted bool) {
	const ttl = 10 * time.Second
	began, n := redlock.BootTime(), 0
	for _, server := range d.Nodes.Servers {
		reply, err := server.Do("SET", "redlock:a", value, "NX", "PX", fmt.Sprint(ttl.Milliseconds()))
		if err == nil && reply.Str == "OK" {
			n++
		}
	}
	if granted = n > len(d.Nodes.Servers)/2 && redlock.BootTime()-began < ttl/2; granted {
		c.enter("another Redlock client")
		c.leave()
	}
	for _, server := range d.Nodes.Servers {
		if _, err := server.Do("EVAL", "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])", "1", "redlock:a", value); err != nil {
			c.t.Error(err)
		}
	}
	return granted
}

// Two hosts pass a lock among their clients, and another Redlock client also wants it. No two
// clients have it at once, fencing tokens increase over all passes, and every client gets the lock.
func TestPassBetweenHosts(t *testing.T) {
	grants := effort.Rounds(1000, 100_000)
	here := startDaemon(t, 3, longNodeTimeout)
	there := here.another()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := &grantChecker{t: t}
	var left atomic.Int64
	left.Store(int64(grants))
	var clients, foreign sync.WaitGroup
	for i := range 12 {
		w := here.dial()
		if i >= 6 {
			w = there.dial()
		}
		clients.Go(func() {
			for left.Add(-1) >= 0 && !t.Failed() {
				c.lockOnce(w)
			}
		})
	}
	var byForeign atomic.Int64
	foreign.Go(func() {
		random := rand.New(rand.NewPCG(1, 1))
		for n := 0; ctx.Err() == nil; n++ {
			if c.tryAsForeign(here, fmt.Sprint("foreign-", n)) {
				byForeign.Add(1)
			}
			select { // as these clients wait between two attempts
			case <-ctx.Done():
			case <-time.After(time.Duration(random.IntN(2000)) * time.Microsecond):
			}
		}
	})
	clients.Wait()
	daemontest.Eventually(t, "the other Redlock client gets the lock", func() bool { return byForeign.Load() > 0 })
	stop()
	foreign.Wait()
	for _, d := range []*testDaemon{here, there} {
		d.dial().Until("STATUS", `passes=[1-9]`)
	}
	daemontest.Eventually(t, "no keys are left", func() bool {
		return !strings.Contains(strings.Join(here.Keys(), " "), "redlock:a")
	})
}

// A waiter on another host gets the lock after at most one streak of grants, although the clients
// of this host could pass it on without end.
func TestPassesEndForAnotherHost(t *testing.T) {
	here := startDaemon(t, 3, longNodeTimeout)
	there := here.another()
	c := &grantChecker{t: t}
	var stop atomic.Bool
	var clients sync.WaitGroup
	for range 6 {
		w := here.dial()
		clients.Go(func() {
			for !stop.Load() && !t.Failed() {
				c.lockOnce(w)
			}
		})
	}
	defer clients.Wait()
	defer stop.Store(true)
	here.dial().Until("STATUS", `passes=[1-9]\d\d`)
	other := there.dial()
	for range 10 {
		c.lockOnce(other)
	}
}
