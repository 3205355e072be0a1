package simulation

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// ForcedWriteBack is a FORCE between an acquire and the write-back of its fencing token. Between
// the two, another host acquires the lock and gets the same token from other nodes.
var ForcedWriteBack = &Scene{Name: "FORCE before a write-back", play: (*world).forceBeforeWriteBack}

// Scenes returns the scenes in which an attempt fails because its lock disappears.
func Scenes() []*Scene { return []*Scene{ForcedWriteBack} }

// forceBeforeWriteBack is ForcedWriteBack. The first host cannot reach node c. Soon the second host
// cannot reach node a. Clocks do not affect the tokens, because all counters are ahead of them.
//
//	 0 ms  the first host's acquire is sent; a and b execute it at 1 ms
//	 2 ms  the second host sends FORCE, which deletes the lock at about 60 ms
//	48 ms  the first host has the answers, which differ, and sends a write-back
//	65 ms  the second host is granted the lock by b and c
//	76 ms  a and b execute the write-back, although the first host no longer holds the lock
func (w *world) forceBeforeWriteBack(ctx context.Context) {
	first, second, lock := w.hosts[0], w.hosts[1], w.locks[0]
	time.Sleep(heartbeat / 2) // the hosts are connected, and send nothing else to the nodes now
	beyond := uint64(time.Now().Add(time.Hour).UnixMicro())
	for i, counter := range []uint64{beyond, beyond - 1, beyond} {
		w.nodes[i].setCounter(lock, counter)
	}
	const acquired, written = time.Millisecond, 28 * time.Millisecond
	first.links[2].losesRequests.Store(true)
	first.setDelays(acquired, nodeTimeout-3*time.Millisecond)
	var clients sync.WaitGroup
	clients.Go(func() { w.useBriefly(ctx, first, lock) })
	time.Sleep(2 * acquired)
	first.setDelays(written, acquired)

	q, _ := second.daemon()
	(&operator{w: w}).force(ctx, second, q, lock)
	second.links[0].losesRequests.Store(true)
	w.useBriefly(ctx, second, lock)
	clients.Wait()
	for _, h := range w.hosts {
		for _, l := range h.links {
			l.losesRequests.Store(false)
			l.exact.Store(nil)
		}
	}
}

// useBriefly tries to acquire a lock once, and releases it.
func (w *world) useBriefly(ctx context.Context, h *host, lock string) {
	q, life := h.daemon()
	l, record, err := w.ask(ctx, q, h, life, redlock.Request{Name: lock, TTL: finalTTL})
	if err != nil {
		return
	}
	time.Sleep(time.Millisecond)
	record.Grant.releasing()
	_ = l.Release(ctx)
}

// setCounter sets the node's counter for a lock.
func (n *simNode) setCounter(lock string, counter uint64) {
	n.Do("HSET", redlocktest.NodeKey, counterOf(redlock.DefaultPrefix+lock), strconv.FormatUint(counter, 10))
}
