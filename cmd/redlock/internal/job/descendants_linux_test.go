package job

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

// roleThreads is a process with two threads that have one child each.
const roleThreads = "threads"

func init() { cmdtest.Roles[roleThreads] = threadsMain }

func threadsMain([]string) int {
	runtime.LockOSThread()
	first, second := exec.Command("sleep", "60"), exec.Command("sleep", "61")
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- second.Start()
		select {} // keeps the thread
	}()
	if err := errors.Join(first.Start(), <-started); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("up", os.Getpid())
	first.Wait()
	second.Wait()
	return 0
}

func TestParseStat(t *testing.T) {
	const rest = "0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 3456 0 0 0"
	for text, want := range map[string]descendant{
		"7 (sh) S 3 4 5 " + rest:             {pid: 7, parent: 3, session: 5, start: 3456},
		"7 (a) R 1 (b) S 9) Z 3 4 5 " + rest: {pid: 7, parent: 3, session: 5, start: 3456, dead: true},
		"7 (a b\n) X 3 4 5 " + rest:          {pid: 7, parent: 3, session: 5, start: 3456, dead: true},
	} {
		if got, err := parseStat(7, []byte(text)); err != nil || got != want {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "7 (sh", "7 (sh) S 3 4 5", "7 (sh) S x 4 5 " + rest, "7 (sh) S 3 4 5 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0"} {
		if k, err := parseStat(7, []byte(text)); err == nil {
			t.Errorf("%q is taken for %+v", text, k)
		}
	}
}

// Both ways of finding children find the same ones. Other tests start children of this process at
// the same time, so the test uses a separate process. In a container, the session may come from
// outside and then has number 0.
func TestChildren(t *testing.T) {
	t.Parallel()
	for role, cmd := range map[string]*exec.Cmd{"": cmdtest.Command(t, "sh", "-c", "sleep 60 & sleep 61 & echo up $$; wait"), roleThreads: cmdtest.Command(t, cmdtest.TestBinary)} {
		t.Run(role, func(t *testing.T) { findsTwo(t, cmdtest.StartCommand(t, cmd, role, "")) })
	}
}

func findsTwo(t *testing.T, p *cmdtest.Process) {
	t.Helper()
	pid := p.AwaitPuppet()
	us, err := readProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	pids := func(children []descendant) (all []int) {
		for _, k := range children {
			if k.parent != pid || k.session != us.session || k.start == 0 {
				t.Errorf("a child is %+v, want one of %d in our session, %d", k, pid, us.session)
			}
			all = append(all, k.pid)
		}
		slices.Sort(all)
		return all
	}
	listed, scanned := pids(listedChildren(pid)), pids(allByParent()[pid])
	if len(listed) != 2 || !slices.Equal(listed, scanned) {
		t.Errorf("the children are %v and %v, want the same two", listed, scanned)
	}
	for _, k := range allByParent()[pid] {
		if err := k.signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if k.start++; k.signal(syscall.SIGKILL) == nil {
			t.Errorf("a process that began at another time took a signal")
		}
	}
	p.ReadAll()
}

// childEnded reports a child that has ended until it is reaped: it may have started a process that
// the search for descendants missed. A running child is itself among the descendants.
func TestChildEnded(t *testing.T) { // not parallel: other tests have children
	child := cmdtest.Command(t, "sh", "-c", "read end")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if childEnded() {
		t.Error("a child that runs has ended, or one of another test is left")
	}
	stdin.Close()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, child.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if !childEnded() {
		t.Error("the child has ended, and is not seen")
	}
	if child.Wait(); childEnded() {
		t.Error("it is reaped, and seen yet")
	}
}

// A remaining process gets SIGTERM, or SIGKILL if other processes were already killed. redlock run
// does not end before it has reaped the dead ones. Otherwise it would miss processes that they
// started.
func TestLeftBehindIsSearchedAgain(t *testing.T) { // not parallel: it would end other tests' processes
	for want, killed := range map[syscall.Signal]bool{syscall.SIGTERM: false, syscall.SIGKILL: true} {
		heir := cmdtest.Command(t, "sh", "-c", "echo up $$; read end")
		p := cmdtest.StartCommand(t, heir, "", "")
		p.AwaitPuppet()
		c := &child{ended: true, lost: errors.New("lost"), killed: killed, recheck: time.NewTimer(0)}
		if c.finished() {
			t.Errorf("%v: finished, but a process still runs", want)
		}
		p.Stdin.Close() // a process that got no signal then ends by itself
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, heir.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		if c.finished() {
			t.Errorf("%v: finished, but the dead are not reaped", want)
		}
		p.ExpectExit(-int(want))
		if !c.finished() {
			t.Errorf("%v: not finished, but no process is left", want)
		}
	}
}
