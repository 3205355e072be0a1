package main

import (
	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/job"
)

const runHelp = `Run a command under a lock. redlock takes the lock before the command starts, redlockd
extends it while the command runs, and redlock releases it when the command has ended.
The options are those of flock(1), and come before NAME. The command needs a -- before
it only if it begins with a dash.

  redlock run [flags] NAME [--] CMD [ARG…]    run CMD
  redlock run [flags] NAME -c STRING          run STRING by /bin/sh -c
  redlock run [flags] -c STRING NAME          the same

As with flock, a -c right after NAME takes exactly one word.

` + namesHelp + `

WAITING. Without -n or -w, redlock waits as long as another process holds the lock. A
signal ends the wait. On a terminal, a line shows the holder, since when it holds the
lock, the position in the wait queue of this host, and which hosts get the lock before.
Elsewhere --verbose prints that after a second, and again if the holder or the position
has changed (it looks after 1, 2, 4, ... and then every 30 s).
If redlock run itself runs under the lock, the wait would never end: it fails at once
(exit code 1, -E changes it). --wait-for-self waits all the same: use it if another
process runs redlock unlock meanwhile.
redlock also waits while no quorum of nodes votes: nodes are down, or new or restarted
(redlock status says how long that takes). It says so once, after a few seconds. If
there is still no quorum at the end of -w, or at once with -n, the exit code is 69.
With -n, redlock prints nothing if another process holds the lock; --verbose prints
the holder.

THE COMMAND gets stdin, stdout, stderr and the terminal as they are (/dev/null for a
stream that is closed). It gets every signal once. The terminal sends its signals to
the whole foreground process group. So while redlock run is in that group, it does not
forward SIGINT, SIGQUIT, SIGTSTP, SIGCONT and SIGWINCH, unless the command has a
process group of its own (timeout).
SIGPIPE, SIGURG and SIGCHLD are for redlock run itself. If SIGHUP or SIGINT is ignored
when redlock run starts (trap '', nohup), the command ignores it too.
While everything is stopped (Ctrl-Z), redlockd keeps the lock, and other processes wait.
If redlock run was stopped for longer than the lock was known to be held, it asks
redlockd first when it continues. If redlockd has kept the lock, the command continues.
If not, or if redlockd does not answer within 0.5 s, the lock is lost, see LOSS.

When the command exits, processes that it left running continue without the lock.
If a signal ended the command, such as a shell with a running pipeline, they get
SIGTERM, and redlock run keeps the lock and waits until they have ended.
Processes in a session of their own, such as daemons, are left alone.

The environment of the command has REDLOCK_NAME, REDLOCK_FENCE (the fencing token,
which grows with each grant: a storage should refuse a token smaller than the largest
it has seen), REDLOCK_SLOT (with --slots the number of the slot, from 1; each slot has
its own tokens; else empty), REDLOCK_LEASE (a secret) and REDLOCK_SOCKET.

RESTARTS of redlockd. redlock run waits until redlockd is back. Under systemd, the
connection and the position in the wait queue survive; elsewhere the position may
change. While the command runs, the lock is kept if redlockd is back, and has resumed
it, before the deadline; otherwise it is lost. --verbose reports restarts. If redlockd
is not there at the start, redlock run waits for it for the time of -w. After that,
and without -w at once, the exit code is 69. It is also 69 if redlockd later does
not come back: for 5 s with -n; with -w, for 5 s or its time, whichever is longer.

LOSS. If the lock cannot be extended (no quorum, or redlockd ended or hangs), the
command gets SIGTERM before the deadline of the lease, the moment from which another
process can get the lock: by --grace. It gets SIGKILL a twentieth of the lease time, at
least 50 ms, before the deadline. Its descendants get both signals, except in sessions
of their own. The exit code is then 75, whatever the command exits with. --on-lost
STRING also runs STRING by a shell, after SIGTERM was sent: with REDLOCK_LOST, the
reason, in its environment, in a session of its own, and redlock run does not wait for
it. A command of another user, such as sudo, gets no signals unless redlock run is root:
write sudo redlock run.

The command may release the lock before it ends, with redlock unlock. From then on it
runs without the lock, and is not stopped.

If redlock run is killed (kill -9), the Linux kernel kills the command, unless that is
set-user-ID, such as sudo: write sudo redlock run. Other processes that the command
started are not killed. They have inherited the connection to redlockd, which keeps the
lock until the last of them has ended or closed it. If the connection was made again in
the meantime (redlockd was restarted, not under systemd), they hold the old one, and
the lock is released at once. Nothing stops these processes if the lock is lost; their
REDLOCK_FENCE is then too old.

AT LEAST. With --at-least DUR the lock stays taken for DUR from the grant on, even if the
command or redlock run ends earlier. redlock run does not wait for DUR. Use it for jobs
that may end before a host with a late clock starts them. max_hold of redlockd's config
bounds DUR, max_ttl does not. But if this host or its redlockd ends, the lock stays
taken for at most max_ttl more. redlock force ends it. It excludes --beat.

EXEC. With --exec, the command replaces redlock run, as exec of a shell does: it has the
same process ID, and the lock is held until this process ends. Nothing stops the command
if the lock is lost. So the storage must refuse a fencing token (REDLOCK_FENCE) smaller
than the largest it has seen, or the command must run redlock check before each step that
matters. redlock run says so on stderr, unless CMD or STRING names REDLOCK_FENCE. --exec
excludes --on-lost and --grace.

UNDER SYSTEMD, the main process of a service is redlock run. The unit needs
NotifyAccess=all if the command sends READY=1 (sd_notify), and with Type=notify also
TimeoutStartSec=infinity, because the start then includes the wait for the lock.
LISTEN_PID and WATCHDOG_PID name the command, if they named redlock run. With --exec,
the command is the main process.

WITH PARENT. A redlock run that waits outlives its parent, such as the shell of a CI job
that was cancelled, and runs the command later. With --with-parent it ends then, like
after SIGTERM; so does a command that runs. The kernel also counts the end of the thread
that started redlock run as the end of the parent. Linux only.

TIMES are like 250ms, 10s, 2m, or a number of seconds, like 5 or 0.5.

EXIT CODES. Those of the command, 128+N if signal N ended it, and
   1  another process held the lock (-E changes it), a deadlock, or a wait for itself
  64  the command line is wrong, or redlockd refused an option
  69  redlockd is not available, or too few nodes are: the command was not run
  70  internal error
  71  the system refused memory or files (ulimit): the command was not run
  75  the lock was lost, and the command stopped
  77  not allowed, or over a limit
 126  the command cannot be run
 127  the command does not exist (checked before the lock is taken)
 128+N  signal N came during the wait for the lock`

