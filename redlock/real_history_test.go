package redlock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// history is what hosts were granted, by the one clock that they share: two
// hosts of a test are on one machine.
type history struct {
	mu  sync.Mutex // guards what follows
	all []*holding
}

// holding is one grant. Nothing is taken from the nodes: only what the holder
// was told.
type holding struct {
	host, lock string
	fence      uint64
	asked      time.Duration // BootTime before the attempt
	granted    time.Duration // and when the holder could begin to work
	until      time.Duration // the last deadline that was stated, or the release
}

// work is several callers on each host that take the same few locks and hold
// them for random times, mostly to the deadline, until stop is called. stop
// waits for them.
func (s *site) work(hosts ...*host) (h *history, stop func()) {
	h = &history{}
	enough := make(chan struct{})
	var all sync.WaitGroup
	for i, host := range hosts {
		for lock := range locksAtWork {
			w := &worker{host: host, name: name("host%d", i), lock: name("x%d", lock), history: h, enough: enough}
			all.Go(w.run)
		}
	}
	stop = sync.OnceFunc(func() {
		if !s.Failed() {
			hosts[0].eventually("every host had its share", func() bool { return len(h.shares()) == len(hosts) })
		}
		close(enough)
		all.Wait()
	})
	s.Cleanup(stop) // of a test that failed
	return h, stop
}

const locksAtWork = 4

type worker struct {
	host       *host
	name, lock string
	history    *history
	enough     <-chan struct{}
}

func (w *worker) run() {
	for !w.isEnough() && !w.host.site.Failed() {
		asked := redlock.BootTime()
		l, err := w.host.Acquire(w.host.site.Context(), redlock.Request{
			Name: w.lock, TTL: quarantine/2 + rand.N(quarantine/2), Wait: redlock.Forever, Enough: w.enough, Keep: rand.N(3) == 0,
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

func (w *worker) isEnough() bool {
	select {
	case <-w.enough:
		return true
	default:
		return false
	}
}

// hold works under a lease: mostly to the very end of one that is not kept, else
// for a while.
func (w *worker) hold(l *redlock.Lease, g *holding) {
	g.until = l.Deadline()
	w.history.add(g)
	done := time.NewTimer(rand.N(2 * quarantine))
	defer done.Stop()
	select {
	case <-l.Lost():
	case <-done.C:
	case <-w.enough:
	}
	released := redlock.BootTime()
	_ = l.Release(w.host.site.Context()) // nodes may be away, and the lease lost: both are what these tests are about
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

// more waits for n more grants.
func (h *history) more(host *host, n int) {
	host.site.Helper()
	n += h.grants()
	host.eventually("locks are granted again", func() bool { return h.grants() >= n })
}

// doubles are the pairs of grants of one lock inside each other's deadlines.
func (h *history) doubles() (all []string) {
	return h.pairs(func(a, b *holding) string {
		if b.granted >= a.until {
			return ""
		}
		return fmt.Sprintf("%s was granted to %s %v before the stated deadline of %s", b.lock, b.host, a.until-b.granted, a.host)
	})
}

// disorder are the pairs of grants of one lock whose fencing tokens do not show
// which came first.
func (h *history) disorder() (all []string) {
	return h.pairs(func(a, b *holding) string {
		if b.fence != a.fence && (b.fence > a.fence || b.asked < a.granted) {
			return ""
		}
		return fmt.Sprintf("%s has fencing token %d of %s, asked for after %s was granted %d", b.lock, b.fence, b.host, a.host, a.fence)
	})
}

// pairs are what bad says of all pairs of grants of one lock, the earlier first.
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

// wantSafe: never two holders, tokens in order, and each host had its share.
func (h *history) wantSafe(t testing.TB, hosts int) {
	t.Helper()
	for _, text := range append(h.doubles(), h.disorder()...) {
		t.Error(text)
	}
	if share := h.shares(); len(share) != hosts {
		t.Errorf("grants by host: %v: want some of each of %d", share, hosts)
	}
}

// shares are the grants by host.
func (h *history) shares() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	share := map[string]int{}
	for _, g := range h.all {
		share[g.host]++
	}
	return share
}
