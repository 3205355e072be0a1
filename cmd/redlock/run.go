package main

import (
	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
)

const runHelp = `Run a command under a lock, which is taken before it starts, kept extended while
it runs, and given back when it has ended. Options are those of flock(1), and
stand before NAME; the command needs no -- before it unless it begins with a dash.

  redlock run [flags] NAME [--] CMD [ARG…]    run CMD
  redlock run [flags] NAME -c STRING          run STRING by /bin/sh -c
  redlock run [flags] -c STRING NAME          the same

A -c right after NAME is the shell's as with flock, with exactly one word after
it.

` + namesHelp + `

WAITING. Without -n or -w it waits for as long as somebody else holds the lock.
A signal ends the wait. On a terminal a line shows the place among those who wait on
this host, who holds the lock and, if it is long enough, since when; elsewhere
--verbose says so.
Where no quorum of nodes can be asked the exit code is 69, with -n at once,
otherwise after -w or the lease time, whichever is shorter. Nodes that are new or
were restarted have no vote for a while (redlock status says how long): that is
waited for too, up to -w, and said once. -n says nothing when somebody else holds
the lock (--verbose says who).

THE COMMAND gets stdin, stdout, stderr and the terminal as they are (/dev/null in
the place of one that is closed), and every signal, but not twice: what the terminal
sends goes to its whole foreground group anyway, so while redlock run is in that,
SIGINT, SIGQUIT, SIGTSTP, SIGCONT and SIGWINCH are taken to be the terminal's, and
not passed on, unless the command has a process group of its own (timeout).
(SIGPIPE, SIGURG and SIGCHLD are for redlock run itself. Of signals that are ignored
when it starts, as by trap '' or nohup, the command ignores SIGHUP and SIGINT.)
While all is stopped (Ctrl-Z) the lock is kept, and others wait. Stopped for longer
than what was left of the lease, the command is killed when it goes on, as after
LOSS: it cannot be asked first whether the lock is still its.

What the command leaves running when it ends by itself runs on, without the lock.
Where a signal ended it, such as a shell whose pipeline is at work, that is told to
end by SIGTERM, and the lock is kept, and redlock run does not end, until it has.
Processes that make a session of their own, as daemons do, are left alone.

Its environment has REDLOCK_NAME, REDLOCK_FENCE (the fencing token, which grows
with every grant: what is written to should refuse a smaller one than it has
seen), REDLOCK_SLOT (with --slots, which of the K places it is, from 1, each with
tokens of its own; or empty), REDLOCK_LEASE (a secret) and REDLOCK_SOCKET.

RESTARTS of redlockd are waited for. Where systemd runs it, the connection and the
place among those who wait stay the same; elsewhere the place may be another one.
While the command runs, the lock is kept if redlockd is back, and has taken it
over, before LOSS is due; otherwise it is lost. --verbose says so. The exit code is 69
if redlockd is not there at the beginning; with -n, also if it then stays away for
5 s; with -w, for 5 s or the time of -w, whichever is longer.

LOSS. When the lock could not be extended (no quorum, or redlockd ended or hangs),
the command gets SIGTERM --grace before the lease's deadline, the moment from
which others can hold the lock, and SIGKILL a twentieth of the lease time (at
least 50 ms) before it, as does all that it has started, but for sessions of their
own. The exit code is 75, whatever the command ends with. What runs as another user,
such as sudo, gets neither from who is not root: write sudo redlock run.

The command may give the lock back before it ends, with redlock unlock: from then on it
runs without it, and nobody stops it.

If redlock run itself is killed (kill -9), the kernel kills the command (on Linux),
unless that is set-user-ID, such as sudo: write sudo redlock run. What the command
has started is not killed, but holds the connection to redlockd open, which keeps
the lock until the last of them has ended, or has closed what it has inherited
(but not once the connection had to be made again, where redlockd was restarted and
systemd did not keep it: they hold the one before, and the lock goes at once).
Nobody stops those if the lock is lost: their REDLOCK_FENCE is too old then.

TIMES are like 250ms, 10s, 2m, or a bare number of seconds, like 5 or 0.5.

EXIT CODES. Those of the command, 128+N if signal N ended it, and
   1  somebody else held the lock (-E changes it)
  64  the command line is wrong, or redlockd refused an option
  69  redlockd is not available, or too few nodes are: the command was not run
  70  internal error
  75  the lock was lost, and the command stopped
  77  not allowed, or over a limit
 126  the command cannot be run
 127  the command is not there (tried before the lock is taken)
 128+N  signal N came while it waited for the lock`

const runExample = `  redlock run nightly-backup -- /usr/local/bin/backup --all
  redlock run -n hourly-report report        # as flock -n: exit 1 if it still runs
  redlock run -w 90 -E 3 deploy ./deploy.sh  # wait for 90 s at most, else exit 3
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
		Args:                  unlessContradicting(cobra.ArbitraryArgs), // newJob has more to say of them
		ValidArgsFunction:     completeNamesThenFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := newJob(f, args)
			if err != nil {
				return err
			}
			j.Stdin, j.Stdout, j.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return j.Run()
		},
	}
	f.define(cmd)
	f.given = given(cmd)
	cmd.SetFlagErrorFunc(flags.ExplainRunError)
	return cmd
}

// completeNamesThenFiles completes NAME; of what follows, files.
func completeNamesThenFiles(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return completeSeveral(cmd, args, word)
}
