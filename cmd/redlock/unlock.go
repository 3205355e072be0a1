package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

func newUnlockCommand() *cobra.Command {
	cmd, which := newHeldCommand("unlock")
	cmd.Short = "Give back a lock of redlock lock"
	cmd.Long = `Give back a lock that redlock lock took, or that of the redlock run above, whose command
goes on without it. Others can have it at once.

` + whichHelp + `

` + heldExits
	cmd.Example = `  if redlock lock deploy; then echo deploying; redlock unlock deploy; fi`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return which.Ask(cmd, args, func(ctx context.Context, l *client.Lease) error { return l.Unlock(ctx) })
	}
	return cmd
}
