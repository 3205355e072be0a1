package job

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// This user cannot signal a command that runs as another user, such as sudo. redlock run says so at
// once and at the end. It does not say that the command got a signal.
func TestCommandOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to run a command that another user cannot stop")
	}
	cmd := exec.Command("cat")
	if _, err := cmd.StdinPipe(); err != nil { // Wait closes stdin, and cat ends
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	var stderr strings.Builder
	c := &child{pid: cmd.Process.Pid, process: cmd.Process, lost: errors.New("lost"), killed: true, stderr: &stderr}
	asNobody(t, func() { c.send(syscall.SIGKILL) })
	c.reportOtherUser()
	if words := c.howStopped(); strings.Contains(words, "got SIGKILL") || !strings.Contains(words, "could not be stopped") {
		t.Errorf("in the end: %q, want that it could not be stopped", words)
	}
	if text := stderr.String(); !strings.Contains(text, "redlock: lost; the command") || !strings.Contains(text, "cannot be stopped") {
		t.Errorf("at once: %q, want that it cannot be stopped", text)
	}
	if pid := strconv.Itoa(c.pid); !strings.HasSuffix(c.outcome().Error(), c.survivors()) || !strings.Contains(c.survivors(), pid) {
		t.Errorf("in the end: %q, want those that run on, as pid %s", c.outcome(), pid)
	}
	if c.send(syscall.SIGTERM); c.otherUser {
		t.Error("it counts as one that takes no signal, though it took one from root")
	}
}

// asNobody runs f on a thread of another user. The thread ends with f.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends
		_, _, err := syscall.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534)
		if err == 0 {
			f()
		}
		done <- err
	}()
	if err := <-done; err != 0 {
		t.Fatal(err)
	}
}
