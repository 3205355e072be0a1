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

// fiveHosts starts five daemons, each of which stands for a host.
func fiveHosts(t *testing.T) (*redlocktest.Cluster, []reloaded) {
	t.Helper()
	cluster := redlocktest.StartRedis(t, 5)
	cluster.Admit(t)
	var all []reloaded
	for range 5 {
		h := newHost(t, cluster)
		all = append(all, reloaded{h, cluster, h.serve()})
	}
	return cluster, all
}

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
	cluster, hosts := fiveHosts(t)
	var mu sync.Mutex // guards the fields below; the holder of x has it while it notes its grant
	var released time.Time
	var idle time.Duration
	var grants int
	done := make(chan struct{})
	var workers, served sync.WaitGroup
	served.Add(len(hosts))
	for _, h := range hosts {
		g := h.guest(t)
		g.ask("PING", "OK") // the daemon has accepted the connection before it replaces itself
		workers.Go(func() {
			isServed := sync.OnceFunc(served.Done)
			defer isServed()
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
				isServed()
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
	served.Wait() // a connection that its daemon has not accepted yet does not continue
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

// The daemons at the head of the queue are killed, also that of the holder. The next one has the lock soon.
func TestKilledHeadLeavesNoLockFree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		holder bool // is killed, too
		dead   int  // of the waiters
	}{{"two waiters", false, 2}, {"the holder and a waiter", true, 1}} {
		const ttl = 3 * time.Second
		cluster, hosts := fiveHosts(t)
		var clients []*guest
		for i, h := range hosts {
			g := h.guest(t)
			clients = append(clients, g)
			g.write(fmt.Sprintf("LOCK x ttl=%d wait=60s\n", ttl.Milliseconds()))
			if i == 0 && !g.granted() {
				t.Fatal("the first LOCK was not granted")
			}
			waitFor(t, "it is in the queues", func() bool {
				for _, server := range cluster.Servers {
					if n, err := server.Do("ZCARD", "redlock:x\x00q"); err != nil || n.Int != int64(i) {
						return false
					}
				}
				return true
			})
		}
		for _, h := range hosts[1 : 1+c.dead] {
			h.daemon.kill()
		}
		free := time.Now()
		if c.holder {
			hosts[0].daemon.kill()
			free = free.Add(ttl)
		} else if clients[0].write("UNLOCK x\n"); !clients[0].granted() {
			t.Error("the UNLOCK failed")
		}
		if !clients[1+c.dead].granted() {
			t.Errorf("%s: the next LOCK failed", c.name)
		}
		idle := time.Since(free)
		t.Logf("%s were killed: the lock was free for %v", c.name, idle)
		if idle > mostIdle {
			t.Errorf("%s were killed: the lock was free for %v", c.name, idle)
		}
	}
}
