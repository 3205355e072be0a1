package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// threeHosts returns three hosts with five servers.
func threeHosts(t *testing.T) (*site, []*host) {
	s := newSite(t, 5)
	var hosts []*host
	for range 3 {
		hosts = append(hosts, s.newHost(maxTTL(realTTL)))
	}
	for _, h := range hosts {
		h.eventually("the nodes report changes", func() bool {
			for _, node := range h.Status().Nodes {
				if !node.Calls {
					return false
				}
			}
			return true
		})
	}
	return s, hosts
}

// crowd tracks the clients in a critical section.
type crowd struct {
	testing.TB
	grow bool // fencing tokens only grow

	mu      sync.Mutex // guards what follows
	writers int
	readers int
	slots   map[int]bool
	most    int // at the same time
	fence   uint64
}

// in enters, stays for the given time, and leaves.
func (c *crowd) in(l *redlock.Lease, stay time.Duration) {
	c.enter(l, 1)
	time.Sleep(stay)
	c.enter(l, -1)
}

func (c *crowd) enter(l *redlock.Lease, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case l.Slot() > 0:
		c.take(l, by)
	case l.Shared():
		c.readers += by
	default:
		c.writers += by
	}
	if c.writers > 1 || c.writers == 1 && c.readers > 0 {
		c.Errorf("%d writers and %d readers of %s at the same time", c.writers, c.readers, l.Name())
	}
	if by > 0 && c.grow && l.Fence() <= c.fence {
		c.Errorf("%s: fencing token %d after %d", l.Name(), l.Fence(), c.fence)
	}
	c.most, c.fence = max(c.most, c.writers+c.readers+len(c.slots)), l.Fence()
}

// take records a slot. The caller holds mu.
func (c *crowd) take(l *redlock.Lease, by int) {
	if by > 0 && c.slots[l.Slot()] {
		c.Errorf("slot %d of %s is taken twice", l.Slot(), l.Name())
	}
	if by > 0 {
		c.slots[l.Slot()] = true
	} else {
		delete(c.slots, l.Slot())
	}
}

// everybody runs work n times on each host, concurrently.
func everybody(hosts []*host, n int, work func(h *host, who int)) {
	var wg sync.WaitGroup
	for _, h := range hosts {
		for who := range n {
			wg.Go(func() { work(h, who) })
		}
	}
	wg.Wait()
}

// Three hosts request the same locks in each kind.
func TestRealKinds(t *testing.T) {
	for what, request := range map[string]func(who int) redlock.Request{
		"exclusive": func(int) redlock.Request { return redlock.Request{Name: "x"} },
		"shared":    func(who int) redlock.Request { return redlock.Request{Name: "x", Shared: who > 0} },
		"slots":     func(int) redlock.Request { return redlock.Request{Name: "x", Slots: 3} },
		"several":   func(int) redlock.Request { return redlock.Request{Names: []string{"x", "y", "z"}} },
	} {
		t.Run(what, func(t *testing.T) {
			_, hosts := threeHosts(t)
			c := &crowd{TB: t, grow: what == "exclusive" || what == "several", slots: map[int]bool{}}
			begin := time.Now()
			everybody(hosts, 4, func(h *host, who int) {
				for range rounds(5) {
					r := request(who)
					r.TTL, r.Wait = realTTL, redlock.Forever
					ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
					l, err := h.Acquire(ctx, r)
					cancel()
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					c.in(l, 2*ms)
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
			counts := ""
			for _, h := range hosts {
				n := h.Status().Counts
				counts += fmt.Sprintf(" %d grants %d splits %d wakeups;", n.Grants, n.Splits, n.Wakeups)
			}
			t.Logf("%v, at most %d together:%s", time.Since(begin), c.most, counts)
		})
	}
}

// Other clients always want each of several names. A client that wants all of them still gets
// them. Guards op k.
func TestRealSeveralAreNotStarved(t *testing.T) {
	_, hosts := threeHosts(t)
	ctx, stop := context.WithTimeout(t.Context(), 5*patience)
	names := []string{"x", "y", "z"}
	var others sync.WaitGroup
	others.Go(func() {
		everybody(hosts[1:], len(names), func(h *host, who int) {
			for {
				l, err := h.Acquire(ctx, redlock.Request{Name: names[who], TTL: realTTL, Wait: redlock.Forever})
				if err != nil {
					return
				}
				time.Sleep(5 * ms)
				l.BeginRelease()
			}
		})
	})
	for range rounds(5) {
		l, err := hosts[0].Acquire(ctx, redlock.Request{Names: names, TTL: realTTL, Wait: redlock.Forever})
		if err != nil {
			t.Errorf("acquire all names: %v", err)
			break
		}
		l.BeginRelease()
	}
	if ctx.Err() != nil {
		t.Errorf("repeated grants of all names took more than %v", 5*patience)
	}
	stop()
	others.Wait()
}
