package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

func newCheckCommand() *cobra.Command {
	cmd, which := newHeldCommand("check")
	var print bool
	cmd.Short = "Check whether a lock is still held"
	cmd.Long = `Check whether a lock is still held. The exit code is the answer. redlockd answers from its
memory, without the nodes. It prints a message if the lock was lost, but none if it is not held.

` + whichHelp + `

With --print it prints what redlock lock --print does, with current values.

` + heldExits
	cmd.Example = `  redlock lock deploy && redlock check deploy && echo 'go on'
  redlock lock import && redlock check --print import
  redlock run -t 30s import -- redlock check`
	flags.Print(cmd, &print)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var text string
		err := which.Ask(cmd, args, func(_ context.Context, l *client.Lease) error { // finding the lease is the check
			text = describe.Assignments(which.Name, l)
			return nil
		})
		switch {
		case errors.Is(err, client.ErrNotHeld):
			return exit.WithCode(exit.Conflict) // no message, because the code is the answer
		case err != nil || !print:
			return err
		}
		return output.PrintText(cmd.OutOrStdout(), text)
	}
	return cmd
}
