package daemon

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// Where no file can be opened, LOCK with hold=pid says so, and no process that lives is
// taken for one that has ended.
func TestHoldPIDWithoutFiles(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	w := d.dial()
	w.say(fmt.Sprintf("LOCK a hold=pid pid=%d", c.pid), granted5)
	restore := allowNoFiles(t)
	w.say(fmt.Sprintf("LOCK b hold=pid pid=%d", c.pid), `ERR LIMIT lock=b : .*LimitNOFILE=.*`)
	w.say("LOCK b hold=pid", `ERR LIMIT lock=b : .*LimitNOFILE=.*`)
	w.say(fmt.Sprintf("CHECK a pid=%d", c.pid), granted5)
	restore()
	w.say(fmt.Sprintf("LOCK b hold=pid pid=%d", c.pid), granted5)
	w.say("LOCK c hold=pid", granted5)
	w.say(fmt.Sprintf("UNLOCK a pid=%d", c.pid), `OK lock=a`)
}

// So it does where the client was not looked at before, and names a process: that has not to
// do with what numbers mean to it.
func TestFirstPIDWithoutFiles(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	w := d.dial()
	w.say("PING", `OK`)
	restore := allowNoFiles(t)
	w.say(fmt.Sprintf("TRY a hold=pid pid=%d", c.pid), `ERR LIMIT lock=a : .*LimitNOFILE=.*`)
	restore()
	w.say(fmt.Sprintf("TRY a hold=pid pid=%d", c.pid), granted5)
}

// allowNoFiles also has poll(2) fail, as it does for want of memory.
func allowNoFiles(t *testing.T) (restore func()) {
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
	set(syscall.Rlimit{Cur: 0, Max: before.Max})
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
