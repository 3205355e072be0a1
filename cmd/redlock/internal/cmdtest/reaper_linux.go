package cmdtest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	runVariable = "REDLOCK_TEST_RUN" // marks all processes that this process starts
	roleReaper  = "reaper"
)

func init() { Roles[roleReaper] = reap }

// held keeps the pipes open whose ends reapers wait for.
var held []*os.File

// StartReaper starts a process that kills all processes of this one when this one has ended, even
// by SIGKILL: also those in other sessions, and children of children.
func StartReaper() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	mark := fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
	reaper := exec.Command(os.Args[0], mark)
	reaper.Env = append(os.Environ(), RoleVariable+"="+roleReaper)
	reaper.Stdin = r
	reaper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := reaper.Start(); err != nil {
		return err
	}
	held = append(held, w)
	return os.Setenv(runVariable, mark)
}

// reap waits for the end of stdin. Then it kills the processes that have the mark in their
// environment, until none is left.
func reap(args []string) int {
	_, _ = io.Copy(io.Discard, os.Stdin)
	for killMarked([]byte(runVariable+"="+args[0]+"\x00")) > 0 {
		time.Sleep(10 * time.Millisecond) // they are ending, or have made new ones
	}
	return 0
}

func killMarked(mark []byte) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		environ, err := os.ReadFile(path) // fails if it has ended, or belongs to another user
		if err != nil || !bytes.Contains(environ, mark) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n
}
