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

// contradiction is the error of flags that do not go together; nil: all do. (cobra, which
// knows of it for completion, would name them as it keeps them: [nonblock nb timeout wait].)
func contradiction(cmd *cobra.Command) error {
	is := cmd.Flags().Changed
	exclusive := is("exclusive") || is("alone") // flock has -e and -x, and takes both
	switch {
	case (is("nonblock") || is("nb")) && (is("timeout") || is("wait")):
		return exit.Usagef("-n (--nonblock, --nb) and -w (--timeout, --wait) contradict each other: not to wait at all, and for how long to wait")
	case is("nonblock") && is("nb"):
		return exit.Usagef("-n (--nonblock) and --nb are the same: one of them is enough")
	case is("timeout") && is("wait"):
		return exit.Usagef("-w (--timeout) and --wait are the same: for how long to wait is to be said once")
	case is("shared") && exclusive:
		return exit.Usagef("-s (--shared) and -x (--exclusive, -e) contradict each other: together with others who say -s, and alone")
	case is("slots") && (is("shared") || exclusive):
		return exit.Usagef("--slots goes neither with -s (--shared) nor with -x (--exclusive, -e): so many hold it at a time, whoever they are")
	}
	return nil
}

// unlessContradicting is what is said of the arguments, where the flags go together.
func unlessContradicting(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, words []string) error {
		if err := contradiction(cmd); err != nil {
			return err
		}
		return args(cmd, words)
	}
}

// newJob is what the command line asks for, or a failure. The command must be
// there, as nobody is to wait for a lock in vain.
func newJob(f *runFlags, args []string) (*job.Job, error) {
	j := f.job()
	var err error
	if j.Name, j.Argv, err = f.words(args); err != nil {
		return nil, err
	}
	if j.Names, err = lockname.Split(j.Name); err != nil {
		return nil, err
	}
	if f.given("ttl") {
		if err := j.CheckGrace(j.TTL); err != nil {
			return nil, err
		}
	}
	j.Path, err = job.LookUp(j.Argv[0])
	return j, err
}

// job is how the flags want the lock to be taken.
func (f *runFlags) job() *job.Job {
	return &job.Job{
		Nonblock: f.nonblock,
		Wait:     f.wait,
		Bounded:  f.given("timeout"),
		Conflict: f.conflict,
		TTL:      f.ttl,
		Grace:    f.grace,
		Options:  f.lockOptions(),
		Holder:   os.Getpid(),
		Shares:   f.shared || f.slots > 1,
		Verbose:  f.verbose,
	}
}

// words splits what follows the flags into the lock's name and the command.
func (f *runFlags) words(args []string) (name string, argv []string, err error) {
	if len(args) == 0 {
		return "", nil, exit.Usagef("the NAME of a lock is wanted, and a command")
	}
	name, rest := args[0], args[1:]
	dashes := len(rest) > 0 && rest[0] == "--"
	if dashes {
		rest = rest[1:]
	}
	switch {
	case f.given("command") && len(rest) > 0:
		return "", nil, exit.Usagef("with -c before NAME nothing follows NAME, but here is %q", rest[0])
	case f.given("command"):
		return name, job.Shell(f.shell), nil
	case len(rest) == 0:
		return "", nil, exit.Usagef("after NAME (%q) a command is wanted (a script that is to hold the lock itself, as with flock NUMBER: redlock lock NAME)", name)
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
		return "", nil, exit.Usagef("flags stand before NAME: %s comes after %q (a command that begins with a dash needs -- before it)", rest[0], name)
	case len(rest) != 2:
		return "", nil, exit.Usagef("%s after NAME takes exactly one word, the string for the shell, not %d", rest[0], len(rest)-1)
	}
	return name, job.Shell(rest[1]), nil
}

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
	add("ttl", client.WithTTL(f.ttl))
	add("max", client.WithMax(f.max))
	add("beat", client.WithBeat(f.beat))
	add("linger", client.WithLinger(f.linger))
	add("note", client.WithNote(f.note))
	add("grace", client.WithGuard(f.grace))
	if f.given("ttl") && !f.given("grace") {
		options = append(options, job.ShortGuard(f.ttl)...)
	}
	return options
}

