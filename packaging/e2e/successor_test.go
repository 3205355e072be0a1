//go:build linux

package e2e

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

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
	together(t)
	for name, sig := range endings {
		t.Run(name, func(t *testing.T) {
			s := startSuccession(t, 100)
			holder, idle, typist := s.nc(), s.nc(), s.nc()
			granted := holder.expect("LOCK job ttl=5s note=mine", "OK lock=job")
			idle.expect("PING", "OK")
			waiters := waitInOrder(t, idle, s.nc)
			holder.expect("@tag LOCK second,third mode=shared", "@tag OK lock=second,third")
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
			typist.expect("t=0", "OK lock=typed")
			typist.send("LIST")
			typist.comes("- lock=job state=held")
			for typist.line() != "OK n=6" {
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

// If a client ends while no daemon runs, the next daemon releases its locks, and grants nothing to
// its waiting requests.
func TestSuccessorOfAnEndedClient(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	holder, waiter, idle := s.nc(), s.nc(), s.nc()
	holder.expect("LOCK job ttl=30s", "OK lock=job")
	idle.expect("LOCK other", "OK lock=other")
	waiter.send("LOCK other")
	waitFor(t, "it waits", func() bool { return idle.waiters() == 1 })
	s.stored(3)
	s.daemon.kill()
	holder.kill()
	waiter.kill()
	s.daemon = s.manager.serve()
	idle.comes("BACK")
	idle.expect("LOCK job wait=5s", "OK lock=job")
	if n := idle.waiters(); n != 0 {
		t.Errorf("%d wait, want none", n)
	}
}

// If the service is stopped, not restarted, the manager closes the stored connections. Their
// clients may work until their stated deadlines. The next daemon does not release their locks
// before, and they can resume them.
func TestSuccessorOfAnEmptiedStore(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	holder := s.nc()
	granted := holder.expect("LOCK job ttl=20s", "OK lock=job")
	s.stored(1)
	s.daemon.signal(syscall.SIGTERM)
	s.daemon.wait()
	s.manager.empty()
	if line, more := holder.next(holder.stdout); more {
		t.Errorf("got %s, want the end", line)
	}
	s.daemon = s.manager.serve()
	again := s.nc()
	again.expect("LOCK job wait=0", "ERR HELD lock=job")
	s.stored(1)
	s.succeed(syscall.SIGKILL) // the next daemon does not expect that connection either
	again.comes("BACK")
	again.expect("LOCK job wait=0", "ERR HELD lock=job")
	same(t, again.expect("RESUME job lease="+field(granted, "lease"), "OK lock=job"), granted)
}

// Leases that do not depend on a connection go on: those of processes, and those with hold=ttl.
func TestSuccessorOfOtherHolds(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	worker, gone, idle := start(t, "", "sleep", "1000"), start(t, "", "sleep", "1000"), s.nc()
	idle.expect("LOCK kept hold=pid pid="+strconv.Itoa(worker.cmd.Process.Pid), "OK lock=kept")
	idle.expect("LOCK gone hold=pid pid="+strconv.Itoa(gone.cmd.Process.Pid), "OK lock=gone")
	brief := idle.expect("LOCK brief hold=ttl ttl=20s", "OK lock=brief")
	s.stored(1)
	s.daemon.kill()
	gone.kill()
	s.daemon = s.manager.serve()
	idle.comes("BACK")
	idle.expect("LOCK gone wait=5s", "OK lock=gone")
	idle.expect("CHECK kept", "OK lock=kept")
	if got := idle.expect("CHECK brief", "OK lock=brief"); field(got, "deadline") != field(brief, "deadline") {
		t.Errorf("got %s, want the deadline of %s", got, brief)
	}
	worker.kill()
	s.nc().expect("LOCK kept wait=5s", "OK lock=kept")
}

// If a lease expires before the next daemon starts, that daemon reports it as lost.
func TestSuccessorReportsLost(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	n := s.nc()
	granted := n.expect("LOCK job ttl=3s guard=100ms", "OK lock=job")
	s.stored(1)
	s.daemon.kill()
	awaitKeys(t, s.cluster.Servers)
	s.daemon = s.manager.serve()
	n.comes("BACK")
	if lost := n.comes("LOST lock=job"); field(lost, "lease") != field(granted, "lease") {
		t.Errorf("got %s, want the lease of %s", lost, granted)
	}
	n.expect("CHECK job", "ERR LOST lock=job")
	s.succeed(syscall.SIGKILL) // the next daemon knows that the loss was reported
	n.comes("BACK")
	n.expect("CHECK job", "ERR LOST lock=job")
	n.expect("LOCK job wait=0", "OK lock=job")
}

// If there are more connections than the manager keeps, those with leases are kept. Idle ones get
// BYE.
func TestSuccessorWithoutRoom(t *testing.T) {
	together(t)
	s := startSuccession(t, 3) // room for two, and for the daemon's own mark
	idle, first, second := s.nc(), s.nc(), s.nc()
	idle.expect("PING", "OK")
	s.stored(2)
	first.expect("LOCK a ttl=20s", "OK lock=a")
	second.expect("LOCK b ttl=20s", "OK lock=b")
	waitFor(t, "those that hold are stored", func() bool {
		return s.manager.has() == 2 && strings.Contains(s.daemon.stderr.text(), "keeps no more connections")
	})
	third := s.nc()
	granted := third.expect("LOCK c ttl=20s", "OK lock=c")
	s.succeed(syscall.SIGTERM)
	first.comes("BACK")
	second.comes("BACK")
	idle.comes("BYE resume=0")
	if left := number(t, third.comes("BYE resume="), "resume"); left <= 0 || left > 20_000 {
		t.Errorf("a holder got BYE resume=%d, want 1 to 20000", left)
	}
	n := s.nc()
	n.expect("CHECK c lease="+field(granted, "lease"), "OK lock=c")
	n.expect("RESUME c lease=wrong", "ERR NOTHELD")
	same(t, n.expect("RESUME c lease="+field(granted, "lease"), "OK lock=c"), granted)
	n.expect("CHECK c", "OK lock=c")
	n.kill() // the connection holds the lease now
	first.expect("LOCK c wait=5s", "OK lock=c")
}

// Without a manager the connections end, and clients can resume their leases.
func TestResumeAfterRestart(t *testing.T) {
	together(t)
	for name, sig := range endings {
		t.Run(name, func(t *testing.T) {
			_, h, d := five(t)
			n := h.nc()
			granted := n.expect("LOCK a,b ttl=20s owner=me", "OK lock=a,b")
			left := n.expect("LOCK left ttl=3s", "OK lock=left")
			reader := n.expect("LOCK doc mode=shared ttl=20s", "OK lock=doc")
			h.nc().expect("LOCK pool slots=3 ttl=1s", "OK lock=pool") // so that a later slot is not always the first one
			place := n.expect("LOCK pool slots=3 ttl=20s", "OK lock=pool")
			d.signal(sig)
			d.wait()
			h.serve()
			n = h.nc()
			n.expect("RESUME a,b lease="+field(granted, "lease"), "ERR OPTION lock=a,b")
			same(t, n.expect("RESUME a,b owner=me lease="+field(granted, "lease"), "OK lock=a,b"), granted)
			same(t, n.expect("CHECK a,b owner=me", "OK lock=a,b"), granted)
			n.expect("LOCK left wait=10s", "OK lock=left") // no client has resumed it
			n.expect("RESUME left lease="+field(left, "lease"), "ERR NOTHELD")
			resumeKinds(t, h, reader, place)
		})
	}
}

// resumeKinds checks that a resumed reader shares the lock with readers only, and that a resumed
// slot has its number.
func resumeKinds(t *testing.T, h *host, reader, place string) {
	t.Helper()
	n, other := h.nc(), h.nc()
	same(t, n.expect("RESUME doc lease="+field(reader, "lease"), "OK lock=doc"), reader)
	other.expect("LOCK doc wait=0", "ERR HELD lock=doc")
	other.expect("LOCK doc mode=shared wait=0", "OK lock=doc")
	resumed := n.expect("RESUME pool lease="+field(place, "lease"), "OK lock=pool")
	same(t, resumed, place)
	slots := []string{field(resumed, "slot")}
	if slots[0] != field(place, "slot") {
		t.Errorf("got %s, want the place of %s", resumed, place)
	}
	for range 2 {
		slots = append(slots, field(h.nc().expect("LOCK pool slots=3 wait=10s", "OK lock=pool"), "slot"))
	}
	if slices.Sort(slots); !slices.Equal(slots, []string{"1", "2", "3"}) {
		t.Errorf("the places are %v, want 1 to 3", slots)
	}
	h.nc().expect("LOCK pool slots=3 wait=0", "ERR HELD lock=pool slots=3")
}

// If a daemon is killed right after it answered a downgrade, the next one has the lease as shared,
// with the same fencing token.
func TestDowngradeOutlastsKill(t *testing.T) {
	together(t)
	_, h, d := five(t)
	writer := h.nc()
	granted := writer.expect("LOCK doc ttl=20s owner=me", "OK lock=doc")
	same(t, writer.expect("EXTEND doc owner=me mode=shared", "OK lock=doc"), granted)
	d.kill()
	h.serve()
	writer, reader, other := h.nc(), h.nc(), h.nc()
	other.expect("LIST", "- lock=doc state=held mode=shared")
	other.comes("OK n=1")
	same(t, writer.expect("RESUME doc owner=me lease="+field(granted, "lease"), "OK lock=doc"), granted)
	joined := reader.expect("LOCK doc mode=shared wait=0", "OK lock=doc")
	if number(t, joined, "fence") <= number(t, granted, "fence") {
		t.Errorf("the reader got %s, want a fencing token beyond that of %s", joined, granted)
	}
	writer.expect("UNLOCK doc owner=me", "OK lock=doc")
	other.expect("LOCK doc wait=0", "ERR HELD lock=doc mode=shared")
	reader.expect("UNLOCK doc", "OK lock=doc")
	other.expect("LOCK doc wait=5s", "OK lock=doc")
}

// A client that lost its connection before it read the OK resends LOCK on another connection. With
// the same id= and user it gets the same lease.
func TestLockRepeatedAfterRestart(t *testing.T) {
	together(t)
	_, h, d := five(t)
	granted := h.nc().expect("LOCK job ttl=20s id=x1 owner=me", "OK lock=job")
	d.kill()
	h.serve()
	h.nc().expect("LOCK job wait=0 id=x2 owner=me", "ERR HELD lock=job")
	n := h.nc()
	again := n.expect("LOCK job ttl=20s id=x1 owner=me", "OK lock=job")
	same(t, again, granted)
	if field(again, "again") != "yes" {
		t.Errorf("got %s, want again=yes", again)
	}
	h.nc().expect("LOCK job wait=0 id=x1 owner=me", "ERR HELD lock=job") // finds the earlier grant
	n.expect("UNLOCK job owner=me", "OK lock=job")
	h.nc().expect("LOCK job wait=5s", "OK lock=job")
}

// After the last readable record of a damaged state file, it is not known what clients were told.
// So connections end, and known leases can be resumed.
func TestSuccessorWithFaultyStateFile(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	n := s.nc()
	granted := n.expect("LOCK job ttl=20s", "OK lock=job")
	s.stored(1)
	n.expect("LOCK last ttl=20s", "OK lock=last") // the last record is not about job
	s.daemon.kill()
	damage(t, s.socket+".table.1")
	s.daemon = s.manager.serve()
	if log := s.daemon.stderr.text(); !strings.Contains(log, "the state file was damaged") {
		t.Errorf("the log does not report it:\n%s", log)
	}
	n.comes("BYE resume=")
	if line, more := n.next(n.stdout); more {
		t.Errorf("got %s, want the end", line)
	}
	again := s.nc()
	same(t, again.expect("RESUME job lease="+field(granted, "lease"), "OK lock=job"), granted)
}
