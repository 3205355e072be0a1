package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

func newListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the locks that are held or waited for on this host",
		Long: `List the locks that are held or waited for through this host's daemon, as far as you
may see them. SINCE is how long the process has held or waited for the lock. Names with
commas between them are held together, or waited for together. A comma inside a name is
shown as %2C.

STATE "lost": not held any more, but other processes cannot get all of it for TTL.

With --json: [{"lock", "locks", "state": "held", "waiting" or "lost", "mode":
"exclusive" or "shared", "slots", "slot", "pid", "user", "since_ms", "ttl_ms", "fence",
"note"}]. locks has the names as they are; lock has all of them as other commands take
them: with commas between them, and %2C for a comma inside a name. slots is how many may
hold the lock at once (0: it is no semaphore), slot the number of the holder's slot.
Times are in milliseconds; 0 is none.

Exit codes: 0; 64 usage; 69 the daemon is not available; 70 internal; 77 denied.`,
		Example: `  redlock list
  redlock list --json | jq -r '.[] | select(.state == "waiting") | .lock'`,
		Args:              flags.AtMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, err := fetchEntries(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return output.PrintJSON(cmd.OutOrStdout(), describe.LocksToJSON(entries))
			}
			return describe.PrintLocks(cmd.OutOrStdout(), entries)
		},
	}
	flags.JSON(cmd, &asJSON)
	return cmd
}

func fetchEntries(ctx context.Context) (entries []client.Entry, err error) {
	err = socket.Ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		entries, err = c.List(ctx)
		return err
	})
	return entries, err
}
