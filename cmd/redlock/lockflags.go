package main

import (
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/job"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/ipc"
)

// contradiction returns the error for flags that exclude each other. (cobra also knows them, for
// completion, but its error names internal lists: [nonblock nb timeout wait].)
func contradiction(cmd *cobra.Command) error {
	is := cmd.Flags().Changed
	exclusive := is("exclusive") || is("alone") // flock accepts -e and -x together
	switch {
	case (is("nonblock") || is("nb")) && (is("timeout") || is("wait")):
		return exit.Usagef("-n (--nonblock, --nb) and -w (--timeout, --wait) exclude each other: -n does not wait at all")
	case is("exec") && is("on-lost"):
		return exit.Usagef("--exec and --on-lost exclude each other: the command replaces redlock run, which could notice the loss")
	case is("exec") && is("grace"):
		return exit.Usagef("--exec and --grace exclude each other: the command replaces redlock run, which could send SIGTERM")
	case (is("nonblock") || is("nb")) && is("wait-for-self"):
		return exit.Usagef("-n (--nonblock, --nb) and --wait-for-self exclude each other: -n does not wait at all")
	case is("nonblock") && is("nb"):
		return exit.Usagef("-n (--nonblock) and --nb are the same: one of them is enough")
	case is("timeout") && is("wait"):
		return exit.Usagef("-w (--timeout) and --wait are the same: one of them is enough")
	case is("shared") && exclusive:
		return exit.Usagef("-s (--shared) and -x (--exclusive, -e) exclude each other: a lock is either shared or exclusive")
	case is("slots") && (is("shared") || exclusive):
		return exit.Usagef("--slots excludes -s (--shared) and -x (--exclusive, -e): a semaphore is neither shared nor exclusive")
	}
	return nil
}

// unlessContradicting checks the flags first, then the arguments.
func unlessContradicting(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, words []string) error {
		if err := contradiction(cmd); err != nil {
			return err
		}
		return args(cmd, words)
	}
}

// newJob parses the arguments of redlock run. If the command does not exist, it fails, so that the
// user does not wait for a lock in vain.
func newJob(f *runFlags, args []string) (*job.Job, error) {
	j := f.job()
	var err error
	if j.Name, j.Argv, err = f.words(args); err != nil {
		return nil, err
	}
	if j.Names, err = lockname.Split(j.Name); err != nil {
		return nil, err
	}
	if f.isSet("ttl") {
		if err := j.CheckGrace(j.TTL); err != nil {
			return nil, err
		}
	}
	if f.exec {
		j.Options = append(j.Options, client.WithHold(client.HoldPID))
	}
	j.Path, err = job.LookUp(j.Argv[0])
	return j, err
}

// job returns the job that the flags describe. It needs isSet.
func (f *runFlags) job() *job.Job {
	f.Bounded, f.Options, f.Holder = f.isSet("timeout"), f.lockOptions(), os.Getpid()
	return &f.Job
}

// words splits the arguments into the lock's name and the command.
func (f *runFlags) words(args []string) (name string, argv []string, err error) {
	if len(args) == 0 {
		return "", nil, exit.Usagef("the NAME of a lock and a command are missing")
	}
	name, rest := args[0], args[1:]
	dashes := len(rest) > 0 && rest[0] == "--"
	if dashes {
		rest = rest[1:]
	}
	switch {
	case f.isSet("command") && len(rest) > 0:
		return "", nil, exit.Usagef("with -c before NAME nothing may follow NAME, but %q does", rest[0])
	case f.isSet("command"):
		return name, job.Shell(f.shell), nil
	case len(rest) == 0:
		return "", nil, exit.Usagef("a command is missing after NAME (%q); if a script must hold the lock itself, as with flock NUMBER, use redlock lock NAME", name)
	case dashes || !strings.HasPrefix(rest[0], "-"):
		return name, rest, nil
	}
	// flock also accepts NAME -c STRING. Any other word with a dash after NAME is a misplaced flag rather
	// than a command.
	switch {
	case rest[0] != "-c" && rest[0] != "--command":
		return "", nil, exit.Usagef("write flags before NAME: %s comes after %q (a command that begins with a dash needs -- before it)", rest[0], name)
	case len(rest) != 2:
		return "", nil, exit.Usagef("%s after NAME takes exactly one word, the string for the shell, not %d", rest[0], len(rest)-1)
	}
	return name, job.Shell(rest[1]), nil
}

// lockOptions returns the options that the daemon checks.
func (f *runFlags) lockOptions() []client.Option {
	var options []client.Option
	add := func(flag string, option client.Option) {
		if f.isSet(flag) {
			options = append(options, option)
		}
	}
	if f.Shared {
		options = append(options, client.WithShared())
	}
	add("slots", client.WithSlots(f.Slots))
	add("ttl", client.WithTTL(f.TTL))
	add("max", client.WithMax(f.max))
	add("at-least", client.WithMin(f.atLeast))
	add("beat", client.WithBeat(f.beat))
	add("linger", client.WithLinger(f.linger))
	add("note", client.WithNote(f.note))
	add("grace", client.WithGuard(f.Grace))
	if f.isSet("ttl") && !f.isSet("grace") {
		options = append(options, job.ShortGuard(f.TTL)...)
	}
	return options
}

