package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

func newUnlockCommand() *cobra.Command {
	cmd, which := newHeldCommand("unlock")
	cmd.Short = "Release a lock of redlock lock"
	cmd.Long = `Release a lock that redlock lock took, or the lock of the redlock run that runs this. Its
command then continues without the lock. Other processes can get it at once.

` + whichHelp + `

` + heldExits
	cmd.Example = `  if redlock lock deploy; then echo deploying; redlock unlock deploy; fi`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return which.Ask(cmd, args, func(ctx context.Context, l *client.Lease) error { return l.Unlock(ctx) })
	}
	return cmd
}
