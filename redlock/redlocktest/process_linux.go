package redlocktest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopTimeout bounds the wait for a process to stop after SIGSTOP.
const stopTimeout = 10 * time.Second

// ticksPerSecond is USER_HZ, the unit of the times in /proc/PID/stat. Linux has fixed it at 100.
const ticksPerSecond = 100

// dieWithParent makes the kernel kill the child when the thread that started it ends. So a killed
// test leaves no server behind. Go ends a thread only when the process ends, or with a goroutine
// that was locked to it.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// Pause stops a process with SIGSTOP, and waits until it has stopped: until then its threads may run.
func Pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for limit := time.Now().Add(stopTimeout); ; <-time.After(retryPause) {
		stat, err := readStat(p.Pid)
		if err != nil {
			return err
		}
		if stat[0] == "T" {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("process %d is still in state %s after %v", p.Pid, stat[0], stopTimeout)
		}
	}
}

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

func cpuSeconds(pid int) (float64, error) {
	stat, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	user, err1 := strconv.ParseFloat(stat[11], 64)
	system, err2 := strconv.ParseFloat(stat[12], 64)
	return (user + system) / ticksPerSecond, errors.Join(err1, err2)
}

// readStat returns the fields of /proc/PID/stat from the third one, the state. The second one, a
// name, may contain spaces.
func readStat(pid int) ([]string, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return nil, fmt.Errorf("%s: %d fields after the name, expected at least 13", path, len(fields))
	}
	return fields, nil
}
