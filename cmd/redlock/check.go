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
	cmd.Short = "Ask whether a lock is still held"
	cmd.Long = `Ask whether a lock is still held: by the exit code, and from the memory of redlockd,
without a word to the nodes. That it is not held is not said; that it was lost is.

` + whichHelp + `

With --print it prints what redlock lock --print does, as it is now.

` + heldExits
	cmd.Example = `  redlock lock deploy && redlock check deploy && echo 'go on'
  redlock lock import && redlock check --print import
  redlock run -t 30s import -- redlock check`
	flags.Print(cmd, &print)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var text string
		err := which.Ask(cmd, args, func(_ context.Context, l *client.Lease) error { // finding it is to check it
			text = describe.Assignments(which.Name, l)
			return nil
		})
		switch {
		case errors.Is(err, client.ErrNotHeld):
			return exit.WithCode(exit.Conflict) // that is an answer
		case err != nil || !print:
			return err
		}
		return output.PrintText(cmd.OutOrStdout(), text)
	}
	return cmd
}
