package session

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/daemontest"
)

// A client in a PID namespace within the daemon's can name itself and its ancestors there by their pids,
// and no other process.
func TestHoldPIDOfAContainer(t *testing.T) {
	nc, err := exec.LookPath("nc")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs nc, and root to make a PID namespace")
	}
	d := startDaemon(t, 1, nil)
	cmd := exec.Command(nc, "-U", d.Cfg.Socket.Path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot make a PID namespace here: %v", err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	out := bufio.NewReader(stdout)
	say := func(request, pattern string) {
		t.Helper()
		stdout.(*os.File).SetReadDeadline(time.Now().Add(daemontest.Patience))
		io.WriteString(in, request+"\n")
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v", request, err)
		}
		daemontest.Matches(t, strings.TrimSuffix(line, "\n"), pattern)
	}
	foreign := `ERR OPTION lock=a : .*can name only itself and its parent processes there: use hold=conn \(redlock run\), or lease=`
	for _, pid := range []int{os.Getpid(), cmd.Process.Pid, 2} { // the first two are the parent and the client, for the daemon
		say(fmt.Sprintf("LOCK a hold=pid pid=%d", pid), foreign)
		say(fmt.Sprintf("UNLOCK a pid=%d", pid), foreign)
	}
	say("LOCK a hold=pid pid=1", granted5) // the client is process 1 of its namespace
	say("CHECK a pid=1", granted5)
	say("UNLOCK a pid=1", `OK lock=a`)
	say("UNLOCK pid=1", `ERR NOTHELD : .*process 1 has no lock.*`)
	say("LOCK a hold=pid", granted5)
	w := d.dial()
	w.Say(fmt.Sprintf("CHECK a pid=%d", cmd.Process.Pid), granted5)
	w.Send("LOCK a")
	d.dial().Until("LIST", `state=waiting`)
	cmd.Process.Kill()
	w.Want(granted5)
}
