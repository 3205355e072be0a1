//go:build linux

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The users of these tests. They need no account.
const (
	goodUser = 5001
	badUser  = 5002
)

// arena is a daemon with default limits and two users, a well-behaved one and a hostile one.
type arena struct {
	*host
	daemon *process
	good   *guest
	prober *prober
	calm   figures // after the last attack; zero: there was none
}

// newArena starts the daemon. config has more lines for its config.
func newArena(t *testing.T, config ...string) *arena {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can connect as other users")
	}
	cluster := redlocktest.StartRedis(t, 3)
	cluster.Admit(t)
	a := &arena{host: newHost(t, cluster)}
	if err := os.Chmod(a.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	a.amend(config...)
	a.daemon = a.serve()
	t.Cleanup(func() {
		if t.Failed() {
			log := strings.Split(a.daemon.stderr.text(), "\n")
			t.Logf("the end of the daemon's log, of %d lines:\n%s", len(log), strings.Join(log[max(0, len(log)-30):], "\n"))
		}
	})
	a.good = a.as(t, goodUser)
	return a
}

// amend adds lines to the config.
func (h *host) amend(lines ...string) {
	h.t.Helper()
	writeFile(h.t, h.config, readFile(h.t, h.config)+strings.Join(lines, "\n")+"\n")
}

// guest is a connection of a user.
type guest struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// as connects as a user: the kernel records the process that connects, not the one that writes.
func (h *host) as(t *testing.T, uid int) *guest {
	t.Helper()
	conns, err := h.dialAs(uid, 1)
	if err != nil {
		t.Fatal(err)
	}
	return newGuest(t, conns[0])
}

// guest connects as this process's user.
func (h *host) guest(t *testing.T) *guest {
	t.Helper()
	conn, err := dialPatiently(h.socket)
	if err != nil {
		t.Fatal(err)
	}
	return newGuest(t, conn)
}

func newGuest(t *testing.T, conn net.Conn) *guest {
	t.Cleanup(func() { conn.Close() })
	return &guest{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// dialAs connects n times from one thread, which takes the user's identity and ends afterwards. It
// stops at the first failure.
func (h *host) dialAs(uid, n int) (conns []net.Conn, err error) {
	done := make(chan struct{})
	onAnotherThread(func() {
		defer close(done)
		if err = become(uid); err != nil {
			return
		}
		for range n {
			conn, cause := dialPatiently(h.socket)
			if cause != nil {
				err = cause
				return
			}
			conns = append(conns, conn)
		}
	})
	<-done // dialPatiently has a time limit, and dialAs stops at its first failure
	return conns, err
}

// dialPatiently waits while the kernel's queue of connections is full, as a blocking connect(2)
// does.
func dialPatiently(path string) (net.Conn, error) {
	for giveUp := time.Now().Add(patience); ; {
		conn, err := net.Dial("unix", path)
		if !errors.Is(err, syscall.EAGAIN) || time.Now().After(giveUp) {
			return conn, err
		}
		runtime.Gosched()
	}
}

// onAnotherThread calls do on a thread that ends with it. It is not the first thread, because that
// one shows the identity of the process to others.
func onAnotherThread(do func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			do()
			return
		}
		defer runtime.UnlockOSThread()
		onAnotherThread(do)
	}()
}

// become changes the identity of this thread only, unlike package syscall.
func become(uid int) error {
	id := uintptr(uid)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	return nil
}

// write sends text and reports whether the daemon read it. A daemon that hangs stops reading.
func (g *guest) write(text string) bool {
	g.conn.SetWriteDeadline(time.Now().Add(2 * patience))
	_, err := g.conn.Write([]byte(text))
	return err == nil
}

// line returns the next line, or "" and false at the end of the connection.
func (g *guest) line() (string, bool) {
	g.t.Helper()
	g.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := g.in.ReadString('\n')
	if os.IsTimeout(err) {
		g.t.Fatalf("no line within %v", patience)
	}
	return strings.TrimSuffix(line, "\n"), err == nil
}

// comes checks that the next line begins with want.
func (g *guest) comes(want string) string {
	g.t.Helper()
	line, _ := g.line()
	if !strings.HasPrefix(line, want) {
		g.t.Fatalf("got  %.300s\nwant %s", line, want)
	}
	return line
}

// ask sends a line and checks that the answer begins with want.
func (g *guest) ask(line, want string) string {
	g.t.Helper()
	g.write(line + "\n")
	return g.comes(want)
}

// connections returns the number of connections of the daemon.
func (a *arena) connections() int64 {
	a.t.Helper()
	a.good.write("STATUS\n")
	for {
		if line, _ := a.good.line(); !strings.HasPrefix(line, "- ") {
			return number(a.t, line, "connections")
		}
	}
}

// awaitConnections waits until the daemon has that many connections.
func (a *arena) awaitConnections(t *testing.T, want int64) {
	t.Helper()
	var got int64
	for start := time.Now(); time.Since(start) < patience; {
		if got = a.connections(); got == want {
			return
		}
	}
	t.Fatalf("after %v the daemon counts %d connections, want %d", patience, got, want)
}

