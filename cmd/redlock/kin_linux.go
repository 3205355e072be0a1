package main

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

// The kin of this process are those of its descendants that are in its session:
// the command, what it has started, and so on. Who has made a session of its own,
// as daemons do, has left on purpose. Who was there before the command is none: a shell
// may have started somebody in the process that became this one, such as who reads what
// the command writes (in bash: redlock run NAME CMD > >(logger)).

// adoptOrphans makes descendants stay descendants when their parents end.
func adoptOrphans() {
	// It cannot fail since Linux 3.4. Where it did, orphans would be left alone.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// kinsman is a process as /proc shows it.
type kinsman struct {
	pid, parent, session int
	dead                 bool   // and not reaped yet
	start                uint64 // with pid, this tells it from any other
}

// kin are all that live, but for those of before, and what they have started. Where /proc is
// not mounted there are none to be seen.
func kin(before []kinsman) []kinsman {
	self := os.Getpid()
	us, err := readKinsman(self)
	if err != nil || childless() {
		return nil
	}
	children := childrenOf()
	var all []kinsman
	for todo := children(self); len(todo) > 0; todo = todo[1:] {
		k := todo[0]
		if slices.ContainsFunc(before, k.is) {
			continue
		}
		if k.session == us.session && !k.dead {
			all = append(all, k)
		}
		todo = append(todo, children(k.pid)...)
	}
	return all
}

// is tells whether both are one process, whatever has become of it.
func (k kinsman) is(other kinsman) bool { return k.pid == other.pid && k.start == other.start }

// childless tells whether there is nobody to look for, which the kernel knows at once.
func childless() bool {
	_, err := peek()
	return err == unix.ECHILD
}

// childEnded tells whether a child has ended, and is not reaped yet.
func childEnded() bool {
	ended, err := peek()
	return err == nil && ended
}

// peek looks at the children, and reaps none.
func peek() (ended bool, err error) {
	var info unix.Siginfo
	err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return info.Signo != 0, err
}

// childrenOf finds the children of a process: in the kernel's list of them, or
// else by a look at all processes, which takes long on a machine with many.
func childrenOf() func(pid int) []kinsman {
	if _, err := os.Stat("/proc/thread-self/children"); err == nil {
		return listedChildren
	}
	all := byParent()
	return func(pid int) []kinsman { return all[pid] }
}

// listedChildren are those of all threads of a process.
func listedChildren(pid int) (children []kinsman) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is well formed
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			child, _ := strconv.Atoi(word)
			if k, err := readKinsman(child); err == nil {
				children = append(children, k)
			}
		}
	}
	return children
}

// byParent are all processes of the machine.
func byParent() map[int][]kinsman {
	entries, _ := os.ReadDir("/proc") // what there is
	children := make(map[int][]kinsman)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if k, err := readKinsman(pid); err == nil {
			children[k.parent] = append(children[k.parent], k)
		}
	}
	return children
}

// readKinsman errs if there is no such process.
func readKinsman(pid int) (k kinsman, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return k, err
	}
	return parseStat(pid, text)
}

// parseStat reads proc(5)'s stat: pid (comm) state ppid pgrp session … starttime.
// comm may have any character in it.
func parseStat(pid int, text []byte) (k kinsman, err error) {
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

// signalAll sends sig to each of the kin, and reports how many took it. Those of other
// users do not.
func signalAll(kin []kinsman, sig syscall.Signal) (reached int) {
	for _, k := range kin {
		if k.signal(sig) == nil {
			reached++
		}
	}
	return reached
}

// signal makes sure that it is still the same process: the handle is of whoever
// has the pid now, and keeps it from being another's.
func (k kinsman) signal(sig syscall.Signal) error {
	process, err := os.FindProcess(k.pid)
	if err != nil {
		return err
	}
	defer process.Release()
	if now, err := readKinsman(k.pid); err != nil || !now.is(k) {
		return os.ErrProcessDone
	}
	return process.Signal(sig)
}
