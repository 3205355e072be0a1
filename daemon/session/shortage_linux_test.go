package session

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// If no file can be opened, LOCK hold=pid answers LIMIT. The daemon does not consider a running
// process ended.
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

// LOCK hold=pid answers LIMIT even if it is the client's first request with pid=. It does not blame
// the client's pid namespace.
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

// allowNoFiles lets the process open no file. poll(2) fails too, as it does without memory.
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

// Clients cannot use the descriptors that the connections to the nodes need. A new connection, and
// a LOCK hold=pid, get LIMIT. Existing connections are served.
func TestDescriptorsKeptForNodes(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	w := d.dial()
	w.Say("LOCK a", granted5)
	const forClients, tooMany = 10, 6 // some more, as this process opens files briefly
	kept := reservedFDsPerNode*3 + reservedFDsBesides
	restore := allowDescriptors(t, kept+forClients)
	served, refused := 0, 0
	for served < forClients && refused < tooMany { // this process has the clients' ends too
		other := d.dial()
		fmt.Fprintln(other.Conn, "PING") // fails if it is refused already
		if strings.HasPrefix(other.Line(), "ERR LIMIT") {
			refused++
		} else {
			served++
		}
	}
	if served == 0 || refused == 0 {
		t.Fatalf("%d other clients were served and %d refused, want some of each", served, refused)
	}
	w.Say(fmt.Sprintf("LOCK b hold=pid pid=%d", c.pid), `ERR LIMIT lock=b : .*LimitNOFILE=.*`)
	w.Say("CHECK a", granted5)
	if left, want := DescriptorsLeft(), kept-tooMany-4; left < want { // the clients' ends, and files that are open briefly
		t.Errorf("%d descriptors are left for the nodes, want %d", left, want)
	}
	restore()
	w.Until("STATUS", fmt.Sprintf(`connections=%d\b`, 1+served)) // a refused connection counts for no limit
	d.dial().Say("LOCK b", granted5)
}

// allowDescriptors allows n more descriptors. All of them are above those in use, because it fills
// the gaps that earlier tests may have left.
func allowDescriptors(t *testing.T, n int) (restore func()) {
	t.Helper()
	fillDescriptors(t)
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	return setFiles(t, now.Cur-uint64(DescriptorsLeft()-n))
}

// fillDescriptors opens a file for each unused descriptor below the highest one in use.
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
