//go:build linux

package e2e

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// replace gives the next daemon another quorum block.
func (s *succession) replace(quorum ...string) {
	s.t.Helper()
	s.daemon.kill()
	s.configure(s.cluster, quorum)
	s.daemon = s.manager.serve()
}

// If max_ttl is smaller now, the next daemon does not adopt a longer lease: that lease is lost.
// Each client gets the loss of its own lease only.
func TestSuccessorThatRefusesALease(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	long, brief := s.nc(), s.nc()
	long.expect("LOCK long ttl=20s", "OK lock=long")
	brief.expect("LOCK brief ttl=4s hold=ttl", "OK lock=brief")
	s.stored(2)
	s.replace(`max_ttl = "5s"`)
	long.comes("BACK")
	long.comes("LOST lock=long")
	brief.comes("BACK")
	brief.comes("LOST lock=brief")
	long.expect("CHECK long", "ERR NOTHELD")
	brief.expect("CHECK brief", "ERR LOST lock=brief")
}

// linger= promises that no other client gets the lock earlier, even over a restart. So after a
// restart the lock may stay taken for longer than its ttl.
func TestSuccessorLingers(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	holder, idle := s.nc(), s.nc()
	holder.expect("LOCK job ttl=2500ms linger=3s", "OK lock=job")
	s.stored(2)
	s.daemon.kill()
	holder.kill()
	gone := time.Now()
	s.daemon = s.manager.serve()
	idle.comes("BACK")
	idle.expect("LOCK job wait=20s", "OK lock=job")
	if took := time.Since(gone); took < 3*time.Second {
		t.Errorf("another client got the lock after %v, want not before the end of linger=: 3s", took)
	}
}

// The count of a reentrant lease survives RESUME, on the same or another connection, and a restart.
func TestSuccessorCountsAfterResume(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	worker, first, n, other := start(t, "", "sleep", "1000"), s.nc(), s.nc(), s.nc()
	for name, hold := range map[string]string{"mine": "", "its": " hold=pid pid=" + strconv.Itoa(worker.cmd.Process.Pid)} {
		granted := first.expect("LOCK "+name+" reentrant=yes"+hold, "OK lock="+name)
		first.expect("LOCK "+name+" reentrant=yes"+hold, "OK lock="+name)
		for _, by := range []*terminal{first, n} {
			if got := by.expect("RESUME "+name+" lease="+field(granted, "lease"), "OK lock="+name); field(got, "count") != "2" {
				t.Errorf("RESUME answers %s, want count=2", got)
			}
		}
	}
	s.stored(3)
	s.succeed(syscall.SIGKILL)
	n.comes("BACK")
	other.comes("BACK")
	for _, name := range []string{"mine", "its"} {
		n.expect("UNLOCK "+name, "OK lock="+name+" count=1")
		other.expect("TRY "+name, "ERR HELD")
		n.expect("UNLOCK "+name, "OK lock="+name)
	}
}

// Each count of a reentrant lease counts towards its user's limit, also in the next daemon.
func TestSuccessorCountsForTheLimit(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	s.amend("limits { leases_per_user = 3 }")
	s.succeed(syscall.SIGKILL)
	n := s.nc()
	for i := range 3 {
		n.expect("LOCK a reentrant=yes id="+strconv.Itoa(i), "OK lock=a")
	}
	n.expect("LOCK b", "ERR LIMIT lock=b : a limit of the config is reached: leases_per_user = 3")
	s.stored(1)
	s.succeed(syscall.SIGKILL)
	n.comes("BACK")
	n.expect("LOCK b", "ERR LIMIT lock=b")
	n.expect("UNLOCK a", "OK lock=a count=2")
	n.expect("LOCK b", "OK lock=b")
	n.expect("LOCK c", "ERR LIMIT lock=c")
}

// If the nodes answer an UNLOCK while the daemon stops, the next daemon answers the
// client.
func TestSuccessorAnswersUnlock(t *testing.T) {
	together(t)
	s := startSuccession(t, 2)
	n := s.nc()
	n.expect("LOCK job ttl=20s", "OK lock=job")
	s.stored(1)
	s.deaf()
	stop(t, s.cluster.Servers[2:])
	n.send("UNLOCK job")
	n.expect("@a PING", "@a OK") // the UNLOCK is in progress
	s.daemon.signal(syscall.SIGTERM)
	awaitLog(s.daemon, "stopping; ")
	cont(t, s.cluster.Servers[2:])
	s.daemon.wait()
	s.daemon = s.manager.serve()
	n.comes("BACK")
	n.comes("OK lock=job")
}

