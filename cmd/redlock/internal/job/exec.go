package job

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

// Exec takes the lock for this process, and replaces this process with the command. The lock needs
// hold=pid: the daemon releases it when the process ends. Exec returns only if it fails.
func (j *Job) Exec() error {
	signals := catchSignals()
	c, lease, err := j.acquire(signals)
	if err != nil {
		return err
	}
	defer c.Close()
	if !slices.ContainsFunc(j.Argv, func(word string) bool { return strings.Contains(word, fenceVariable) }) && term.Writable(j.Stderr) {
		fmt.Fprintf(j.Stderr, "redlock: lock %q: with --exec nothing stops the command if the lock is lost: its storage must check $%s, or it must run redlock check before each step that matters\n", j.Name, fenceVariable)
	}
	signal.Reset() // a signal now ends this process, and so releases the lock
	if sig := signals.pendingSignal(); sig != 0 {
		j.release(lease)
		return exit.WithCode(exit.SignalCode(sig))
	}
	err = execve(j.Path, j.Argv, environment(os.Environ(), j.Name, lease))
	j.release(lease)
	return cannotRun(j.Argv[0], err)
}

// execve replaces this process with a command. Like execvp, it runs a script without a #! line with
// the shell. It returns only if it fails.
func execve(path string, argv, env []string) error {
	err := syscall.Exec(path, argv, env)
	if errors.Is(err, syscall.ENOEXEC) {
		err = syscall.Exec("/bin/sh", append([]string{"/bin/sh", path}, argv[1:]...), env)
	}
	return err
}

// fenceVariable is the environment variable with the fencing token.
const fenceVariable = "REDLOCK_FENCE"

// mainProcessVariables name the main process of a systemd service in the environment.
var mainProcessVariables = []string{"LISTEN_PID", "WATCHDOG_PID"}

// namesProcess reports whether variable is one of mainProcessVariables and has this process as its
// value.
func namesProcess(variable string, pid int) bool {
	name, value, _ := strings.Cut(variable, "=")
	return slices.Contains(mainProcessVariables, name) && value == strconv.Itoa(pid)
}

// ExecForParent replaces this process with a command. If its environment names the parent process,
// redlock run, as the main process of a systemd service, it names the command instead: the variables
// must have the pid of the process that reads them, and no process knows the pid of a child before
// it exists.
func ExecForParent(path string, argv []string) error {
	env := os.Environ()
	for i, variable := range env {
		if namesProcess(variable, os.Getppid()) {
			name, _, _ := strings.Cut(variable, "=")
			env[i] = name + "=" + strconv.Itoa(os.Getpid())
		}
	}
	return cannotRun(argv[0], execve(path, argv, env))
}

// ExecForParentCommand is the hidden subcommand that calls ExecForParent. Its arguments are the path
// of the command, and its argv.
const ExecForParentCommand = "exec-for-parent"
