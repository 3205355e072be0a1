//go:build linux

package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// If a client is killed, the next one gets its lock at once, and not when the ttl ends.
func TestLockOfKilledClient(t *testing.T) {
	t.Parallel()
	_, h, _ := five(t)
	watch := h.nc()
	var took []time.Duration
	for i := range rounds(15, 300) {
		holder, next := h.nc(), h.nc()
		request := fmt.Sprintf("LOCK job%d ttl=30s", i)
		deadline := number(t, holder.expect(request, "OK lock=job"), "deadline")
		next.send(request)
		waitFor(t, "the other client waits", func() bool { return watch.waiters() == 1 })
		killed := time.Now()
		holder.signal(syscall.SIGKILL)
		next.comes("OK lock=job")
		if over := bootTime(t) - time.Duration(deadline)*time.Millisecond; over >= 0 {
			t.Errorf("the next client waited until %v after the deadline, as if the lock had expired", over)
		}
		took = append(took, time.Since(killed))
		next.kill()
	}
	t.Logf("measured: %v (median of %d) from kill -9 of the holder to the next one's grant", median(took), len(took))
}
