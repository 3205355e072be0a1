//go:build !linux

package redlocktest

import (
	"errors"
	"os"
	"os/exec"
)

var errNeedsLinux = errors.New("this needs Linux and its /proc")

func dieWithParent(*exec.Cmd) {} // only Kill and the test's clean-up end the process

// Pause fails: it needs Linux.
func Pause(*os.Process) error { return errNeedsLinux }

func resume(*os.Process) error { return errNeedsLinux }

func cpuSeconds(int) (float64, error) { return 0, errNeedsLinux }
