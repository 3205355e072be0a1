//go:build linux

package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// If a client is killed, the next one gets its lock within 100 ms, from before the kill until its
// nc prints the grant. The bound is for the median, because a busy machine may delay any process
// for longer. About 2 ms were measured.
func TestLockOfKilledClient(t *testing.T) {
	t.Parallel()
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
