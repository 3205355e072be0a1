//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// fleet is daemons of several hosts, which are restarted one after the other with the configs of a
// change of the nodes, and clients of each host that hold locks and want a common one.
type fleet struct {
	t       *testing.T
	cluster *redlocktest.Cluster
	ttl     time.Duration // max_ttl and the lease time
	hosts   []*host
	daemons []*process
	all     sync.WaitGroup
	over    chan struct{} // closed when the clients must end
	end     sync.Once

	mu     sync.Mutex // guards the fields below
	holder string     // of the common lock; "": none is inside
	fence  uint64     // the largest fencing token so far
	grants map[string]int
	faults []string
}

// changeTTL is max_ttl and the lease time of tests in which no lease may be lost: longer than a busy machine
// restarts a daemon. A change waits for it twice.
const changeTTL = 12 * time.Second

// startFleet starts n daemons on nodes of which the list names those in use, and their clients.
func startFleet(t *testing.T, n, nodes int, list string) *fleet {
	t.Helper()
	f := startDaemons(t, n, nodes, changeTTL, list)
	for i, h := range f.hosts {
		name, holder, contender := fmt.Sprint("host", i), f.dial(h), f.dial(h) // before the daemon is restarted
		f.all.Go(func() { f.holds(holder, name) })
		f.all.Go(func() { f.contends(contender, name) })
	}
	return f
}

// startDaemons is startFleet without clients.
func startDaemons(t *testing.T, n, nodes int, ttl time.Duration, list string) *fleet {
	t.Helper()
	f := &fleet{t: t, cluster: redlocktest.StartRedis(t, nodes), ttl: ttl, over: make(chan struct{}), grants: map[string]int{}}
	if err := redlocktest.Admit(t.Context(), f.cluster.Nodes()[:len(list)], "redlock:"); err != nil { // lists begin with a, b, c
		t.Fatal(err)
	}
	for range n {
		h := newHost(t, f.cluster)
		f.hosts = append(f.hosts, h)
		f.configure(h, list, list)
		f.daemons = append(f.daemons, h.serve())
	}
	t.Cleanup(f.abandon)
	return f
}

// configure writes a config with both lists of nodes, which may be equal.
func (f *fleet) configure(h *host, before, after string) {
	f.t.Helper()
	lines := []string{`quorum {`, fmt.Sprintf(`node_timeout = "%v"`, f.ttl/5), fmt.Sprintf(`max_ttl = "%v"`, f.ttl)}
	for _, server := range f.cluster.Servers {
		name := server.Name()
		isOld, isNew := strings.Contains(before, name), strings.Contains(after, name)
		if isOld || isNew {
			lines = append(lines, fmt.Sprintf("node %q {\n address = %q\n joining = %v\n leaving = %v\n}", name, server.Addr(), !isOld, !isNew))
		}
	}
	lines = append(lines, `}`, `lease {`, fmt.Sprintf(`ttl = "%v"`, f.ttl), `}`, `socket {`, fmt.Sprintf("path = %q", h.socket), `}`, ``)
	writeFile(f.t, h.config, strings.Join(lines, "\n"))
}

// restart restarts the daemon of a host with another config.
func (f *fleet) restart(i int, before, after string, end func(*process)) {
	f.t.Helper()
	f.configure(f.hosts[i], before, after)
	end(f.daemons[i])
	f.daemons[i] = f.hosts[i].serve()
}

// reload gives the daemon of a host another config with SIGHUP.
func (f *fleet) reload(i int, before, after string) {
	f.t.Helper()
	f.configure(f.hosts[i], before, after)
	if err := f.daemons[i].cmd.Process.Signal(syscall.SIGHUP); err != nil {
		f.t.Fatal(err)
	}
	var wanted []string
	for _, server := range f.cluster.Servers {
		if strings.Contains(before+after, server.Name()) {
			wanted = append(wanted, server.Name())
		}
	}
	waitFor(f.t, "the daemon has its new config", func() bool {
		change, err := f.nodes(i, (*client.Client).Nodes)
		if f.tell(); err != nil || (change.Step != "") != (before != after) {
			return false
		}
		return slices.EqualFunc(change.Nodes, wanted, func(n client.Node, name string) bool { return n.Name == name })
	})
}

