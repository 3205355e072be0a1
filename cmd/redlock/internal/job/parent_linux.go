package job

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// serviceManagers adopt processes whose parents have ended.
var serviceManagers = []string{"systemd", "init"}

// endWithParent makes the kernel send SIGTERM to this process when its parent ends. It fails if the
// parent has ended already. The kernel keeps the setting for one thread, so endWithParent ties the
// calling goroutine, which must be the main one, to its thread for good.
func endWithParent() error {
	parent := os.Getppid()
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent)) // without /proc only the pid counts
	switch comm := strings.TrimSpace(string(name)); {
	case parent == 0:
		return exit.Usagef("--with-parent: the parent process is outside of this container, so its end cannot be noticed")
	case parent == 1 || comm == serviceManagers[0] || comm == serviceManagers[1]:
		return exit.Usagef("--with-parent: the parent process is %s (pid %d), which adopts processes: the process that started redlock has ended, or needs no --with-parent", comm, parent)
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0); err != nil {
		return exit.Errorf(exit.Internal, "--with-parent: %w", err)
	}
	if os.Getppid() != parent { // it ended before the setting
		return exit.Errorf(exit.SignalCode(syscall.SIGTERM), "--with-parent: the parent process (pid %d) has ended", parent)
	}
	return nil
}
