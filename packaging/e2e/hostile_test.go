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
	"slices"
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

// arena is a daemon with the limits that it has by default, and two users: one who
// minds his own business, and one who does not.
type arena struct {
	*host
	daemon *process
	good   *guest
	turn   int
}

// newArena starts the daemon with more lines for its config.
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

// guest is a connection of some user.
type guest struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// as connects as a user: the kernel records who connects, not who writes.
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

// dialAs connects n times, from one thread, which takes the user's identity on and ends
// with that. It stops at the first failure.
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
	<-done
	return conns, err
}

// dialPatiently waits while there are as many who have not been accepted yet as the
// kernel allows, as a connect(2) that blocks does.
func dialPatiently(path string) (net.Conn, error) {
	for giveUp := time.Now().Add(patience); ; {
		conn, err := net.Dial("unix", path)
		if !errors.Is(err, syscall.EAGAIN) || time.Now().After(giveUp) {
			return conn, err
		}
		runtime.Gosched()
	}
}

// onAnotherThread calls do on a thread that ends with it, and is not the first one:
// what that is, the process is for others.
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

// become changes this thread only, as package syscall does not.
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

// write sends text, and tells whether it was taken.
func (g *guest) write(text string) bool {
	_, err := g.conn.Write([]byte(text))
	return err == nil
}

// line is the next line; "" and false at the end of the connection.
func (g *guest) line() (string, bool) {
	g.t.Helper()
	g.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := g.in.ReadString('\n')
	if os.IsTimeout(err) {
		g.t.Fatalf("no line within %v", patience)
	}
	return strings.TrimSuffix(line, "\n"), err == nil
}

// comes wants the next line to begin like this.
func (g *guest) comes(want string) string {
	g.t.Helper()
	line, _ := g.line()
	if !strings.HasPrefix(line, want) {
		g.t.Fatalf("got  %.300s\nwant %s", line, want)
	}
	return line
}

// ask sends a line and wants an answer that begins like this.
func (g *guest) ask(line, want string) string {
	g.t.Helper()
	g.write(line + "\n")
	return g.comes(want)
}

// connections is how many the daemon has.
func (a *arena) connections() int64 {
	a.t.Helper()
	a.good.write("STATUS\n")
	for {
		if line, _ := a.good.line(); !strings.HasPrefix(line, "- ") {
			return number(a.t, line, "connections")
		}
	}
}

// figures are what can be seen of the daemon from outside.
type figures struct {
	p50, p99 time.Duration // of LOCK and UNLOCK, each, of the good user
	rss      int           // bytes
}

func (f figures) String() string {
	return fmt.Sprintf("p50 %v p99 %v rss %d MiB", f.p50.Round(time.Microsecond), f.p99.Round(time.Microsecond), f.rss>>20)
}

// probe is what the good user meets. One round can have bad luck on a machine that does
// other things as well: the p99 is the median of several rounds'.
func (a *arena) probe() figures {
	a.t.Helper()
	const rounds, pairs = 5, 50
	var p50s, p99s []time.Duration
	for range rounds {
		var took []time.Duration
		for range pairs {
			a.turn++
			took = append(took, a.pair("good/"+strconv.Itoa(a.turn))...)
		}
		slices.Sort(took)
		p50s, p99s = append(p50s, took[len(took)/2]), append(p99s, took[len(took)*99/100])
	}
	return figures{median(p50s), median(p99s), a.rss()}
}

// pair takes a lock and gives it back.
func (a *arena) pair(name string) []time.Duration {
	a.t.Helper()
	start := time.Now()
	a.good.ask("LOCK "+name, "OK lock="+name)
	granted := time.Now()
	a.good.ask("UNLOCK "+name, "OK lock="+name)
	return []time.Duration{granted.Sub(start), time.Since(granted)}
}

// rss is the memory that the daemon has now.
func (a *arena) rss() int {
	a.t.Helper()
	status := readFile(a.t, fmt.Sprintf("/proc/%d/status", a.daemon.cmd.Process.Pid))
	_, rest, _ := strings.Cut(status, "VmRSS:")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		a.t.Fatal(err)
	}
	return kilobytes << 10
}

// tableSize is what the table takes of the file system.
func (h *host) tableSize() (size int64) {
	files, _ := filepath.Glob(h.socket + ".table.*")
	for _, file := range files {
		if info, err := os.Stat(file); err == nil { // else it is gone already
			size += info.Size()
		}
	}
	return size
}

// row is something that the bad user does.
type row struct {
	name   string
	memory int // bytes that it may cost the daemon at most
	do     func(a *arena, t *testing.T, during func())
}

// slack is how much later an answer may come on a machine that does other things
// as well, such as being the bad user.
const slack = time.Second

// run measures before, during and after a row.
func (a *arena) run(t *testing.T, r row) {
	outer := a.t
	a.t, a.good.t = t, t
	defer func() { a.t, a.good.t = outer, outer }()
	before := a.probe()
	var during figures
	r.do(a, t, func() {
		now := a.probe()
		during = figures{max(during.p50, now.p50), max(during.p99, now.p99), max(during.rss, now.rss)}
	})
	after := a.probe()
	t.Logf("measured: before: %v; during: %v; after: %v", before, during, after)
	if most := 2*before.p99 + slack; during.p99 > most {
		t.Errorf("the good user's p99 is %v meanwhile, want at most %v", during.p99, most)
	}
	if most := 2*before.p99 + slack; after.p99 > most {
		t.Errorf("the good user's p99 is %v afterwards, want at most %v", after.p99, most)
	}
	if grown := max(during.rss, after.rss) - before.rss; grown > r.memory {
		t.Errorf("the daemon has taken %d MiB more, want at most %d", grown>>20, r.memory>>20)
	}
}
