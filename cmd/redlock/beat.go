package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

func newBeatCommand() *cobra.Command {
	cmd, which := newHeldCommand("beat")
	cmd.Short = "Report that the work under a lock continues"
	cmd.Long = `Report that the work under a lock with --beat continues. The lock is lost if no beat comes
for that time, even if other requests come. Use it for work that may hang.

` + whichHelp + `

` + heldExits
	cmd.Example = `  redlock lock --beat 10m import && for step in 1 2 3; do redlock beat import || exit; done
  redlock run --beat 1m import -- redlock beat`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return which.Ask(cmd, args, func(ctx context.Context, l *client.Lease) error { return l.Beat(ctx) })
	}
	return cmd
}
