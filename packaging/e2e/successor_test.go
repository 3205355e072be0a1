//go:build linux

package e2e

import (
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// succession is a daemon whose connections a manager keeps.
type succession struct {
	*host
	t       *testing.T
	manager *manager
	cluster *redlocktest.Cluster
	daemon  *process
}

func startSuccession(t *testing.T, places int) *succession {
	t.Helper()
	needNC(t)
	cluster := redlocktest.StartRedis(t, 5)
	cluster.Admit(t)
	h := newHost(t, cluster)
	m := newManager(t, h, places)
	return &succession{host: h, t: t, manager: m, cluster: cluster, daemon: m.serve()}
}

// endings are the ways in which a daemon ends.
var endings = map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL}

// succeed ends the daemon and starts the next one.
func (s *succession) succeed(sig syscall.Signal) {
	s.t.Helper()
	s.daemon.signal(sig)
	if code := s.daemon.wait(); sig == syscall.SIGTERM && code != 0 {
		s.t.Errorf("exit code %d, want 0; its log:\n%s", code, s.daemon.stderr.text())
	}
	s.daemon = s.manager.serve()
}

// stored waits until the manager has that many connections.
func (s *succession) stored(n int) {
	s.t.Helper()
	waitFor(s.t, "the connections are stored", func() bool { return s.manager.has() == n })
}

// same checks that an answer is about the lease of an earlier answer.
func same(t *testing.T, answer, granted string) {
	t.Helper()
	for _, key := range []string{"lock", "lease", "fence"} {
		if field(answer, key) != field(granted, key) {
			t.Errorf("got  %s\nwant %s= as in %s", answer, key, granted)
		}
	}
}

// Connections, leases, waiters in order and half-typed lines outlast the daemon, however it ends.
func TestSuccessor(t *testing.T) {
	t.Parallel()
	for name, sig := range endings {
		t.Run(name, func(t *testing.T) {
			s := startSuccession(t, 100)
			holder, idle, typist := s.nc(), s.nc(), s.nc()
			granted := holder.expect("LOCK job ttl=20s note=mine", "OK lock=job")
			idle.expect("PING", "OK")
			waiters := waitInOrder(t, idle, s.nc)
			holder.expect("@tag LOCK second,third mode=shared", "@tag OK lock=second,third")
			holder.expect("LOCK twice reentrant=yes", "OK lock=twice")
			holder.expect("LOCK twice reentrant=yes", "OK lock=twice")
			brief := holder.expect("LOCK brief hold=ttl ttl=20s", "OK lock=brief")
			holder.begin("CHE")
			typist.expect("PING", "OK")
			typist.begin("LOCK typed wai")
			s.stored(6)

			s.succeed(sig)
			all := append([]*terminal{holder, idle, typist}, waiters...)
			for _, n := range all {
				n.comes("BACK")
			}
			same(t, holder.expect("CK job", "OK lock=job"), granted)
			if got := holder.expect("CHECK brief", "OK lock=brief"); field(got, "deadline") != field(brief, "deadline") {
				t.Errorf("got %s, want the deadline of %s", got, brief)
			}
			holder.expect("UNLOCK twice", "OK lock=twice count=1")
			typist.expect("t=0", "OK lock=typed")
			typist.send("LIST")
			typist.comes("- lock=")
			for typist.line() != "OK n=8" {
			}
			holder.expect("UNLOCK job", "OK lock=job")
			grantInOrder(t, granted, waiters)
		})
	}
}

// waitInOrder makes three new clients wait for the lock job, which another holds.
func waitInOrder(t *testing.T, observer *terminal, connect func() *terminal) (waiters []*terminal) {
	t.Helper()
	for i, request := range []string{"LOCK job", "@a LOCK job", "LOCK job wait=1m"} {
		w := connect()
		w.send(request)
		waitFor(t, "it waits", func() bool { return observer.waiters() == int64(i+1) })
		waiters = append(waiters, w)
	}
	return waiters
}

// grantInOrder checks that the waiters get the lock job in their order, after a grant that was
// released. Each releases it.
func grantInOrder(t *testing.T, granted string, waiters []*terminal) {
	t.Helper()
	fence := number(t, granted, "fence")
	for i, w := range waiters {
		line := w.line()
		if got := number(t, line, "fence"); field(line, "lock") != "job" || got <= fence {
			t.Errorf("waiter %d: got %s, want a fencing token beyond %d", i, line, fence)
		}
		fence = number(t, line, "fence")
		w.expect("UNLOCK job", "OK lock=job")
	}
}

// begin types words without an end of line.
func (n *terminal) begin(words string) {
	n.t.Helper()
	if _, err := io.WriteString(n.stdin, words); err != nil {
		n.t.Fatal(err)
	}
}

// Waiters keep their positions, also if daemons end while they still restore the previous daemon's
// state.
func TestSuccessorKeepsPositions(t *testing.T) {
	t.Parallel()
	s := startSuccession(t, 100)
	holder, idle := s.nc(), s.nc()
	fence := number(t, holder.expect("LOCK job ttl=20s", "OK lock=job"), "fence")
	waiters := make([]*terminal, 8)
	for i := range waiters {
		waiters[i] = s.nc()
		waiters[i].send("LOCK job")
		waitFor(t, "it waits", func() bool { return idle.waiters() == int64(i+1) })
	}
	s.stored(2 + len(waiters))
	s.daemon.kill()
	for i := range rounds(5, 50) {
		s.manager.flush()
		early := s.manager.start()
		time.Sleep(time.Duration(i%10) * 7 * time.Millisecond) // real time: the kill comes at any moment of the daemon's start
		early.kill()
	}
	s.manager.flush()
	s.daemon = s.manager.serve()
	holder.send("UNLOCK job")
	holder.answered("OK lock=job")
	for i, w := range waiters {
		got := w.answered("OK lock=job")
		if next := number(t, got, "fence"); next <= fence {
			t.Errorf("waiter %d: got %s, want a fencing token beyond %d", i, got, fence)
		} else {
			fence = next
		}
		w.expect("UNLOCK job", "OK lock=job")
	}
}

// answered checks the beginning of the next line that is not BACK.
func (n *terminal) answered(want string) string {
	n.t.Helper()
	for {
		got := n.line()
		if strings.HasPrefix(got, want) {
			return got
		}
		if !strings.HasPrefix(got, "BACK") {
			n.t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// Without a manager the connections end, and clients can resume their leases.
func TestResumeAfterRestart(t *testing.T) {
	t.Parallel()
	for name, sig := range endings {
		t.Run(name, func(t *testing.T) {
			_, h, d := five(t)
			n := h.nc()
			granted := n.expect("LOCK a,b ttl=20s owner=me", "OK lock=a,b")
			left := n.expect("LOCK left ttl=2s", "OK lock=left")
			d.signal(sig)
			d.wait()
			h.serve()
			n = h.nc()
			n.expect("RESUME a,b lease="+field(granted, "lease"), "ERR OPTION lock=a,b")
			same(t, n.expect("RESUME a,b owner=me lease="+field(granted, "lease"), "OK lock=a,b"), granted)
			same(t, n.expect("CHECK a,b owner=me", "OK lock=a,b"), granted)
			n.expect("LOCK left wait=10s", "OK lock=left") // no client has resumed it
			n.expect("RESUME left lease="+field(left, "lease"), "ERR NOTHELD")
		})
	}
}
