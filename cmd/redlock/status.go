package main

import (
	"fmt"

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
[{"node", "address", "state", "left_ms", "rtt_ms", "write_ms", "wakeups", "reason"}],
"counts": {"leases", …}}. If a restart of redlockd would lose leases, also "unnoted": true
and "table", a word for the reason (redlockd-protocol(7)).
spare is how many more nodes may fail; it is below 0 if there is no quorum. left_ms is
the time left of a node's quarantine, or until enough quarantines end for a quorum: a
node that is new or was restarted may have forgotten locks, so it does not vote for
max_ttl. rtt_ms is how long a node took for the last requests that only read, write_ms for
the last ones that wrote; 0: there were none. While redlockd drains before it stops, "draining_ms" is the time left. wakeups
says how a node reports free locks to waiters: "pubsub", or "polling" if waiters have
to ask at random intervals; "" is not known. Counts are since the start of redlockd.

Exit codes: 0 a quorum of nodes is ready; 69 it is not, or the daemon is not available,
or drains; 64 usage; 70 internal; 77 denied.`,
		Example: `  redlock status
  redlock status >/dev/null || echo "no locks on this host"`,
		Args:              flags.AtMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := socket.Get(cmd.Context(), (*client.Client).Status)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("%s\n%s\n\n%s", describe.Verdict(status), describe.CountsLine(status), describe.NodesText(status.Nodes))
			if err := output.Show(cmd.OutOrStdout(), asJSON, describe.StatusToJSON(status), text); err != nil {
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
