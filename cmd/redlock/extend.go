package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

func newExtendCommand() *cobra.Command {
	cmd, which := newHeldCommand("extend")
	var ttl time.Duration
	var print bool
	cmd.Short = "Extend a lock now, or change its lease time"
	cmd.Long = `Extend a lock now, on the nodes; with -t also change its lease time from now on. redlockd
extends it anyway while it is held. Use this to be sure right before a step that
matters, or to hold the lock for longer if the nodes may be unreachable. It does not count
for --beat: that is redlock beat.

` + whichHelp + `

With --print it prints what redlock lock --print does, with current values.

` + heldExits
	cmd.Example = `  redlock lock deploy && redlock extend -t 30s deploy
  redlock lock import && redlock extend --print import`
	cmd.Flags().VarP(flags.Duration(&ttl), "ttl", "t", "lease time from now on (default: as it is)")
	flags.Print(cmd, &print)
	withoutDefaults(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("ttl") && ttl == 0 {
			return exit.Usagef("-t 0: a lease time is more than that; without -t it stays as it is")
		}
		var text string
		err := which.Ask(cmd, args, func(ctx context.Context, l *client.Lease) error {
			err := l.Extend(ctx, ttl)
			text = describe.Assignments(which.Name, l)
			return err
		})
		if err != nil || !print {
			return err
		}
		return output.PrintText(cmd.OutOrStdout(), text)
	}
	return cmd
}