const runExample = `  redlock run nightly-backup -- /usr/local/bin/backup --all
  redlock run -n hourly-report report        # as flock -n: exit 1 if it still runs
  redlock run -w 90 -E 3 deploy ./deploy.sh  # wait for 90 s at most, else exit 3
  redlock run -n --at-least 1m hourly-backup backup  # clocks differ by less
  redlock run deploy -c 'git pull && exec make install'
  redlock run -t 30s --grace 10s import -- python3 import.py < data.csv
  redlock run -s report ./read-report.sh     # together with others with -s
  redlock run --slots 3 transcode ./one.sh   # three at a time, on all hosts together
  redlock run acc/4,acc/17 ./move.sh         # both locks, or none`

func newRunCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:                   "run [flags] NAME [--] CMD [ARG…]",
		DisableFlagsInUseLine: true,
		Short:                 "Run a command under a lock",
		Long:                  runHelp,
		Example:               runExample,
		Args:                  unlessContradicting(cobra.ArbitraryArgs), // newJob checks them, with better errors
		ValidArgsFunction:     completeNamesThenFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := newJob(f, args)
			if err != nil {
				return err
			}
			j.Stdin, j.Stdout, j.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			if f.exec {
				return j.Exec()
			}
			return j.Run()
		},
	}
	f.define(cmd)
	f.isSet, f.ExplainOption = flagIsSet(cmd), optionError(cmd)
	cmd.SetFlagErrorFunc(flags.ExplainRunError)
	return cmd
}

// completeNamesThenFiles completes NAME to locks, and later arguments to files.
func completeNamesThenFiles(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return completeSeveral(cmd, args, word)
}

// newExecForParentCommand is for redlock run only: see job.ExecForParent.
func newExecForParentCommand() *cobra.Command {
	return &cobra.Command{
		Use:    job.ExecForParentCommand + " -- PATH ARG…",
		Short:  "Run a command whose environment names redlock run as the main process",
		Hidden: true,
		Args:   cobra.MinimumNArgs(2),
		RunE:   func(_ *cobra.Command, args []string) error { return job.ExecForParent(args[0], args[1:]) },
	}
}
