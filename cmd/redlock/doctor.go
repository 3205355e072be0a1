package main

import (
	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/doctor"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
)

func newDoctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what makes locks less safe or less available than they could be",
		Long: `Find what makes locks less safe or less available than they could be, and say how
to mend it: in the way to this host's daemon, in its nodes as it sees them, in what
systemd keeps through its restart, and in this host's clock. Nothing is locked, and
nothing is changed.

A result is ok; warning: locks work, but could be safer, or bear more failures;
or bad: no lock can be taken, or two might hold the same. What the daemon counts
(clock jumps, lost fencing counters) is warned of until it is restarted; brand-new
nodes, which have no counters either, look as if they had lost them.

The checks: socket, daemon, version, table, quorum, node-count, node, same-host,
latency, wake-ups, max-ttl, lease-time, clock-jumps, withdrawals, fencing, restarts,
clock.

With --json: {"result": the worst, "findings": [{"check", "result", "text",
"fix"}]}. A check can find several things.

Exit codes, as monitoring wants them: 0 all is ok; 1 there are warnings; 2 something
is bad. 64 usage; 70 internal.`,
		Example: `  redlock doctor
  redlock doctor --json | jq -r '.findings[] | select(.result != "ok") | .fix'`,
		Args:              flags.AtMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := doctor.Examine(cmd.Context(), buildVersion())
			if err := doctor.Print(cmd.OutOrStdout(), findings, asJSON); err != nil {
				return err
			}
			return exit.WithCode(int(doctor.Worst(findings)))
		},
	}
	flags.JSON(cmd, &asJSON)
	return cmd
}
