package main

import (
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/top"
)

func newTopCommand() *cobra.Command {
	t := &top.Loop{Every: 2 * time.Second}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show nodes, locks, waiters and rates, and refresh",
		Long: `Show this host's daemon repeatedly, until you stop this command, as with Ctrl-C: its nodes,
the locks that are held or waited for through it, its counts and their rates, and how
long it and its nodes took to answer. On a terminal, each frame replaces the last one,
as far as there is room.

With --json, one line for each frame: {"time", "answer_us", "rates": {"grants", …},
"status": as redlock status, "locks": as redlock list}. answer_us is how many
microseconds the daemon took to answer. Rates are per second; the first frame has none.
If the daemon stops answering: {"time", "error"}.

Exit codes: 0 after --count frames; 64 usage; 69 the daemon is not available, at the
start; 70 internal; 77 denied.`,
		Example: `  redlock top
  redlock top --count 2 --interval 500ms --json | jq -c .rates`,
		Args:              flags.AtMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t.Out = cmd.OutOrStdout()
			if err := checkInterval(t.Every); err != nil {
				return err
			}
			return t.Run(cmd.Context())
		},
	}
	flags.JSON(cmd, &t.AsJSON)
	cmd.Flags().Var(flags.Duration(&t.Every), "interval", "refresh this often")
	cmd.Flags().VarP(flags.Number(&t.Count, "N", 0, math.MaxInt), "count", "n", "end after N frames, or with 0 never (default: never)")
	noFlagCompletion(cmd, "interval", "count")
	return cmd
}
