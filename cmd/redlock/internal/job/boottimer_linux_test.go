package job

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
	"github.com/redlockd/redlockd/redlock/boottime"
)

func TestAlarm(t *testing.T) {
	a, err := newBootTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, in := range []time.Duration{-time.Hour, 0, 20 * time.Millisecond} {
		at := boottime.Exact() + in
		a.set(boottime.Exact() + time.Hour) // the later call replaces it
		a.set(at)
		select {
		case <-a.C:
		case <-time.After(cmdtest.Timeout):
			t.Fatalf("an alarm in %v does not ring", in)
		}
		if early := at - boottime.Exact(); early > 0 {
			t.Errorf("an alarm in %v rang %v too early", in, early)
		}
	}
	a.set(-1) // before the boot of this host
	<-a.C
}

// A timer that fires does not wait for a reader. Otherwise close could block.
func TestAlarmWithoutReader(t *testing.T) {
	a, err := newBootTimer()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		a.set(0)
		cmdtest.Await(t, "a ring", func() bool { return !due(t, a) })
	}
	closed := make(chan struct{})
	go func() {
		a.close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(cmdtest.Timeout):
		t.Error("it does not close")
	}
}

// due reports whether the timer has fired and its channel was not read yet.
func due(t *testing.T, a *bootTimer) (is bool) {
	t.Helper()
	term.Descriptor(a.file, func(fd int) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		is = err == nil && n == 1
	})
	return is
}
