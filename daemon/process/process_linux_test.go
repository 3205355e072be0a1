package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

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
	if err := f.readStatus("Name:\tcat\nUid:\t7\t0\t0\t0\nNSpid:\t77\t3\n"); err != nil || f.UID != 7 || !f.Nested {
		t.Errorf("got %+v, %v; want the real user 7, in an inner namespace", f, err)
	}
	if err := f.readStatus("Uid:\t0\t0\t0\t0\nNSpid:\t77\n"); err != nil || f.UID != 0 || f.Nested {
		t.Errorf("got %+v, %v; want root, in this namespace", f, err)
	}
	if err := f.readStatus("Name:\tcat\n"); err == nil {
		t.Error("a status without a user is accepted")
	}
	own, err := FactsOf(os.Getpid())
	if err != nil || own.UID != os.Getuid() || own.Kernel || own.Started > redlock.BootTime() {
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
