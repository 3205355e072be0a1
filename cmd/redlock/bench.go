package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/bench"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

func newBenchCommand() *cobra.Command {
	b := &bench.Bench{Length: 4 * time.Second, Workers: 64, Prefix: "redlock-bench/"}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the latency and throughput of daemon and nodes",
		Long: `Measure the latency and throughput of this host's daemon and its nodes. Meanwhile their
other clients are slower. It takes locks of its own, under --prefix and a random word, on
one connection, and leaves none.

The rows, each for a quarter of --duration:
  ping        the daemon answers without its nodes: the cost of the socket
  lock        one worker takes a lock that nobody else wants …
  unlock      … and releases it
  throughput  many workers (--workers), each with a lock of its own: lock and unlock
  hand-over   as many workers want the same lock: from the unlock of one until the
              next one has it

With --json: {"version", "nodes", "quorum", "workers", "rows": [{"row", "workers", "done",
"per_second", "p50_us", "p90_us", "p99_us", "max_us"}]}. Times are in microseconds.

Exit codes: 0; 64 usage; 69 the daemon is not available, or too few nodes are; 70
internal; 77 denied, or over a limit; 128+N signal N ended it.`,
		Example: `  redlock bench
  redlock bench --duration 1s --workers 16 --json | jq '.rows[] | {row, p99_us}'`,
		Args:              flags.AtMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.Check(); err != nil {
				return err
			}
			b.Progress = term.NewProgress(cmd.ErrOrStderr(), b.Length)
			if err := b.Run(cmd.Context()); err != nil {
				return err
			}
			if b.AsJSON {
				return output.PrintJSON(cmd.OutOrStdout(), b.JSON())
			}
			return b.Print(cmd.OutOrStdout())
		},
	}
	flags.JSON(cmd, &b.AsJSON)
	cmd.Flags().Var(flags.Duration(&b.Length), "duration", "how long to measure in all")
	cmd.Flags().Var(flags.AnyNumber(&b.Workers, "MANY"), "workers", "number of workers, in the rows with many")
	cmd.Flags().Var(flags.Text(&b.Prefix, "NAMES"), "prefix", "prefix of the names of locks, if access rules allow only some")
	noFlagCompletion(cmd, "duration", "workers", "prefix")
	return cmd
}
