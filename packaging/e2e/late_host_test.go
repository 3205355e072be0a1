//go:build linux

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// lateTTL is max_ttl while a host is late. Leases may be lost on a busy machine.
const lateTTL = 5 * time.Second

const lateName = "the late host"

// watch finds two holders of one lock at one instant, by the deadlines of their leases.
type watch struct {
	fleet *fleet

	mu     sync.Mutex // guards the fields below
	holder string     // of the lock; "": it was released
	lease  *client.Lease
	grants map[string]int
	behind string // the host that must not get the lock; "": all may
}

// take takes the common lock on a host again and again until the clients end. It holds it for a moment.
func (w *watch) take(c *client.Client, name string) {
	defer c.Close()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for ; !isOver(w.fleet.over); <-pause.C {
		l, err := c.Lock(context.Background(), "common", client.WithWait(lateTTL))
		if err != nil {
			continue // too few nodes vote, or the lock is held
		}
		w.mu.Lock()
		if now := time.Now(); now.Before(l.Deadline()) && w.holder != "" && now.Before(w.lease.Deadline()) {
			w.fleet.fault("%s gets the lock while %s has it", name, w.holder)
		}
		if name == w.behind {
			w.fleet.fault("%s gets the lock with its old list", name)
		}
		w.holder, w.lease = name, l
		w.grants[name]++
		w.mu.Unlock()
		<-pause.C
		w.mu.Lock()
		if w.lease == l {
			w.holder = ""
		}
		w.mu.Unlock()
		_ = l.Unlock(context.Background()) // it may have been lost
	}
}

// isBehind says which host must not get the lock from now on; "": all may.
func (w *watch) isBehind(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.behind = name
}

// awaitGrants waits until these hosts have been granted the lock again.
func (w *watch) awaitGrants(names ...string) {
	w.mu.Lock()
	clear(w.grants)
	w.mu.Unlock()
	for _, name := range names {
		w.fleet.until(name+" gets the lock", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.grants[name] > 0
		})
	}
}

// A host sleeps while the list a, b, c is changed to d, wakes, and stays at work. Then a, b, c join again, with
// their state or without their data. The commit is refused until the late host sleeps again. At no time do two hosts
// hold the lock, and the late host never gets it with its old list: it does not take the nodes for new ones.
//
// Only with REDLOCKD_LONG: it takes a minute. Most of that is the time between two nodes of a change, and the ten seconds
// after which a host counts as not at work.
func TestLateHostAndNodesThatJoinAgain(t *testing.T) {
	if !effort.IsLong() {
		return
	}
	for _, name := range []string{"with their state", "without their data"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startDaemons(t, 3, 4, lateTTL, "abc")
			w := &watch{fleet: f, grants: map[string]int{}}
			dial := func(i int) *client.Client {
				c, err := client.Dial(within(t), f.hosts[i].socket)
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			for i := range 2 {
				c := dial(i)
				f.all.Go(func() { w.take(c, fmt.Sprint("host", i)) })
			}
			const late = 2
			lates := dial(late)
			w.awaitGrants("host0", "host1")
			l, err := lates.Lock(within(t), "common")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Unlock(within(t)); err != nil {
				t.Fatal(err)
			}
			f.daemons[late].signal(syscall.SIGSTOP)
			f.all.Go(func() { w.take(lates, lateName) })

			begin := func(before, after string) {
				f.reload(0, before, after)
				f.reload(1, before, after)
				f.awaitStep(0, "begun")
			}
			end := func(after string) {
				f.until("the change is committed", func() bool { // not before the late host was last seen ten seconds ago
					_, err := f.nodes(0, (*client.Client).CommitNodes)
					return err == nil
				})
				f.awaitStep(0, "done")
				f.awaitStep(1, "done")
				f.reload(0, after, after)
				f.reload(1, after, after)
				w.awaitGrants("host0", "host1")
			}
			begin("abc", "d")
			w.isBehind(lateName) // before that it could get the lock: a signal stops a process a moment later
			end("d")
			f.daemons[late].signal(syscall.SIGCONT)
			nodesOfLate := func(what, state, reason string) {
				f.until("on the late host, all nodes are "+what, func() bool {
					change, err := f.nodes(late, (*client.Client).Nodes)
					if err != nil {
						return false
					}
					for _, node := range change.Nodes {
						if node.State != state || !strings.Contains(node.Reason, reason) {
							return false
						}
					}
					return true
				})
			}
			nodesOfLate("refused", "refused", "this host's config has the old list")
			if name == "without their data" {
				for _, server := range f.cluster.Servers[:3] {
					if reply, err := server.Do("FLUSHALL"); err != nil || reply.Err != nil {
						t.Fatal(err, reply.Err)
					}
				}
				nodesOfLate("not taken for new ones", "quarantined", "its list of nodes was replaced")
				f.daemons[late].kill()
				f.daemons[late] = f.hosts[late].serve()
				nodesOfLate("not taken for new ones after a restart", "quarantined", "its list of nodes was replaced")
			}
			begin("d", "abcd")
			f.refusesVerb(0, "commit", "without this change in their config: "+f.host(late))
			f.daemons[late].signal(syscall.SIGSTOP)
			end("abcd")
			f.daemons[late].signal(syscall.SIGCONT)
			nodesOfLate("refused again", "refused", "done")
			w.awaitGrants("host0", "host1")
			w.isBehind("")
			f.reload(late, "abcd", "abcd")
			w.awaitGrants("host0", "host1", lateName)
			f.leave()
			f.tell()
		})
	}
}
