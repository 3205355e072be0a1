package session

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/process"
	"github.com/redlockd/redlockd/redlock"
)

// A process that gets the pid of an ended process does not become the holder of that process's
// leases.
func TestPIDReuse(t *testing.T) {
	first, second := newChild(t, os.Getuid()), newChild(t, os.Getuid())
	table := newProcesses(func(*heldProcess) {}) // the watcher reports no end
	table.watcher = &silentWatcher{}
	const number = 4121 // a pid that both processes seem to have
	before := use(t, table, first, number)
	if again := use(t, table, first, number); again != before {
		t.Error("a living process has two entries")
	}
	first.end()
	if p := table.find(number); p != nil {
		t.Error("an ended process is found by its pid")
	}
	after := use(t, table, second, number)
	if after == before || table.find(number) != after {
		t.Error("the new process with this pid is mistaken for the ended one")
	}
	table.end(before)
	if !before.hasEnded() || after.hasEnded() || table.find(number) != after {
		t.Error("the end of the old process is mistaken for the end of the new one with its pid")
	}
	table.release(after)
	if len(table.byPID)+len(table.all) != 0 {
		t.Errorf("no process is watched, but %v and %v remain", table.byPID, table.all)
	}
}

// The daemon closes each pidfd that it does not keep: one of an ended process, a second one of a
// watched process, and one that the kernel can no longer watch.
func TestPIDFDsAreClosed(t *testing.T) {
	c, dead := newChild(t, os.Getuid()), newChild(t, os.Getuid())
	table := newProcesses(func(*heldProcess) {})
	watcher := &silentWatcher{}
	table.watcher = watcher
	isOpen := func(fd int) bool {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err == nil
	}
	open := func(c *child) int {
		fd, err := process.Open(c.pid)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	first := use(t, table, c, c.pid)
	more := open(c)
	if again, err := table.use(more, c.pid); again != first || err != nil || isOpen(more) {
		t.Errorf("a second pidfd of a watched process: %v, %v, still open: %v", again, err, isOpen(more))
	}
	fd := open(dead)
	dead.end()
	if _, err := table.use(fd, dead.pid); !errors.Is(err, process.ErrNoProcess) || isOpen(fd) {
		t.Errorf("a pidfd of an ended process: %v, still open: %v", err, isOpen(fd))
	}
	table.release(first)
	table.release(first)
	if isOpen(first.fd) || len(table.byPID)+len(table.all) != 0 {
		t.Error("the process is still watched after its last release")
	}
	watcher.full = true
	fd = open(c)
	if _, err := table.use(fd, c.pid); err == nil || isOpen(fd) || len(table.byPID)+len(table.all) != 0 {
		t.Errorf("a pidfd that cannot be watched: %v, still open: %v", err, isOpen(fd))
	}
}

// The pidfd of a process that has ended is closed only once. Its lease may be released much later,
// when the number belongs to another descriptor.
func TestPIDFDIsClosedOnce(t *testing.T) {
	c := newChild(t, os.Getuid())
	table := newProcesses(func(*heldProcess) {})
	table.watcher = &silentWatcher{}
	p := use(t, table, c, c.pid)
	c.end()
	table.end(p)
	other, err := unix.FcntlInt(uintptr(0), unix.F_DUPFD_CLOEXEC, p.fd)
	if err != nil {
		t.Fatal(err)
	}
	if other != p.fd {
		t.Logf("the descriptor is %d, not %d: another goroutine has that now", other, p.fd)
	}
	table.release(p)
	if err := unix.Close(other); err != nil {
		t.Errorf("another descriptor was closed: %v", err)
	}
}

// silentWatcher reports no end of a process.
type silentWatcher struct{ full bool }

func (w *silentWatcher) Watch(int, func()) error {
	if w.full {
		return unix.ENOSPC
	}
	return nil
}

func (*silentWatcher) Unwatch(int) {}

// use makes the table watch a child under a number.
func use(t *testing.T, table *processes, c *child, number int) *heldProcess {
	t.Helper()
	fd, err := process.Open(c.pid)
	if err != nil {
		t.Fatal(err)
	}
	p, err := table.use(fd, number)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Without the kernel's pidfd of the peer, a process that started after the connection was made does
// not count as the peer.
func TestPeerByStart(t *testing.T) {
	before := redlock.BootTime().Truncate(10*time.Millisecond) - 10*time.Millisecond
	c := newChild(t, os.Getuid())
	if _, err := process.OpenStartedBy(c.pid, before); !errors.Is(err, process.ErrNoProcess) {
		t.Errorf("a process that started after the connection: %v, want ErrNoProcess", err)
	}
	fd, err := process.OpenStartedBy(c.pid, redlock.BootTime())
	if err != nil {
		t.Fatalf("a process that started before the connection: %v", err)
	}
	defer process.Close(fd)
	if c.killed(); !waitForEnd(fd) {
		t.Error("the pidfd does not report the end of its process")
	}
	if _, err := process.OpenStartedBy(c.pid, redlock.BootTime()); !errors.Is(err, process.ErrNoProcess) {
		t.Errorf("a zombie: %v, want ErrNoProcess", err)
	}
}

func waitForEnd(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	unix.Poll(fds, int(daemontest.Patience.Milliseconds()))
	return !process.IsAlive(fd)
}

// If the daemon cannot see a client's process, the client's pids may mean other processes. The
// client may not name a process for a lease, but may ask about what it holds.
func TestInvisibleClient(t *testing.T) {
	dead := newChild(t, os.Getuid())
	dead.end()
	for _, pid := range []int{0, dead.pid} {
		s := &session{pid: pid}
		if _, _, err := s.openNamed(os.Getpid()); err != errInvisible {
			t.Errorf("a client with pid %d names a process: %v, want %v", pid, err, errInvisible)
		}
	}
	s := &session{pid: dead.pid}
	if pid, err := s.pidOf(os.Getpid()); err != nil || pid != os.Getpid() {
		t.Errorf("the client asks about process %d (%v), want %d", pid, err, os.Getpid())
	}
	if _, err := (&session{}).openPeer(); err != errInvisible {
		t.Errorf("openPeer for a client that is not visible: %v, want %v", err, errInvisible)
	}
}

// The daemon closes the pidfd of a process that the client may not use.
func TestRefusedPIDFDIsClosed(t *testing.T) {
	c := newChild(t, os.Getuid())
	before := pidfds(t, c.pid) // Go's own
	if _, err := process.OpenIf(c.pid, func(process.Facts) error { return errOtherUser }); err != errOtherUser || pidfds(t, c.pid) != before {
		t.Errorf("%v, and %d pidfds are open, want %d", err, pidfds(t, c.pid), before)
	}
}

// pidfds counts this process's pidfds of a process.
func pidfds(t *testing.T, pid int) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		info, _ := os.ReadFile("/proc/self/fdinfo/" + entry.Name()) // it may be closed by now
		if strings.Contains(string(info), fmt.Sprintf("\nPid:\t%d\n", pid)) {
			n++
		}
	}
	return n
}
