package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/client"
)

// job is a command to be run under a lock.
type job struct {
	name  string   // of the lock, or of several, as the command line has them
	names []string // that stands for
	path  string   // of the command
	argv  []string

	nonblock bool
	wait     time.Duration // how long to wait for the lock, if bounded
	bounded  bool
	conflict int           // exit code if it is not obtained
	ttl      time.Duration // 0: the daemon's
	grace    time.Duration // 0: the daemon's guard
	options  []client.Option
	holder   int  // the process that is to hold it
	shares   bool // the lock, with others
	verbose  bool

	stdin          io.Reader
	stdout, stderr io.Writer
}

// newJob is what the command line asks for, or a failure. The command must be
// there, as nobody is to wait for a lock in vain.
func newJob(f *runFlags, args []string) (*job, error) {
	j := f.job()
	var err error
	if j.name, j.argv, err = f.words(args); err != nil {
		return nil, err
	}
	if j.names, err = splitNames(j.name); err != nil {
		return nil, err
	}
	if f.given("ttl") {
		if err := j.checkGrace(j.ttl); err != nil {
			return nil, err
		}
	}
	j.path, err = lookUp(j.argv[0])
	return j, err
}

// job is how the flags want the lock to be taken.
func (f *runFlags) job() *job {
	return &job{
		nonblock: f.nonblock,
		wait:     time.Duration(f.wait),
		bounded:  f.given("timeout"),
		conflict: f.conflict,
		ttl:      time.Duration(f.ttl),
		grace:    time.Duration(f.grace),
		options:  f.lockOptions(),
		holder:   os.Getpid(),
		shares:   f.shared || f.slots > 1,
		verbose:  f.verbose,
	}
}

// words splits what follows the flags into the lock's name and the command.
func (f *runFlags) words(args []string) (name string, argv []string, err error) {
	if len(args) == 0 {
		return "", nil, usage("the NAME of a lock is wanted, and a command")
	}
	name, rest := args[0], args[1:]
	dashes := len(rest) > 0 && rest[0] == "--"
	if dashes {
		rest = rest[1:]
	}
	switch {
	case f.given("command") && len(rest) > 0:
		return "", nil, usage("with -c before NAME nothing follows NAME, but here is %q", rest[0])
	case f.given("command"):
		return name, shell(f.shell), nil
	case len(rest) == 0:
		return "", nil, usage("after NAME (%q) a command is wanted (a script that is to hold the lock itself, as with flock NUMBER: redlock lock NAME)", name)
	case dashes || !strings.HasPrefix(rest[0], "-"):
		return name, rest, nil
	}
	return flockWords(name, rest)
}

// flockWords is NAME -c STRING, which flock takes too; all else that begins with
// a dash is refused: a flag on the wrong side of NAME rather than a command.
func flockWords(name string, rest []string) (string, []string, error) {
	switch {
	case rest[0] != "-c" && rest[0] != "--command":
		return "", nil, usage("flags stand before NAME: %s comes after %q (a command that begins with a dash needs -- before it)", rest[0], name)
	case len(rest) != 2:
		return "", nil, usage("%s after NAME takes exactly one word, the string for the shell, not %d", rest[0], len(rest)-1)
	}
	return name, shell(rest[1]), nil
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

// lockOptions are the flags that are the daemon's business, which checks them.
func (f *runFlags) lockOptions() []client.Option {
	var options []client.Option
	add := func(flag string, option client.Option) {
		if f.given(flag) {
			options = append(options, option)
		}
	}
	if f.shared {
		options = append(options, client.WithShared())
	}
	add("slots", client.WithSlots(f.slots))
	add("ttl", client.WithTTL(time.Duration(f.ttl)))
	add("max", client.WithMax(time.Duration(f.max)))
	add("beat", client.WithBeat(time.Duration(f.beat)))
	add("linger", client.WithLinger(time.Duration(f.linger)))
	add("note", client.WithNote(f.note))
	add("grace", client.WithGuard(time.Duration(f.grace)))
	if f.given("ttl") && !f.given("grace") {
		options = append(options, shortGuard(time.Duration(f.ttl))...)
	}
	return options
}

// shortGuard makes the guard of a very short lease, a fifth of it as it comes,
// leave the command as long between SIGTERM and SIGKILL as between that and the
// deadline. The daemon takes half of the ttl at most.
func shortGuard(ttl time.Duration) []client.Option {
	guard := min(2*killMargin(ttl), ttl/2)
	if guard <= ttl/5 {
		return nil
	}
	return []client.Option{client.WithGuard(guard)}
}

// checkGrace refuses a --grace that ends after the SIGKILL.
func (j *job) checkGrace(ttl time.Duration) error {
	if j.grace == 0 || j.grace > killMargin(ttl) {
		return nil
	}
	return usage("--grace %v: the command gets SIGKILL %v before the deadline, and wants to be told before", j.grace, killMargin(ttl).Round(time.Millisecond))
}

// lookUp finds a command as execvp does.
func lookUp(command string) (string, error) {
	path, err := exec.LookPath(command)
	if errors.Is(err, exec.ErrDot) {
		err = nil // PATH says so
	}
	return path, cannotRun(command, err)
}

// cannotRun is the failure to run a command; nil for nil.
func cannotRun(command string, err error) error {
	switch reason, _ := errors.AsType[*exec.Error](err); {
	case err == nil:
		return nil
	case reason != nil:
		err = reason.Err // the command is named here
	}
	code := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	if code == exitNotFound && strings.ContainsAny(command, " ;|&<>\n") {
		return fail(code, "the command %q cannot be run: %w; a line for a shell stands after -c", command, err)
	}
	return fail(code, "the command %q cannot be run: %w", command, err)
}

// environment is this process's, and what the command may want to know of its lock.
func environment(environ []string, name string, l *client.Lease) []string {
	return append(slices.Clip(environ),
		"REDLOCK_NAME="+name,
		"REDLOCK_FENCE="+strconv.FormatUint(l.Fence(), 10),
		"REDLOCK_LEASE="+l.ID(),
		"REDLOCK_SLOT="+slotWord(l), // empty, too: it may be there of a redlock run above
		"REDLOCK_SOCKET="+socketPath(),
	)
}