// namesHelp is for who takes locks.
const namesHelp = `NAMES. With commas between them several locks are taken at once, all or none: as one,
with one fencing token, and without standing in the way of those who take the same in
another order. Who asks about it (redlock check, and so on) names all of them, in the
same order. A comma that belongs to a name is written %2C; all else stands for itself,
also a space and a percent sign, which the protocol has as %20 and %25.`

// runFlags is what the flags of run say.
type runFlags struct {
	nonblock, verbose             bool
	shared, exclusive             bool
	slots                         int
	wait, ttl, max, linger, grace time.Duration
	beat                          time.Duration
	conflict                      int
	shell, note                   string

	given func(flag string) bool
}

func (f *runFlags) define(cmd *cobra.Command) {
	f.defineLock(cmd)
	set := cmd.Flags()
	set.SetInterspersed(false) // what follows NAME is the command's
	set.VarP(flags.Text(&f.shell, "STRING"), "command", "c", "run STRING by /bin/sh -c")
	set.Var(flags.Duration(&f.linger), "linger", "keep it so long if redlock run is killed (default: redlockd's)")
	set.Var(flags.Duration(&f.grace), "grace", "on loss, send SIGTERM so long before the deadline, at most half of the lease time (default: a fifth of it)")
	withoutDefaults(cmd)
}

// defineLock makes the flags that every command has that takes a lock.
func (f *runFlags) defineLock(cmd *cobra.Command) {
	set := cmd.Flags()
	set.BoolVarP(&f.nonblock, "nonblock", "n", false, "do not wait: fail at once")
	set.VarP(flags.Duration(&f.wait), "timeout", "w", "wait at most so long (default: for ever)")
	f.conflict = exit.Conflict
	set.VarP(flags.Number(&f.conflict, "CODE", 0, math.MaxUint8), "conflict-exit-code", "E", "exit code CODE if somebody else held the lock")
	set.BoolVarP(&f.shared, "shared", "s", false, "together with others who say so (readers)")
	set.BoolVarP(&f.exclusive, "exclusive", "x", false, "alone; that is so anyway")
	set.Var(flags.Number(&f.slots, "K", 1, ipc.MaxSlots), "slots", "at most K at a time, 1 to 1000, on all hosts together; all must say the same K")
	set.VarP(flags.Duration(&f.ttl), "ttl", "t", "lease time: how soon others get the lock if this host dies; from 100ms to max_ttl of redlockd's config (default: its lease.ttl)")
	set.Var(flags.Text(&f.note, "TEXT"), "note", "TEXT for who looks with redlock list, at most 200 bytes")
	set.Var(flags.Duration(&f.max), "max", "hold it at most so long, 100ms or more: it is lost then (default: redlockd's)")
	set.Var(flags.Duration(&f.beat), "beat", "the lock is lost when redlock beat was not run for so long, 100ms or more (default: never)")
	set.BoolVar(&f.verbose, "verbose", false, "say what happens to the lock, and who holds it while waiting")
	set.BoolVar(&f.nonblock, "nb", false, "as --nonblock")
	set.BoolVarP(&f.exclusive, "alone", "e", false, "as --exclusive")
	set.Var(flags.Duration(&f.wait), "wait", "as --timeout")
	for _, alias := range aliases {
		set.Lookup(alias).Hidden = true
	}
	cmd.MarkFlagsMutuallyExclusive("nonblock", "nb", "timeout", "wait")
	cmd.MarkFlagsMutuallyExclusive("shared", "exclusive", "slots")
	cmd.MarkFlagsMutuallyExclusive("shared", "alone", "slots")
}

// withoutDefaults leaves it to the usage of times to say what the default is.
func withoutDefaults(cmd *cobra.Command) {
	for _, name := range []string{"timeout", "ttl", "max", "beat", "linger", "grace"} {
		if flag := cmd.Flags().Lookup(name); flag != nil {
			flag.DefValue = ""
		}
	}
}

// aliases are the other names that flock has for flags.
var aliases = map[string]string{"nonblock": "nb", "timeout": "wait", "exclusive": "alone"}

// given tells whether a flag is on the command line, under any name.
func given(cmd *cobra.Command) func(flag string) bool {
	return func(flag string) bool {
		alias, has := aliases[flag]
		return cmd.Flags().Changed(flag) || has && cmd.Flags().Changed(alias)
	}
}