// An unusable descriptor does not mean that its client has closed.
func TestSuccessorWithUselessDescriptor(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	n := s.nc()
	granted := n.expect("LOCK job ttl=20s", "OK lock=job")
	s.stored(1)
	s.daemon.kill()
	s.manager.spoil(t)
	s.daemon = s.manager.serve()
	again := s.nc()
	again.expect("TRY job", "ERR HELD")
	same(t, again.expect("RESUME job lease="+field(granted, "lease"), "OK lock=job"), granted)
}

// Waiters keep their positions, also if daemons end while they still restore the previous daemon's
// state.
func TestSuccessorKeepsPositions(t *testing.T) {
	together(t)
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

// A waiter would lose its position, so the manager stores it in place of an idle connection.
func TestSuccessorStoresWaiters(t *testing.T) {
	together(t)
	s := startSuccession(t, 3) // room for two, and for the daemon's own mark
	holder, idle := s.nc(), s.nc()
	holder.expect("LOCK job ttl=20s", "OK lock=job")
	idle.expect("PING", "OK")
	s.stored(2)
	waiter := s.nc()
	waiter.expect("PING", "OK")
	waitFor(t, "there is no room", func() bool {
		return strings.Contains(s.daemon.stderr.text(), "keeps no more connections")
	})
	waiter.send("LOCK job")
	waitFor(t, "the idle one made way", func() bool { return s.manager.has() == 2 && s.manager.unstored() == 1 })
	s.succeed(syscall.SIGTERM)
	idle.comes("BYE resume=0")
	waiter.comes("BACK")
	holder.comes("BACK")
	holder.expect("UNLOCK job", "OK lock=job")
	waiter.comes("OK lock=job")
}

// A FORCE that was in progress is not repeated: the lock may have another holder by now.
func TestSuccessorForcesNothingTwice(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	holder, admin := s.nc(), s.nc()
	holder.expect("LOCK job ttl=20s", "OK lock=job")
	s.stored(2)
	stop(t, s.cluster.Servers[2:])
	admin.send("FORCE job")
	admin.expect("@a PING", "@a OK") // the FORCE is in progress
	s.daemon.kill()
	cont(t, s.cluster.Servers[2:])
	s.daemon = s.manager.serve()
	admin.comes("BACK")
	admin.comes("ERR UNKNOWN")
	holder.comes("BACK")
	holder.expect("CHECK job", "OK lock=job")
}

// deaf connects a client that sends many requests and reads no answers. Writing these answers takes
// the daemon all the time that it has for its end.
func (s *succession) deaf() {
	s.t.Helper()
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	conn.SetWriteDeadline(time.Now().Add(time.Second)) // the daemon has stopped reading by then
	for err == nil {
		_, err = io.WriteString(conn, strings.Repeat("HELP\n", 100))
	}
}

// If too few nodes have executed a release of the first and the second daemon, the third daemon
// sends it again.
func TestSuccessorReleasesAgain(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	gone, idle, asker := s.nc(), s.nc(), s.nc()
	asker.expect("PING", "OK")
	for _, name := range []string{"held", "unlocked"} {
		gone.expect("LOCK "+name+" ttl=30s", "OK lock="+name)
	}
	s.stored(3)
	most := s.cluster.Servers[2:]
	stop(t, most)
	defer cont(t, most)
	asker.send("WHO held") // after it, nothing more is sent to nodes that do not answer
	asker.send("@a PING")
	asker.comes("@a OK")
	gone.send("UNLOCK unlocked")
	gone.comes("OK lock=unlocked pending=1")
	gone.kill()
	waitFor(t, "its end is noticed", func() bool { return len(idle.lines("LIST")) == 1 })
	for range 2 {
		s.succeed(syscall.SIGKILL)
		idle.comes("BACK")
	}
	cont(t, most)
	for _, name := range []string{"held", "unlocked"} {
		idle.expect("LOCK "+name+" wait=10s", "OK lock="+name)
	}
}

// A client that does not read may miss answers after a kill -9, but gets no partial answer: BACK is
// a line of its own.
func TestSuccessorOfHalfAnAnswer(t *testing.T) {
	together(t)
	s := startSuccession(t, 100)
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	s.stored(1)
	io.WriteString(conn, strings.Repeat("HELP LOCK\n", 2000))
	waitFor(t, "the socket is full", func() bool { return unreadOf(t, conn) > 150_000 })
	s.succeed(syscall.SIGKILL)
	lines, whole, answered := bufio.NewScanner(conn), map[string]bool{}, false
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "BACK") {
		if line := lines.Text(); answered && !whole[line] {
			t.Fatalf("got %q, which is no line of the answer", line)
		}
		whole[lines.Text()] = true
		answered = answered || strings.HasPrefix(lines.Text(), "OK")
	}
	if lines.Err() != nil || !answered {
		t.Errorf("no BACK after %d lines: %v", len(whole), lines.Err())
	}
}

// unreadOf returns how many bytes wait to be read.
func unreadOf(t *testing.T, conn net.Conn) (n int) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
