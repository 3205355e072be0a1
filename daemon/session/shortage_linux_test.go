package session

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Where no file can be opened, LOCK with hold=pid says so, and no process that lives is
// taken for one that has ended.
func TestHoldPIDWithoutFiles(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	w := d.dial()
	w.Say(fmt.Sprintf("LOCK a hold=pid pid=%d", c.pid), granted5)
	restore := allowNoFiles(t)
	w.Say(fmt.Sprintf("LOCK b hold=pid pid=%d", c.pid), `ERR LIMIT lock=b : .*LimitNOFILE=.*`)
	w.Say("LOCK b hold=pid", `ERR LIMIT lock=b : .*LimitNOFILE=.*`)
	w.Say(fmt.Sprintf("CHECK a pid=%d", c.pid), granted5)
	restore()
	w.Say(fmt.Sprintf("LOCK b hold=pid pid=%d", c.pid), granted5)
	w.Say("LOCK c hold=pid", granted5)
	w.Say(fmt.Sprintf("UNLOCK a pid=%d", c.pid), `OK lock=a`)
}

// So it does where the client was not looked at before, and names a process: that has not to
// do with what numbers mean to it.
func TestFirstPIDWithoutFiles(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	w := d.dial()
	w.Say("PING", `OK`)
	restore := allowNoFiles(t)
	w.Say(fmt.Sprintf("TRY a hold=pid pid=%d", c.pid), `ERR LIMIT lock=a : .*LimitNOFILE=.*`)
	restore()
	w.Say(fmt.Sprintf("TRY a hold=pid pid=%d", c.pid), granted5)
}

// allowNoFiles also has poll(2) fail, as it does for want of memory.
func allowNoFiles(t *testing.T) (restore func()) {
	t.Helper()
	return setFiles(t, 0)
}

func setFiles(t *testing.T, n uint64) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(limit syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	set(syscall.Rlimit{Cur: n, Max: before.Max})
	restored := false
	restore = func() {
		if !restored {
			restored = true
			set(before)
		}
	}
	t.Cleanup(restore)
	return restore
}

// Clients take no descriptors that connections to the nodes will need: one who comes then
// is told so, as is one who would hold with a process; who is there is served on.
func TestDescriptorsKeptForNodes(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	w := d.dial()
	w.Say("LOCK a", granted5)
	const forClients, tooMany = 10, 6 // some more, as this process has files open for moments
	kept := keptPerNode*3 + keptBesides
	restore := allowDescriptors(t, kept+forClients)
	served, refused := 0, 0
	for served < forClients && refused < tooMany { // their ends of the connections are this process's, too
		other := d.dial()
		fmt.Fprintln(other.Conn, "PING") // an error: it is refused already
		if strings.HasPrefix(other.Line(), "ERR LIMIT") {
			refused++
		} else {
			served++
		}
	}
	if served == 0 || refused == 0 {
		t.Fatalf("of other clients %d were served and %d refused, want some of each", served, refused)
	}
	w.Say(fmt.Sprintf("LOCK b hold=pid pid=%d", c.pid), `ERR LIMIT lock=b : .*LimitNOFILE=.*`)
	w.Say("CHECK a", granted5)
	if left, want := DescriptorsLeft(), kept-tooMany-4; left < want { // their ends of the connections, and what is open for a moment
		t.Errorf("%d descriptors are left for the nodes, want %d", left, want)
	}
	restore()
	w.Until("STATUS", fmt.Sprintf(`connections=%d\b`, 1+served)) // who is refused counts for no limit
	d.dial().Say("LOCK b", granted5)
}

// allowDescriptors leaves so many above the lowest that is free, and none that is free
// lies among others: tests before this one may have left some.
func allowDescriptors(t *testing.T, n int) (restore func()) {
	t.Helper()
	fillDescriptors(t)
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	return setFiles(t, now.Cur-uint64(DescriptorsLeft()-n))
}

// fillDescriptors takes all that are free below the highest one.
func fillDescriptors(t *testing.T) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil {
			highest = max(highest, fd)
		}
	}
	for fd := 0; fd < highest; {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		fd = int(file.Fd())
	}
}
