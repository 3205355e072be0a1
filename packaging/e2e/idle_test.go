//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// mostIdle is how long a lock that is wanted may be free. On a quiet machine it is less than a second. If
// only the first two waiters are told when to ask, it is more than 15 s.
const mostIdle = 14 * time.Second

// granted reads lines until a LOCK is answered. BACK may come before that.
func (g *guest) granted() bool {
	for {
		line, more := g.line()
		switch {
		case strings.HasPrefix(line, "OK lock=x"):
			return true
		case !more || strings.HasPrefix(line, "ERR"):
			return false
		}
	}
}

// Five hosts want a lock all the time. Each daemon replaces itself, half a second after the one before.
// The lock is not left free.
func TestRollingReloadLeavesNoLockFree(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.StartRedis(t, 5)
	cluster.Admit(t)
	var hosts []reloaded
	for range 5 {
		h := newHost(t, cluster)
		hosts = append(hosts, reloaded{h, cluster, h.serve()})
	}
	var mu sync.Mutex // guards the fields below; the holder of x has it while it notes its grant
	var released time.Time
	var idle time.Duration
	var grants int
	done := make(chan struct{})
	var workers sync.WaitGroup
	for _, h := range hosts {
		g := h.guest(t)
		g.ask("PING", "OK") // a connection that its daemon has not accepted yet does not continue
		workers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if g.write("LOCK x ttl=10s wait=60s\n"); !g.granted() {
					t.Error("a LOCK was not granted")
					return
				}
				mu.Lock()
				if grants++; !released.IsZero() {
					idle = max(idle, time.Since(released))
				}
				mu.Unlock()
				time.Sleep(10 * time.Millisecond) // its work
				mu.Lock()
				released = time.Now()
				mu.Unlock()
				if g.write("UNLOCK x\n"); !g.granted() {
					t.Error("an UNLOCK failed")
					return
				}
			}
		})
	}
	for i, h := range hosts {
		h.configure(cluster, []string{fmt.Sprintf("max_ttl = %q", fmt.Sprint(31+i, "s"))})
		h.daemon.signal(syscall.SIGHUP)
		<-time.After(500 * time.Millisecond)
	}
	for _, h := range hosts {
		awaitLog(h.daemon, "continued after a restart")
	}
	mu.Lock()
	before := grants
	mu.Unlock()
	waitFor(t, "more grants", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return grants > before+10
	})
	close(done)
	workers.Wait()
	t.Logf("%d grants; the lock was free for at most %v", grants, idle)
	if idle > mostIdle {
		t.Errorf("the lock was free for %v while five hosts wanted it", idle)
	}
}
