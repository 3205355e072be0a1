package job

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file finds the processes that the command has started: the descendants of this process that
// are in its session. A process in a session of its own, such as a daemon, was left behind on
// purpose. Processes that were children before the command started are excluded: in bash, redlock
// run NAME CMD > >(logger) starts the logger in the process that becomes redlock run.

// adoptOrphans makes this process the parent of descendants whose parents end.
func adoptOrphans() {
	// It cannot fail since Linux 3.4. If it did, orphans would not be found.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// descendant is a process as /proc shows it.
type descendant struct {
	pid, parent, session int
	dead                 bool   // a zombie
	start                uint64 // start time; with pid it identifies the process
}

// descendants returns the living descendants of this process in its session, except the processes
// in before and their descendants. If /proc is not mounted, it returns none.
func descendants(preexisting []descendant) []descendant {
	self := os.Getpid()
	us, err := readProcess(self)
	if _, none := peekChildren(); err != nil || none == unix.ECHILD {
		return nil
	}
	children := childrenOf()
	var all []descendant
	for todo := children(self); len(todo) > 0; todo = todo[1:] {
		k := todo[0]
		if slices.ContainsFunc(preexisting, k.sameAs) {
			continue
		}
		if k.session == us.session && !k.dead {
			all = append(all, k)
		}
		todo = append(todo, children(k.pid)...)
	}
	return all
}

// sameAs reports whether both are the same process.
func (k descendant) sameAs(other descendant) bool {
	return k.pid == other.pid && k.start == other.start
}

// childEnded reports whether a child has ended and was not reaped yet.
func childEnded() bool {
	ended, err := peekChildren()
	return err == nil && ended
}

// peekChildren reports whether a child has ended, without reaping it.
func peekChildren() (ended bool, err error) {
	var info unix.Siginfo
	err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return info.Signo != 0, err
}

// childrenOf returns a function that finds the children of a process: in the kernel's list or,
// without that, by reading all of /proc once, which is slow on a machine with many processes.
func childrenOf() func(pid int) []descendant {
	if _, err := os.Stat("/proc/thread-self/children"); err == nil {
		return listedChildren
	}
	all := allByParent()
	return func(pid int) []descendant { return all[pid] }
}

// listedChildren reads the kernel's lists of children, one for each thread.
func listedChildren(pid int) (children []descendant) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // fails only for a bad pattern
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			child, _ := strconv.Atoi(word)
			if k, err := readProcess(child); err == nil {
				children = append(children, k)
			}
		}
	}
	return children
}

// allByParent returns all processes of the machine by their parents.
func allByParent() map[int][]descendant {
	entries, _ := os.ReadDir("/proc") // as far as it could be read
	children := make(map[int][]descendant)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if k, err := readProcess(pid); err == nil {
			children[k.parent] = append(children[k.parent], k)
		}
	}
	return children
}

// readProcess reads /proc. It fails if there is no such process.
func readProcess(pid int) (k descendant, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return k, err
	}
	return parseStat(pid, text)
}

// parseStat parses /proc/PID/stat, see proc(5): pid (comm) state ppid pgrp session …
// starttime. comm may contain any character.
func parseStat(pid int, text []byte) (k descendant, err error) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return k, fmt.Errorf("/proc/%d/stat is too short: %q", pid, text)
	}
	k.pid, k.dead = pid, slices.Contains([]string{"Z", "X"}, string(fields[0]))
	number := func(i int) (n int) {
		if err == nil {
			n, err = strconv.Atoi(string(fields[i]))
		}
		return n
	}
	k.parent, k.session, k.start = number(1), number(3), uint64(number(19))
	return k, err
}

// signalProcesses sends sig to each process, and returns how many received it. Processes of other
// users do not.
func signalProcesses(processes []descendant, sig syscall.Signal) (reached int) {
	for _, k := range processes {
		if k.signal(sig) == nil {
			reached++
		}
	}
	return reached
}

// signal sends sig if the same process still has the pid. The handle of os.FindProcess keeps the
// pid from being reused between the check and the signal.
func (k descendant) signal(sig syscall.Signal) error {
	process, err := os.FindProcess(k.pid)
	if err != nil {
		return err
	}
	defer process.Release()
	if now, err := readProcess(k.pid); err != nil || !now.sameAs(k) {
		return os.ErrProcessDone
	}
	return process.Signal(sig)
}
