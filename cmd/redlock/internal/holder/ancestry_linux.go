package holder

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// wrappers are programs that run another one and end with it. Most of them exec it, and then are
// not parents. A wrapper is never the holder of a lock.
var wrappers = []string{
	"timeout", "env", "nice", "sudo", "doas", "xargs", "stdbuf", "setsid", "nohup", "ionice", "chrt", "taskset",
	"time", "strace", "find", "parallel", "chroot", "runuser", "setpriv", "unshare", "nsenter",
}

// serviceManagers adopt and start processes, on a host or in a container. Their lifetime is unrelated to a lock.
var serviceManagers = []string{"systemd", "init", "tini", "docker-init", "dumb-init", "catatonit"}

// shells are programs that run scripts.
var shells = []string{"sh", "dash", "bash", "ash", "ksh", "mksh", "zsh", "busybox"}

// ancestor is a process above this one, as /proc shows it.
type ancestor struct {
	pid, parent int
	name        string // up to 15 characters
	program     string // file name of its program; "" if that is hidden
	arguments   []string
	stack       string // address of its stack, chosen at each exec; "0" if hidden
}

// readAncestor fails if there is no such process, or /proc is not mounted.
func readAncestor(pid int) (a ancestor, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return a, err
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:])) // from the third field on, see proc(5)
	if open < 0 || len(fields) < 26 {
		return a, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	a.pid, a.name, a.stack = pid, string(stat[open+1:end]), fields[25]
	if _, err := fmt.Sscan(fields[1], &a.parent); err != nil {
		return a, err
	}
	program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // hidden for other users' processes
	a.program = strings.TrimSuffix(filepath.Base(program), " (deleted)")
	arguments, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	a.arguments = strings.Split(strings.TrimSuffix(string(arguments), "\x00"), "\x00")
	return a, nil
}

func (a *ancestor) isShell() bool { return slices.Contains(shells, a.program) }

// isForkOf reports whether the process is a fork of a shell that has not called exec since.
func (a *ancestor) isForkOf(shell *ancestor) bool {
	return a.isShell() && a.program == shell.program && a.stack == shell.stack && slices.Equal(a.arguments, shell.arguments)
}

// redirections matches redirections. They do not make a command more than one command.
var redirections = regexp.MustCompile(`[0-9]*(>>?|<)\s*(&[0-9-]|[\w./-]+)`)

// runsOneCommand reports whether the process is a shell -c with a single command: many shells exec
// that command.
func (a *ancestor) runsOneCommand() bool {
	if !a.isShell() || len(a.arguments) != 3 || !regexp.MustCompile(`^-[a-z]*c$`).MatchString(a.arguments[1]) {
		return false
	}
	return !strings.ContainsAny(redirections.ReplaceAllString(a.arguments[2], ""), ";&|\n`(){}")
}

// isSubstitution reports whether the process is the $( ) of its parent: a fork whose output the
// parent reads. A subshell in parentheses writes elsewhere.
func (a *ancestor) isSubstitution(parent *ancestor) bool {
	if !a.isForkOf(parent) {
		return false
	}
	output, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", a.pid))
	if err != nil || !strings.HasPrefix(output, "pipe:") {
		return false
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", parent.pid)) // fails only for a bad pattern
	return slices.ContainsFunc(open, func(fd string) bool {
		file, err := os.Readlink(fd)
		if err != nil || file != output {
			return false
		}
		link, err := os.Lstat(fd) // its permissions tell how the descriptor was opened
		return err == nil && link.Mode()&0o400 != 0
	})
}

// holderAbove returns the process that should hold a lock, if the caller may end at once. It
// returns 0 and the reason if there is none. Without /proc it returns the caller.
func holderAbove(caller int) (pid int, text string) {
	for pid = caller; ; {
		a, err := readAncestor(pid)
		if err != nil {
			return pid, ""
		}
		if slices.Contains(serviceManagers, a.name) && !a.isShell() { // a script in a container may have that name
			return 0, fmt.Sprintf("the parent process of redlock is %s (pid %d), which does not end with a script", a.name, pid)
		}
		above, err := readAncestor(a.parent)
		switch {
		case slices.Contains(wrappers, a.name) && (!a.isShell() || a.program == "busybox"), a.runsOneCommand():
		case err == nil && a.isSubstitution(&above):
		default:
			return pid, ""
		}
		if err != nil {
			return 0, fmt.Sprintf("%s (pid %d) ends immediately, and its parent process is hidden", a.name, pid)
		}
		pid = a.parent
	}
}

// shellsAbove returns the shells of which pid is a fork, the nearest first: they run the same
// script.
func shellsAbove(pid int) (pids []int) {
	a, err := readAncestor(pid)
	for err == nil {
		var above ancestor
		if above, err = readAncestor(a.parent); err == nil && !a.isForkOf(&above) {
			break
		}
		if err == nil {
			pids = append(pids, above.pid)
		}
		a = above
	}
	return pids
}
