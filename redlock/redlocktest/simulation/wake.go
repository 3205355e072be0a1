package simulation

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// wakeUps checks, while all is well, that who waits for a lock is told when another host
// gives it back: also where that comes between his refusal and his being listened for,
// which the nodes do one after the other here, and serve others in between.
func (w *world) wakeUps(ctx context.Context) {
	for _, n := range w.nodes {
		n.Between(func(next redlock.Command) time.Duration {
			if next[0] == "CLIENT" && next[1] == "CACHING" {
				return untilArmed
			}
			return 0
		})
		defer n.Between(nil)
	}
	random := w.plan.stream(streamWake)
	for i, h := range w.hosts {
		w.wakeUp(ctx, random, h, w.hosts[(i+1)%len(w.hosts)], w.locks[0])
	}
}

const (
	untilArmed = 20 * time.Millisecond
	// wokenWithin is the rest of that attempt and another one, and the time between
	// them at which who was woken tries: node_timeout at most. Who is not woken tries
	// again after a sixth of his ttl, 250 ms, at the soonest.
	wokenWithin = 200 * time.Millisecond
)

// wakeUp has one host give a lock back at about the time at which another begins to
// wait for it.
func (w *world) wakeUp(ctx context.Context, random *rand.Rand, holder, waiter *host, lock string) {
	q, life := holder.daemon()
	l, g := w.take(ctx, q, holder, life, redlock.Request{Name: lock, TTL: finalTTL, Wait: finalWait})
	if l == nil {
		return
	}
	var waits sync.WaitGroup
	waits.Go(func() {
		q, life := waiter.daemon()
		r := redlock.Request{Name: lock, TTL: simulatedMaxTTL, Wait: finalTTL, Held: true}
		if l, woken := w.take(ctx, q, waiter, life, r); l != nil {
			woken.releasing()
			_ = l.Release(ctx)
			w.record.woken(g, woken)
		}
	})
	time.Sleep(below(random, untilArmed+5*time.Millisecond))
	g.releasing()
	_ = l.Release(ctx)
	waits.Wait()
}

// take takes a lock that is to be had, sooner or later.
func (w *world) take(ctx context.Context, q *redlock.Quorum, h *host, life int, r redlock.Request) (*redlock.Lease, *Grant) {
	record := w.record.request(h, life, "calm", &r)
	r.Holder, r.Failed = record.holder(), record.failed
	l, err := q.Acquire(ctx, r)
	if err != nil {
		record.ended(err)
		w.record.stuck(record, err)
		return nil, nil
	}
	g := record.granted(l)
	w.lookAtGrant(g)
	return l, g
}

// woken notes when a lock was given back that another waited for, who has it now.
func (r *chronicle) woken(before, after *Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Wakes = append(r.report.Wakes, Wake{Given: before, Taken: after})
}

// Wake is a lock that was given back while another host waited for it.
type Wake struct{ Given, Taken *Grant }

// checkWakes: who waits is told.
func (r *Report) checkWakes() {
	for _, wake := range r.Wakes {
		if took := wake.Taken.At - wake.Given.Releasing; took > wokenWithin {
			r.violate("wake", wake.Taken.At, "%s was given back (lease %d), and who waited for it had it %v later (lease %d)", wake.Taken.Lock, wake.Given.N, took, wake.Taken.N)
		}
	}
}
