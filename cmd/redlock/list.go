package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

func newListCommand() *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the locks held or waited for through this host's redlockd, or all",
		Long: `List the locks that are held or waited for through this host's daemon, as far as you
may see them. SINCE is how long the process has held or waited for the lock. Names with
commas between them are held together, or waited for together. A comma inside a name is
shown as %2C.

STATE "lost": no longer held, but other processes cannot get all of it for TTL.
STATE "kept": no longer held, but taken for TTL (--at-least of redlock run).
PID "(gone)": the process ended while redlockd was down. Another one may resume the lease.

With --json: [{"lock", "locks", "state": "held", "waiting", "lost" or "kept", "mode":
"exclusive" or "shared", "slots", "slot", "pid", "user", "since_ms", "ttl_ms", "fence",
"note", "kept_ms" with --at-least, "gone": true with "(gone)"}]. locks has the names as
they are; lock has all of them as other commands take them: with commas between them, and
%2C for a comma inside a name. slots is how many may hold the lock together (0: it is not
a semaphore), slot the number of the holder's slot. Times are in milliseconds; 0 is none.

With --all: the locks of all hosts that you may inspect. redlockd reads them from the
nodes, page by page, at the pace of other requests. It needs the right +scan there. Each
lock that is held all the time is listed once; others may be missing. HELD is the number
of nodes that hold the lock. MODE "next": nobody holds it, and it is kept for this
waiter. WAITING are the hosts that wait for it, in the order in which they get the lock,
and for how long each has waited; "?" if they are not known. "many" share a lock: see
redlock who.

With --all --json, one line for each lock, as it is found: {"lock", "many", "wanted",
"waiting_hosts", "waiting_ms": [for each of these hosts], "holders": [as in redlock who]}.

Names that look alike, but are different locks because their letters have different
Unicode forms, are named on stderr.

Exit codes: 0; 64 usage; 69 the daemon is not available, or too few nodes answered; 70
internal; 77 denied.`,
		Example: `  redlock list
  redlock list --json | jq -r '.[] | select(.state == "waiting") | .lock'
  redlock list --all`,
		Args:              flags.AtMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all {
				return listAll(cmd, asJSON)
			}
			entries, err := socket.Get(cmd.Context(), (*client.Client).List)
			if err != nil {
				return err
			}
			err = output.Show(cmd.OutOrStdout(), asJSON, describe.LocksToJSON(entries), describe.LocksText(entries))
			var names []string
			for _, e := range entries {
				names = append(names, e.Names...)
			}
			noteLookAlikes(cmd.ErrOrStderr(), names)
			return err
		},
	}
	flags.JSON(cmd, &asJSON)
	cmd.Flags().BoolVar(&all, "all", false, "list the locks of all hosts")
	return cmd
}

// noteLookAlikes prints a line for each group of names that look alike.
func noteLookAlikes(stderr io.Writer, names []string) {
	for _, text := range lockname.LookAlikes(names) {
		fmt.Fprintf(stderr, "redlock: %s: %s\n", text, lockname.FixLookAlikes)
	}
}

// listAll prints the locks of all hosts: as a table at the end, or as JSON page by page.
func listAll(cmd *cobra.Command, asJSON bool) error {
	out := cmd.OutOrStdout()
	var locks []client.FleetLock
	var names []string
	use := func(some []client.FleetLock) error {
		for i := range some {
			names = append(names, some[i].Name)
		}
		if asJSON {
			return describe.PrintFleetJSON(out, some)
		}
		locks = append(locks, some...)
		return nil
	}
	progress := term.NewCounter(cmd.ErrOrStderr())
	if _, isTerminal := term.ScreenOf(out); isTerminal && asJSON {
		progress = term.NewCounter(nil) // JSON is printed to the same terminal
	}
	if err := readAll(cmd.Context(), progress, use); err != nil {
		return err
	}
	defer noteLookAlikes(cmd.ErrOrStderr(), names)
	if asJSON {
		return nil
	}
	return output.PrintText(out, describe.FleetText(locks))
}

// readAll passes the locks to use, page by page. Each page must come within the time for an answer.
func readAll(ctx context.Context, progress *term.Counter, use func([]client.FleetLock) error) error {
	c, err := socket.Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	defer progress.End()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	overdue := time.AfterFunc(socket.AnswerTimeout, func() { cancel(context.DeadlineExceeded) })
	defer overdue.Stop()
	n := 0
	for page, err := range c.ListAll(ctx) {
		if err != nil {
			return exit.FromClient(socket.ExplainTimeout(err))
		}
		overdue.Reset(socket.AnswerTimeout)
		n += len(page.Locks)
		progress.Show(fmt.Sprintf("%d locks, node %d of %d", n, min(page.Walked+1, page.Walks), page.Walks))
		if err := use(page.Locks); err != nil {
			return err
		}
	}
	return nil
}