// figures are measurements of the daemon from outside.
type figures struct {
	pairs, connects latencies // of the good user
	rss             int       // bytes
}

func (f figures) String() string {
	return fmt.Sprintf("LOCK and UNLOCK %v; connect and PING %v; rss %d MiB", f.pairs, f.connects, f.rss>>20)
}

// probe measures the latencies of the good user.
func (a *arena) probe() figures {
	a.t.Helper()
	return figures{
		pairs:    a.prober.measure(a.t, probePairs, rounds(3, 5)),
		connects: a.prober.measure(a.t, probeConnects, rounds(3, 5)),
		rss:      a.rss(),
	}
}

// probeBeside probes until the good user is served as fast as before. Other load of the machine may
// delay the good user at any time, but the bad user does not pause: what it can do, it does to each
// probe.
func (a *arena) probeBeside(before figures) (now figures) {
	for giveUp := time.Now().Add(patience); ; {
		now = a.probe()
		if now.slower(before, "") == nil || time.Now().After(giveUp) {
			return now
		}
	}
}

// slower returns the measurements that are too slow.
func (f figures) slower(before figures, when string) (found []string) {
	check := func(what string, now, before time.Duration) {
		if most := 2*before + slack; now > most {
			found = append(found, fmt.Sprintf("the p99 of %s %s is %v for the good user, want at most %v", what, when, now, most))
		}
	}
	check("LOCK and UNLOCK", f.pairs.P99, before.pairs.P99)
	check("connect and PING", f.connects.P99, before.connects.P99)
	return found
}

// rss returns the resident memory of the daemon.
func (a *arena) rss() int { return a.memory("VmRSS:") }

// anonymous returns the part of rss that is not from files.
func (a *arena) anonymous() int { return a.memory("RssAnon:") }

func (a *arena) memory(what string) int {
	a.t.Helper()
	return a.sizeOf(a.daemon, what)
}

// settles waits, while the good user continues, until the daemon has at most this memory, not
// counting the program and the state file. Go finds and returns unused memory gradually. The daemon
// keeps the buffers of the lanes at their largest size: some tens of MiB if nodes could not keep
// up.
func (a *arena) settles(t *testing.T, most int) {
	t.Helper()
	start, before := time.Now(), a.anonymous()
	for a.anonymous() > most {
		if time.Since(start) > 4*patience {
			t.Fatalf("after all of that the daemon has %d MiB, and keeps %d MiB for %v, want at most %d",
				before/mib, a.anonymous()/mib, 4*patience, most/mib)
		}
		a.probe()
	}
	t.Logf("measured: after all of that it has %d MiB of its own, and %v later %d MiB", before/mib, time.Since(start).Round(time.Second), a.anonymous()/mib)
}

// tableSize returns the size of the state files.
func (h *host) tableSize() (size int64) {
	files, _ := filepath.Glob(h.socket + ".table.*")
	for _, file := range files {
		if info, err := os.Stat(file); err == nil { // otherwise it is already gone
			size += info.Size()
		}
	}
	return size
}

// row is an attack of the bad user.
type row struct {
	name   string
	memory int // bytes of memory that it may cost the daemon
	do     func(a *arena, t *testing.T, during func())
}

// slack is how much later an answer may come if the processors are busy: the kernel may first run
// other processes, instead of the daemon or of the process that measures.
const slack = 10 * time.Millisecond

// run measures before, during and after an attack.
func (a *arena) run(t *testing.T, r row) {
	outer := a.t
	a.t, a.good.t = t, t
	defer func() { a.t, a.good.t = outer, outer }()
	before := a.calm
	if before == (figures{}) {
		before = a.probe()
	}
	before.rss = a.rss()
	var during figures
	r.do(a, t, func() { during = a.probeBeside(before) })
	after := a.probeBeside(before)
	a.calm = after
	t.Logf("measured:\nbefore: %v\nduring: %v\nafter:  %v", before, during, after)
	for _, slower := range append(during.slower(before, "meanwhile"), after.slower(before, "afterwards")...) {
		t.Error(slower)
	}
	if grown := max(during.rss, after.rss) - before.rss; grown > r.memory {
		t.Errorf("the daemon has taken %d MiB more, want at most %d", grown>>20, r.memory>>20)
	}
}

// lower gives all threads of this process, the bad user, a low priority until the test ends.
// Its children, which are all other processes, get the priority that the unit gives redlockd. So
// the test measures what the bad user does to the daemon, and not how it occupies the processors,
// which needs no daemon.
func lower(t *testing.T) {
	t.Helper()
	prioritize(t, os.Getpid(), 10)
	t.Cleanup(func() { prioritize(t, os.Getpid(), 0) })
	for _, child := range children(t) {
		prioritize(t, child, -10)
	}
}

// prioritize sets the priority of all threads of a process; their threads inherit it.
func prioritize(t *testing.T, pid, nice int) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, nice); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
}

// children returns the processes that this one has started.
func children(t *testing.T) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	parent := fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())
	for _, file := range files {
		status, _ := os.ReadFile(file) // the process may have ended
		if strings.Contains(string(status), parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}