// terminate ends a daemon as an operator does.
func terminate(d *process) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		d.t.Fatal(err)
	}
	d.wait()
}

func (f *fleet) fault(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
}

// holds holds a lock of its own until the clients end. It must not be lost.
func (f *fleet) holds(c *client.Client, name string) {
	defer c.Close()
	l, err := c.Lock(f.t.Context(), "own-"+name)
	if err != nil {
		f.fault("%s: its own lock: %v", name, err)
		return
	}
	select {
	case <-f.over:
	case <-l.Context().Done():
		f.fault("%s lost its own lock: %v", name, context.Cause(l.Context()))
	}
}

// contends takes the common lock, holds it for a moment, and releases it, until the clients end. It
// must not be refused, and nobody else may be inside.
func (f *fleet) contends(c *client.Client, name string) {
	defer c.Close()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for !isOver(f.over) {
		l, err := c.Lock(f.t.Context(), "common")
		if err != nil {
			f.fault("%s is refused: %v", name, err)
			return
		}
		f.enter(name, l.Fence())
		<-pause.C
		f.exit(name)
		if err := l.Unlock(f.t.Context()); err != nil {
			f.fault("%s, UNLOCK: %v (%v)", name, err, context.Cause(l.Context()))
		}
	}
}

func (f *fleet) enter(name string, fence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.holder != "":
		f.faults = append(f.faults, fmt.Sprintf("%s gets the lock while %s has it", name, f.holder))
	case fence <= f.fence:
		f.faults = append(f.faults, fmt.Sprintf("%s gets the fencing token %d after %d", name, fence, f.fence))
	}
	f.holder, f.fence = name, fence
	f.grants[name]++
}

func (f *fleet) exit(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holder == name {
		f.holder = ""
	}
}

// awaitGrants waits until each host has been granted the common lock again.
func (f *fleet) awaitGrants() {
	f.t.Helper()
	f.mu.Lock()
	clear(f.grants)
	f.mu.Unlock()
	waitFor(f.t, "each host gets the common lock", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.grants) == len(f.hosts) || len(f.faults) > 0
	})
	f.tell()
}

// tell fails the test if there was a fault.
func (f *fleet) tell() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) > 0 {
		for i, d := range f.daemons {
			f.t.Logf("daemon %d:\n%s", i, d.stderr.text())
		}
		f.t.Fatalf("faults:\n%s", strings.Join(f.faults, "\n"))
	}
}

// leave ends the clients.
func (f *fleet) leave() {
	f.end.Do(func() { close(f.over) })
	f.all.Wait()
}

// abandon ends the clients also if their daemons were stopped.
func (f *fleet) abandon() {
	f.end.Do(func() { close(f.over) })
	for _, d := range f.daemons {
		d.kill()
	}
	f.all.Wait()
}

// nodes asks the daemon of a host about the change.
func (f *fleet) nodes(i int, ask func(*client.Client, context.Context) (*client.NodeChange, error)) (*client.NodeChange, error) {
	f.t.Helper()
	c := f.dial(f.hosts[i])
	defer c.Close()
	return ask(c, within(f.t))
}

