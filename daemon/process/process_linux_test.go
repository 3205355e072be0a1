package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/redlock"
)

func TestFacts(t *testing.T) {
	const stat = "7 (a) R (b)) S 1 7 7 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n"
	var f Facts
	if err := f.readStat(fmt.Sprintf(stat, kernelThread|0x40, 1234)); err != nil || !f.Kernel || f.Started != 12340*time.Millisecond {
		t.Errorf("got %+v, %v; want a kernel thread that was started at 12.34s", f, err)
	}
	if err := f.readStat(fmt.Sprintf(stat, 0x400040, 1)); err != nil || f.Kernel {
		t.Errorf("got %+v, %v; want a process that is not a kernel thread", f, err)
	}
	if err := f.readStat("7 (cat) S 1"); err == nil {
		t.Error("a truncated stat is accepted")
	}
	if err := f.readStatus("Name:\tcat\nPPid:\t8\nUid:\t7\t0\t0\t0\nNSpid:\t77\t3\n"); err != nil || f.UID != 7 || f.Parent != 8 || !slices.Equal(f.IDs, []int{77, 3}) || !f.Nested() {
		t.Errorf("got %+v, %v; want the real user 7, the parent 8, in an inner namespace", f, err)
	}
	if err := f.readStatus("Uid:\t0\t0\t0\t0\nNSpid:\t77\n"); err != nil || f.UID != 0 || f.Nested() {
		t.Errorf("got %+v, %v; want root, in this namespace", f, err)
	}
	if err := f.readStatus("Uid:\tx\n"); err == nil {
		t.Error("a status with a malformed user is accepted")
	}
	if err := f.readStatus("Name:\tcat\n"); err == nil {
		t.Error("a status without a user is accepted")
	}
	own, err := FactsOf(os.Getpid())
	if err != nil || own.UID != os.Getuid() || own.Kernel || own.Parent != os.Getppid() || own.Started > redlock.BootTime() {
		t.Errorf("facts of this process: %+v, %v", own, err)
	}
}

// A watcher reports the end of each process that it watches once, and no other process.
func TestWatcherReportsEnds(t *testing.T) {
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	start := func() (cmd *exec.Cmd, fd int) {
		cmd = exec.Command("sleep", "100")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fd, err := Open(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return cmd, fd
	}
	ended := make(chan string, 3)
	watch := func(name string) (kill func(), fd int) {
		cmd, fd := start()
		if err := w.Watch(fd, func() { ended <- name }); err != nil {
			t.Fatal(err)
		}
		return func() {
			cmd.Process.Kill()
			cmd.Wait()
		}, fd
	}
	killFirst, first := watch("first")
	killUnwatched, unwatched := watch("unwatched")
	killLast, last := watch("last")
	defer Close(first)
	defer Close(unwatched)
	defer Close(last)
	w.Unwatch(unwatched)
	if w.takeEnded(last) != nil {
		t.Error("the end of a living process is reported")
	}
	killUnwatched()
	killFirst()
	if got := <-ended; got != "first" {
		t.Errorf("the end of %s is reported, want first", got)
	}
	killLast()
	if got := <-ended; got != "last" {
		t.Errorf("the end of %s is reported, want last", got)
	}
	if len(w.ended) != 0 {
		t.Errorf("%d processes are still watched", len(w.ended))
	}
}

// A stopped watcher refuses to watch a process.
func TestStoppedWatcher(t *testing.T) {
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	fd, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer Close(fd)
	if err := w.Watch(fd, func() {}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v, want that the watcher is closed", err)
	}
}

// Ancestors are found by the ids that they have in the process's own PID namespace, and only there. In
// the test, sh is process 1 of a namespace, its child sh has a child sleep, and the parent of process 1 is
// this process.
func TestOpenAbove(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	cmd := exec.Command("sh", "-c", "sh -c 'sleep 1000 & echo; wait'; exit $?") // the commands after the first keep both shells
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }() // process 1 takes the others with it
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	first := cmd.Process.Pid
	second := childOf(t, first)
	sleep := childOf(t, second)
	for _, test := range []struct {
		of, named, want int // 0: none
	}{
		{sleep, 3, sleep}, {sleep, 2, second}, {sleep, 1, first},
		{second, 2, second}, {second, 1, first}, {first, 1, first},
		{second, 3, 0},                                                // its child
		{sleep, 4, 0},                                                 // there is none
		{sleep, sleep, 0}, {sleep, first, 0}, {sleep, os.Getpid(), 0}, // numbers of other namespaces
		{os.Getpid(), os.Getpid(), os.Getpid()}, {os.Getpid(), os.Getppid(), os.Getppid()}, {os.Getpid(), first, 0},
	} {
		fd, err := Open(test.of)
		if err != nil {
			t.Fatal(err)
		}
		fd, id, err := OpenAbove(fd, test.of, test.named)
		if test.want == 0 {
			if !errors.Is(err, ErrNotAbove) {
				t.Errorf("process %d finds %d: %v, %v; want ErrNotAbove", test.of, test.named, id, err)
			}
			continue
		}
		if err != nil || id != test.want {
			t.Errorf("process %d finds %d, %v as %d, want %d", test.of, id, err, test.named, test.want)
			continue
		}
		if alive := IsAlive(fd); !alive {
			t.Errorf("process %d is ended, as its pidfd says", id)
		}
		Close(fd)
	}
	fd, err := Open(sleep)
	if err != nil {
		t.Fatal(err)
	}
	fd, _, err = OpenAbove(fd, sleep, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(fd)
	if err := syscall.Kill(second, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
	if IsAlive(fd) {
		t.Error("the pidfd does not belong to the process that it was opened for")
	}
	if fd, err = Open(sleep); err == nil { // process 1, which has waited for its child, may have ended meanwhile, and so sleep
		fd, id, err := OpenAbove(fd, sleep, 2)
		if err == nil {
			Close(fd)
			t.Errorf("process %d is found as 2, although that has ended", id)
		}
	}
}

// childOf returns the only child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	all, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(string(all), &child); err != nil {
		t.Fatal(err)
	}
	return child
}
