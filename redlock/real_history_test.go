package redlock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// history has the grants of the hosts, with times of the one clock that they share: both hosts
// run on one machine.
type history struct {
	site     *site
	hosts    []*host
	stopping chan struct{} // closed to end the work
	workers  sync.WaitGroup

	mu  sync.Mutex // guards what follows
	all []*holding
}

// holding is one grant. It has only what the holder learned, and nothing read from the nodes.
type holding struct {
	host, lock string
	fence      uint64
	asked      time.Duration // BootTime before the attempt
	granted    time.Duration // when the holder could begin to work
	until      time.Duration // the last stated deadline, or the release
}

// work starts several callers on each host. They acquire the same few locks and hold them for
// random times, mostly to the deadline, until wantSafe or stop.
func (s *site) work(hosts ...*host) *history {
	h := &history{site: s, stopping: make(chan struct{})}
	for _, host := range hosts {
		h.join(host, locksAtWork)
	}
	s.Cleanup(h.stop)
	return h
}

// join makes a host request the first locks of the site.
func (h *history) join(host *host, locks int) {
	h.hosts = append(h.hosts, host)
	for lock := range locks {
		w := &worker{host: host, name: name("host%d", len(h.hosts)-1), lock: name("x%d", lock), history: h, stopping: h.stopping}
		h.workers.Go(w.run)
	}
}

// stop ends the work and waits for it. It may be called repeatedly.
func (h *history) stop() {
	if h.stopping != nil {
		close(h.stopping)
		h.stopping = nil
	}
	h.workers.Wait()
}

const locksAtWork = 4

type worker struct {
	host       *host
	name, lock string
	history    *history
	stopping   <-chan struct{}
}

func (w *worker) run() {
	for !w.isStopping() && !w.host.site.Failed() {
		asked := redlock.BootTime()
		l, err := w.host.Acquire(w.host.site.Context(), redlock.Request{
			Name: w.lock, TTL: quarantine/2 + rand.N(quarantine/2), Wait: redlock.Forever, StopRetrying: w.stopping, Keep: rand.N(3) == 0,
		})
		switch {
		case err == nil:
			w.hold(l, &holding{host: w.name, lock: w.lock, fence: l.Fence(), asked: asked, granted: redlock.BootTime()})
		case w.host.site.Context().Err() != nil:
			return // the test has failed
		case !errors.Is(err, redlock.ErrHeld) && !errors.Is(err, redlock.ErrNoQuorum):
			w.host.site.Error(err)
		}
	}
}

func (w *worker) isStopping() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// hold works under a lease: mostly to the end if the lease is not kept, otherwise for a while.
func (w *worker) hold(l *redlock.Lease, g *holding) {
	g.until = l.Deadline()
	w.history.add(g)
	done := time.NewTimer(rand.N(2 * quarantine))
	defer done.Stop()
	select {
	case <-l.Lost():
	case <-done.C:
	case <-w.stopping:
	}
	released := redlock.BootTime()
	_ = l.Release(w.host.site.Context()) // nodes may be down, and the lease lost: these tests cause both
	until := l.Deadline()
	if !errors.Is(l.Err(), redlock.ErrLost) {
		until = min(until, released)
	}
	w.history.ended(g, until)
}

func (h *history) add(g *holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, g)
}

func (h *history) ended(g *holding, until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.until = until
}

func (h *history) grants() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// more waits for as many further grants as there are locks.
func (h *history) more() {
	h.site.Helper()
	n := h.grants() + locksAtWork
	h.hosts[0].eventually("locks are granted again", func() bool { return h.grants() >= n })
}

// share returns how many hosts were granted a lock.
func (h *history) share() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	hosts := map[string]bool{}
	for _, g := range h.all {
		hosts[g.host] = true
	}
	return len(hosts)
}

// doubles returns the pairs of grants of one lock that overlap.
func (h *history) doubles() (all []string) {
	return h.pairs(func(a, b *holding) string {
		if b.granted >= a.until {
			return ""
		}
		return fmt.Sprintf("%s was granted to %s %v before the stated deadline of %s", b.lock, b.host, a.until-b.granted, a.host)
	})
}

// disorder returns the pairs of grants of one lock whose fencing tokens do not show which came
// first.
func (h *history) disorder() (all []string) {
	return h.pairs(func(a, b *holding) string {
		if b.fence != a.fence && (b.fence > a.fence || b.asked < a.granted) {
			return ""
		}
		return fmt.Sprintf("%s was granted with fencing token %d to %s, which requested it after %s was granted %d", b.lock, b.fence, b.host, a.host, a.fence)
	})
}

// pairs returns what bad reports for each pair of grants of one lock, with the earlier grant
// first.
func (h *history) pairs(bad func(a, b *holding) string) (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(h.all, func(a, b *holding) int { return int(a.granted - b.granted) })
	for i, b := range h.all {
		for _, a := range h.all[:i] {
			if a.lock == b.lock {
				if text := bad(a, b); text != "" {
					all = append(all, text)
				}
			}
		}
	}
	return all
}

// wantSafe waits for more grants, at least one for each host, and ends the work. It checks that
// there were never two holders, and that tokens are in order.
func (h *history) wantSafe() {
	h.site.Helper()
	h.more()
	h.hosts[0].eventually("each host was granted something", func() bool { return h.share() == len(h.hosts) })
	h.stop()
	for _, text := range append(h.doubles(), h.disorder()...) {
		h.site.Error(text)
	}
}