func (f *fleet) dial(h *host) *client.Client {
	f.t.Helper()
	c, err := client.Dial(within(f.t), h.socket)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// until waits for a step of a change, which may take as long as a quarantine.
func (f *fleet) until(what string, isSo func() bool) {
	f.t.Helper()
	for end := time.Now().Add(f.ttl + 4*patience); !isSo(); time.Sleep(50 * time.Millisecond) {
		if f.tell(); time.Now().After(end) {
			change, err := f.nodes(0, (*client.Client).Nodes)
			f.t.Fatalf("still not: %s: %+v, %v", what, change, err)
		}
	}
}

// awaitStep waits until a host sees the step of the change.
func (f *fleet) awaitStep(i int, step string) {
	f.t.Helper()
	f.until(fmt.Sprintf("the change is %s on host %d", step, i), func() bool {
		change, err := f.nodes(i, (*client.Client).Nodes)
		return err == nil && change.Step == step
	})
}

// awaitStepOnANode waits until a node has a step.
func (f *fleet) awaitStepOnANode(i int, step string) {
	f.t.Helper()
	f.until("a node is "+step, func() bool {
		change, err := f.nodes(i, (*client.Client).Nodes)
		return err == nil && slices.ContainsFunc(change.Nodes, func(n client.Node) bool { return n.Step == step })
	})
}

// commit commits the change, which the last host that was rolled allows.
func (f *fleet) commit(i int) {
	f.t.Helper()
	if _, err := f.nodes(i, (*client.Client).CommitNodes); err != nil {
		f.t.Fatal(err)
	}
}

// stopOld stops the servers that are not in a list.
func (f *fleet) stopOld(list string) {
	for _, server := range f.cluster.Servers {
		if !strings.Contains(list, server.Name()) {
			server.Kill()
		}
	}
}

// The nodes are changed under load, and the daemons of all hosts restarted one after the other. No
// lease is lost, nobody is refused, and fencing tokens grow. While a host has the old list, a commit
// is refused and names it. At the end, the old servers are not needed. Only with REDLOCKD_LONG:
// TestStepTooEarly has the first of these changes.
func TestChangeOfNodes(t *testing.T) {
	if !effort.IsLong() {
		return
	}
	for _, change := range [][2]string{{"a", "abc"}, {"abc", "abcde"}, {"abcde", "abc"}, {"abc", "def"}, {"abc", "abd"}, {"a", "b"}} {
		before, after := change[0], change[1]
		t.Run(before+" to "+after, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 5, 6, before)
			f.awaitGrants()
			last := len(f.hosts) - 1
			f.reload(0, before, after)
			for i := 1; i < last; i++ {
				f.restart(i, before, after, terminate)
			}
			f.until("the nodes have begun, and a commit is refused because of the last host", func() bool {
				_, err := f.nodes(0, (*client.Client).CommitNodes)
				if !errors.Is(err, client.ErrInvalid) {
					t.Fatalf("commit: %v", err)
				}
				return strings.Contains(err.Error(), "without this change in their config: ") && strings.Contains(err.Error(), f.hosts[last].socket)
			})
			f.restart(last, before, after, terminate)
			f.awaitStep(last, "begun")
			f.awaitGrants()
			f.commit(last)
			f.awaitStep(0, "done")
			f.awaitGrants()
			f.reload(0, after, after)
			for i := range last {
				f.restart(i+1, after, after, terminate)
			}
			f.awaitGrants()
			late := newHost(t, f.cluster)
			f.configure(late, before, before)
			d := late.serve()
			waitFor(t, "a host with the old list is refused", func() bool { return strings.Contains(d.stderr.text(), "this host's config has the old list") })
			f.stopOld(after)
			f.awaitGrants()
			f.leave()
			f.tell()
		})
	}
}

// The daemon that commits a change is killed at once, and after the first nodes have the next step.
// The change continues, or can be committed again.
func TestKilledCommitter(t *testing.T) {
	t.Parallel()
	const before, after = "abc", "abd"
	f := startFleet(t, 3, 4, before)
	for i := range f.hosts {
		f.restart(i, before, after, terminate)
	}
	f.awaitStep(0, "begun")
	kill := func(d *process) { d.kill() }
	for _, step := range []string{"", "committed", "done"} {
		if step == "" {
			f.commit(0)
		} else {
			f.awaitStepOnANode(1, step)
		}
		f.restart(0, before, after, kill)
		if step == "" {
			f.until("the change is committed, if necessary again", func() bool {
				change, err := f.nodes(0, (*client.Client).CommitNodes)
				return err == nil && change.Step != "begun"
			})
		}
	}
	f.awaitStep(1, "done")
	f.awaitStep(0, "done")
	f.awaitGrants()
	for i := range f.hosts {
		f.restart(i, after, after, kill)
	}
	f.stopOld(after)
	f.awaitGrants()
	f.leave()
	f.tell()
}
