package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

func newWhoCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "who NAME",
		Short: "Show who holds a lock, on any host",
		Long: `Show who holds a lock, on any host.

redlockd asks a quorum of the nodes. If nobody holds the lock, the first line is "free".
MODE "next" means that nobody holds it, and that the nodes keep it for a waiter, for at
most TTL. HELD is the number of nodes that hold the lock. Locks of other Redlock clients
have no host, user or pid. NOTE is shown for locks held through this host's daemon, if
you may see it. NAME is one lock; a comma in it is written %2C, and shown so.

If clients wait for the lock, the last line has their hosts, in the order in which they
get it, and for how long the first client of each has waited: "waiting: web2 3s, web4 1s".

If no process with this PID is left, redlock run was killed, and processes that its
command started keep the lock until they end.

With --json: {"lock", "free", "holders": [{"mode": "exclusive" or "shared", "slots",
"slot", "host", "pid", "user", "since_ms", "ttl_ms", "held", "nodes", "note" if there is
one, "kept_ms" if it was taken with --at-least on this host, "gone" if its process ended
while the redlockd of this host was down, "next" if it waits}],
"waiting_hosts", "waiting_ms": [for each of these hosts]}.
slots is how many may hold the lock together (0: it is not a semaphore), slot the number
of the holder's slot. Times are in milliseconds.

Exit codes: 0 the answer is printed, also for a free lock; 64 usage; 69 the daemon is
not available, or no quorum of nodes answered; 70 internal; 77 denied.`,
		Example: `  redlock who nightly-backup
  redlock who nightly-backup --json`,
		Args:              flags.OneLock,
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := lockname.One("who", args[0])
			if err != nil {
				return err
			}
			lock, err := socket.Get(cmd.Context(), func(c *client.Client, ctx context.Context) (*client.FleetLock, error) { return c.WhoWaits(ctx, name) })
			if err != nil {
				return err
			}
			return output.Show(cmd.OutOrStdout(), asJSON, whoJSON{
				Lock: lockname.Join(lock.Name), Free: len(lock.Holders) == 0, Holders: describe.HoldersToJSON(lock.Holders),
				WaitingHosts: append([]string{}, lock.WaitingHosts...), WaitingMS: describe.WaitingToJSON(lock),
			}, describe.HoldersText(lock.Holders)+describe.WaitingText(lock))
		},
	}
	flags.JSON(cmd, &asJSON)
	return cmd
}

func fetchHolders(ctx context.Context, name string) ([]client.Holder, error) {
	return socket.Get(ctx, func(c *client.Client, ctx context.Context) ([]client.Holder, error) { return c.Who(ctx, name) })
}

// whoJSON is the document that who prints. Its keys never change.
type whoJSON struct {
	Lock         string                `json:"lock"`
	Free         bool                  `json:"free"`
	Holders      []describe.HolderJSON `json:"holders"`
	WaitingHosts []string              `json:"waiting_hosts"`
	WaitingMS    []int64               `json:"waiting_ms"`
}
