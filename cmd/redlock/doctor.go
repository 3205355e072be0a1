package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/doctor"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
)

func newDoctorCommand() *cobra.Command {
	var asJSON bool
	var ignore string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what makes locks less safe or less available than they could be",
		Long: `Find what makes locks less safe or less available than they could be, and say how to
fix it. redlock doctor checks the socket, the daemon, its nodes as the daemon sees them,
what systemd keeps through a restart, this host's clock, and the names of the locks that
you may see here. It takes no lock and changes
nothing.

A result is ok; warning: locks work, but could be safer, or tolerate more failures; or
bad: no lock can be taken, or two processes might hold the same. Counts of the daemon
(clock jumps, lost fencing counters) stay a warning until it is restarted. New nodes
have no fencing counters either, and look like nodes that lost them.

The checks: socket, daemon, version, table, quorum, node-count, node, persistence,
same-host, latency, wake-ups, max-ttl, lease-time, clock-jumps, withdrawals, fencing,
restarts, clock, names. --ignore fencing,same-host shows the warnings of these checks as
"ignored", and the exit code does not count them: for findings that you know and accept.
The config of redlockd can do so for all users: doctor { ignore = ["same-host"] }. A
bad result is never ignored.

With --json: {"result": the worst, "findings": [{"check", "result", "text", "fix"}]}. A
check can find several things.

Exit codes, as monitoring expects them: 0 all ok; 1 there are warnings; 2 something is
bad. 64 usage; 70 internal.`,
		Example: `  redlock doctor
  redlock doctor --json | jq -r '.findings[] | select(.result != "ok") | .fix'`,
		Args:              flags.AtMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var ignored []string
			if ignore != "" {
				ignored = strings.Split(ignore, ",")
			}
			for _, check := range ignored {
				if !slices.Contains(doctor.Checks, check) {
					return exit.Usagef("--ignore %s: there is no check %q, but %s", ignore, check, strings.Join(doctor.Checks, ", "))
				}
			}
			findings, accepted := doctor.Examine(cmd.Context(), buildVersion())
			doctor.Ignore(findings, append(ignored, accepted...))
			if err := doctor.Print(cmd.OutOrStdout(), findings, asJSON); err != nil {
				return err
			}
			return exit.WithCode(max(0, int(doctor.Worst(findings))))
		},
	}
	flags.JSON(cmd, &asJSON)
	cmd.Flags().Var(flags.Text(&ignore, "CHECKS"), "ignore", "do not count warnings of these checks, such as fencing,same-host")
	noFlagCompletion(cmd, "ignore")
	return cmd
}
