package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/holder"
	"github.com/redlockd/redlockd/cmd/redlock/internal/job"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

const lockHelp = `Take a lock for a shell script. The process that calls redlock lock, such as the shell of
a script, holds the lock until it ends for any reason, or runs redlock unlock.
Nothing is printed, and nothing needs to be evaluated.

  if redlock lock backup -w 10s; then
      …
      redlock unlock backup     # or leave it to the end of the script
  fi

HOLDER. The holder is the parent process, which normally is the shell of the script. A
parent that ends immediately is skipped: in $( ) the holder is the shell of the script,
and under timeout, env, nice, sudo, xargs, stdbuf, setsid and the like it is the process
that runs them. In parentheses it is the subshell: ( redlock lock job; … ) holds the lock
until the closing parenthesis. If there is no such process, redlock lock fails (exit code
64). --pid names another process; $$ always is the shell of the script. The process must
belong to the same user (root: any user). It is identified by more than its pid, so a
later process with the same pid does not hold the lock. In a container with its own
pids, --pid can name only a process above redlock, such as the script or the entrypoint,
and redlockd must see it: on the host, or with the host's pids. If it does not, redlock
lock fails (exit code 64), and redlock run works.

LOSS. A shell is not notified of a loss: run redlock check before a step that
matters. The storage should refuse a smaller fencing token than the largest it has seen
(REDLOCK_FENCE of --print). With --beat the lock is also lost if redlock beat was not
run for that time: for scripts that may hang.

A second redlock lock of the same NAME by the same process is refused (exit code 1)
until the first one has ended. So is one under redlock run NAME, without --wait-for-self.

` + namesHelp + `

With --print: REDLOCK_NAME, REDLOCK_FENCE, REDLOCK_LEASE (a secret), REDLOCK_TTL (how
long it is valid unless it is extended, in milliseconds), REDLOCK_DEADLINE (the end of
that time, in milliseconds of CLOCK_BOOTTIME) and REDLOCK_SLOT (with --slots; else empty)
as assignments for a shell, quoted: eval "$(redlock lock --print --pid $$ NAME)".

TIMES are like 250ms, 10s, 2m, or a number of seconds, like 5 or 0.5.

EXIT CODES
   0  the lock is held
   1  another process held it, or this process already holds it (-E changes it)
  64  the command line is wrong, or redlockd refused an option
  69  redlockd is not available, or too few nodes are
  70  internal error
  71  the system refused memory or files (ulimit)
  77  not allowed, or over a limit
 128+N  signal N came during the wait for the lock`

const lockExample = `  if redlock lock backup -w 10s; then echo backing up; redlock unlock backup; fi
  redlock lock -n report || exit 0           # it runs already
  (redlock lock --pid $$ deploy) && redlock check deploy
  eval "$(redlock lock --print --pid $$ import)"; echo "$REDLOCK_FENCE"
  redlock lock --slots 3 --max 1h transcode  # three at a time, on all hosts together`

// lockFlags are the flags of redlock run about the lock, plus the holder's.
type lockFlags struct {
	runFlags
	holder holder.Flag
	print  bool
}

func newLockCommand() *cobra.Command {
	f := &lockFlags{}
	cmd := &cobra.Command{
		Use:               "lock NAME",
		Short:             "Take a lock that a script holds until it ends",
		Long:              lockHelp,
		Example:           lockExample,
		Args:              unlessContradicting(flags.OneLock),
		ValidArgsFunction: completeSeveral,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			j := f.job()
			j.Name, j.Stderr = args[0], cmd.ErrOrStderr()
			if j.Names, err = lockname.Split(j.Name); err != nil {
				return err
			}
			return f.run(j, cmd.OutOrStdout())
		},
	}
	f.defineLock(cmd)
	cmd.Flags().Var(flags.Duration(&f.linger), "linger", "keep it for this time after the process has ended (default: redlockd's)")
	f.holder.Define(cmd)
	flags.Print(cmd, &f.print)
	f.isSet, f.ExplainOption = flagIsSet(cmd), optionError(cmd)
	return cmd
}

// run takes the lock for the holder. The parent may end before the daemon knows it, and its pid may
// be reused, so run checks it again after the grant.
func (f *lockFlags) run(j *job.Job, out io.Writer) error {
	pid, err := f.holder.Process()
	if err != nil {
		return err
	}
	j.Holder = pid
	j.Options = append(j.Options, client.WithHold(client.HoldPID), client.WithPID(pid))
	return j.Hold(func(lease *client.Lease) error {
		if err := f.holder.CheckParent(pid); err != nil || !f.print {
			return err
		}
		return output.PrintText(out, describe.Assignments(j.Name, lease))
	})
}