// namesHelp is for commands that take locks.
const namesHelp = `NAMES. Names with commas between them are several locks, taken together: all or none,
as one lease with one fencing token, and without a deadlock with processes that take
them in another order. Other commands (redlock check, and so on) need the same names in
the same order. A comma inside a name is written %2C, and %2C itself %252C. All other characters stand for
themselves, also a space and a percent sign, which the protocol writes %20 and %25.`

// runFlags are the values of the flags of redlock run.
type runFlags struct {
	job.Job                    // the flags that the job needs
	exec, exclusive            bool
	max, linger, beat, atLeast time.Duration
	shell, note                string

	// isSet reports whether a flag was given, under any of its names.
	isSet func(flag string) bool
}

func (f *runFlags) define(cmd *cobra.Command) {
	f.defineLock(cmd)
	set := cmd.Flags()
	set.SetInterspersed(false) // flags after NAME belong to the command
	set.VarP(flags.Text(&f.shell, "STRING"), "command", "c", "run STRING by /bin/sh -c")
	set.Var(flags.Text(&f.OnLost, "STRING"), "on-lost", "if the lock is lost, also run STRING by /bin/sh -c")
	set.BoolVar(&f.exec, "exec", false, "replace redlock run with the command: it keeps the process ID, and nothing stops it if the lock is lost")
	set.BoolVar(&f.WithParent, "with-parent", false, "if the parent process ends, end like after SIGTERM")
	set.Var(flags.Duration(&f.linger), "linger", "keep it for this time if redlock run is killed (default: redlockd's)")
	set.Var(flags.Duration(&f.Grace), "grace", "on loss, send SIGTERM this time before the deadline, at most half of the lease time (default: a fifth of it)")
	cmd.MarkFlagsMutuallyExclusive("exec", "on-lost")
	cmd.MarkFlagsMutuallyExclusive("exec", "grace")
}

// defineLock defines the flags of the commands that take a lock.
func (f *runFlags) defineLock(cmd *cobra.Command) {
	set := cmd.Flags()
	set.BoolVarP(&f.Nonblock, "nonblock", "n", false, "do not wait: fail at once")
	set.VarP(flags.Duration(&f.Wait), "timeout", "w", "wait at most this time, also for a redlockd that is not there yet (default: without a limit, but only for a redlockd that is there)")
	f.Conflict = exit.Conflict
	set.VarP(flags.Number(&f.Conflict, "CODE", 0, math.MaxUint8), "conflict-exit-code", "E", "exit code CODE if another process held the lock")
	set.BoolVarP(&f.Shared, "shared", "s", false, "share the lock with others that use -s (readers)")
	set.BoolVarP(&f.exclusive, "exclusive", "x", false, "hold it alone (the default)")
	set.Var(flags.Number(&f.Slots, "K", 1, ipc.MaxSlots), "slots", "at most K holders at a time, 1 to 1000, on all hosts together; all must use the same K")
	set.VarP(flags.Duration(&f.TTL), "ttl", "t", "lease time: how soon others get the lock if this host dies; from 100ms to max_ttl of redlockd's config (default: its lease.ttl)")
	set.Var(flags.Text(&f.note, "TEXT"), "note", "TEXT to show in redlock list, at most 200 bytes")
	set.Var(flags.Duration(&f.max), "max", "hold it at most this time, 100ms or more; then it is lost (default: redlockd's)")
	set.Var(flags.Duration(&f.atLeast), "at-least", "keep it taken for this time from the grant on, even if it is released earlier")
	set.Var(flags.Duration(&f.beat), "beat", "the lock is lost if redlock beat is not run for this time, 100ms or more (default: never)")
	set.BoolVar(&f.Verbose, "verbose", false, "say what happens to the lock, and who holds it while waiting")
	set.BoolVar(&f.WaitForSelf, "wait-for-self", false, "wait even if this command already runs under the lock, instead of failing at once")
	set.BoolVar(&f.Nonblock, "nb", false, "as --nonblock")
	set.BoolVarP(&f.exclusive, "alone", "e", false, "as --exclusive")
	set.Var(flags.Duration(&f.Wait), "wait", "as --timeout")
	for _, alias := range aliases {
		set.Lookup(alias).Hidden = true
	}
	cmd.MarkFlagsMutuallyExclusive("nonblock", "nb", "timeout", "wait")
	cmd.MarkFlagsMutuallyExclusive("nonblock", "nb", "wait-for-self")
	cmd.MarkFlagsMutuallyExclusive("shared", "exclusive", "slots")
	cmd.MarkFlagsMutuallyExclusive("shared", "alone", "slots")
}

// aliases are the other names of flags in flock(1).
var aliases = map[string]string{"nonblock": "nb", "timeout": "wait", "exclusive": "alone"}

// flagIsSet reports whether a flag is on the command line, under any name.
func flagIsSet(cmd *cobra.Command) func(flag string) bool {
	return func(flag string) bool {
		alias, has := aliases[flag]
		return cmd.Flags().Changed(flag) || has && cmd.Flags().Changed(alias)
	}
}
