//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// If a client is killed, the next one gets its lock within 100 ms, from before the kill until its
// nc prints the grant. The bound is for the median, because a busy machine may delay any process
// for longer. About 2 ms were measured.
func TestLockOfKilledClient(t *testing.T) {
	together(t)
	_, h, _ := five(t)
	watch := h.nc()
	var took []time.Duration
	for i := range rounds(15, 300) {
		holder, next := h.nc(), h.nc()
		request := fmt.Sprintf("LOCK job%d", i)
		holder.expect(request, "OK lock=job")
		next.send(request)
		waitFor(t, "the other client waits", func() bool { return watch.waiters() == 1 })
		killed := time.Now()
		holder.signal(syscall.SIGKILL)
		next.comes("OK lock=job")
		took = append(took, time.Since(killed))
		next.kill()
	}
	t.Logf("measured: %v (median of %d) from kill -9 of the holder to the next one's grant", median(took), len(took))
	if got := median(took); got > 100*time.Millisecond {
		t.Errorf("median %v of %v, expected at most 100 ms", got, took)
	}
}

// Ctrl-C removes a waiting client from the queue.
func TestInterruptedWaiter(t *testing.T) {
	_, h, _ := five(t)
	holder, waiter, watch := h.nc(), h.nc(), h.nc()
	holder.expect("LOCK job", "OK lock=job")
	waiter.send("LOCK job")
	waitFor(t, "the client waits", func() bool { return watch.waiters() == 1 })
	interrupted := time.Now()
	waiter.signal(syscall.SIGINT)
	waitFor(t, "nobody waits", func() bool { return watch.waiters() == 0 })
	t.Logf("measured: %v from Ctrl-C of a waiter until it left the queue", time.Since(interrupted))
	for _, line := range watch.lines("LIST") {
		if strings.Contains(line, "state=waiting") {
			t.Errorf("LIST still shows %s", line)
		}
	}
	holder.expect("UNLOCK job", "OK lock=job")
	watch.expect("LOCK job wait=0", "OK lock=job")
}

// A hundred clients want one lock. No two hold it at once, and they get it in the order in which
// they came.
func TestHundredClientsOneLock(t *testing.T) {
	const clients = 100
	_, h, _ := five(t)
	watch, first := h.nc(), h.nc()
	first.expect("LOCK job", "OK lock=job")
	var holders atomic.Int64
	var mu sync.Mutex // guards order
	var order []int
	var done sync.WaitGroup
	for i := range clients {
		n := h.nc()
		n.send("LOCK job")
		waitFor(t, fmt.Sprintf("%d clients wait", i+1), func() bool { return watch.waiters() == int64(i+1) })
		done.Go(func() {
			granted, _, _ := n.stdout.next(time.After(2 * patience))
			if !strings.HasPrefix(granted, "OK lock=job ") {
				t.Errorf("client %d: got %q, expected the lock", i, granted)
				return
			}
			if others := holders.Add(1); others != 1 {
				t.Errorf("client %d is one of %d holders at once", i, others)
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			n.send("CHECK job") // a round trip, in which another client could get the lock
			if held, _, _ := n.stdout.next(time.After(patience)); !strings.HasPrefix(held, "OK lock=job ") {
				t.Errorf("client %d: got %q, expected to hold the lock", i, held)
			}
			holders.Add(-1)
			n.send("UNLOCK job")
		})
	}
	first.expect("UNLOCK job", "OK lock=job")
	awaitAll(t, 4*patience, &done, "all clients to get the lock", func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprint("these got it: ", order)
	})
	for i, client := range order {
		if i != client {
			t.Fatalf("granted in the order %v, expected that of arrival", order)
		}
	}
	waitFor(t, "nothing is held", func() bool { return len(watch.lines("LIST")) == 1 })
}
