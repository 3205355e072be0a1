package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

func newStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether locks can be taken, and the state of the nodes",
		Long: `Show whether locks can be taken, and the state of the nodes, as this host's daemon sees
them.

With --json: {"ready", "quorum", "spare", "left_ms", "max_ttl_ms", "text", "nodes":
[{"node", "address", "state", "left_ms", "rtt_ms", "wakeups", "reason"}], "counts":
{"leases", …}}. If a restart of redlockd would lose leases, also "unnoted": true
and "table", a word for the reason (redlockd-protocol(7)).
spare is how many more nodes may fail; it is below 0 if there is no quorum. left_ms is
the time left of a node's quarantine, or until enough quarantines end for a quorum: a
node that is new or was restarted may have forgotten locks, so it does not vote for
max_ttl. While redlockd drains before it stops, "draining_ms" is the time left. wakeups
says how a node reports free locks to waiters: "pubsub", or "polling" if waiters have
to ask at random intervals; "" is not known. Counts are since the start of redlockd.

Exit codes: 0 a quorum of nodes is ready; 69 it is not, or the daemon is not available,
or drains; 64 usage; 70 internal; 77 denied.`,
		Example: `  redlock status
  redlock status >/dev/null || echo "no locks on this host"`,
		Args:              flags.AtMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := fetchStatus(cmd.Context())
			if err != nil {
				return err
			}
			if err := printStatus(cmd.OutOrStdout(), status, asJSON); err != nil {
				return err
			}
			if !describe.Ready(status) {
				return exit.WithCode(exit.Unavailable)
			}
			return nil
		},
	}
	flags.JSON(cmd, &asJSON)
	return cmd
}

func fetchStatus(ctx context.Context) (status *client.Status, err error) {
	err = socket.Ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		status, err = c.Status(ctx)
		return err
	})
	return status, err
}

func printStatus(out io.Writer, s *client.Status, asJSON bool) error {
	if asJSON {
		return output.PrintJSON(out, describe.StatusToJSON(s))
	}
	if _, err := fmt.Fprintf(out, "%s\n%s\n\n", describe.Verdict(s), describe.CountsLine(s)); err != nil {
		return output.WriteError(err)
	}
	if err := describe.PrintNodes(out, s.Nodes); err != nil {
		return err
	}
	return describe.PrintReasons(out, s.Nodes)
}
