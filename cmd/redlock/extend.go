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
	var print, shared bool
	cmd.Short = "Extend a lock now, or change its lease time"
	cmd.Long = `Extend a lock now, on the nodes; with -t also change its lease time from now on. redlockd
extends it anyway while it is held. Use this to be sure right before a step that
matters, or to hold the lock for longer if the nodes may be unreachable. It does not count
for --beat: that is redlock beat.

With -s an exclusive lock becomes a shared one. Other readers can get it then, and no writer
can get it in between. Stop writing first. The lock does not become exclusive again.

` + whichHelp + `

With --print it prints what redlock lock --print does, with current values.

` + heldExits
	cmd.Example = `  redlock lock deploy && redlock extend -t 30s deploy
  redlock lock import && redlock extend --print import
  redlock lock report && redlock extend -s report`
	cmd.Flags().VarP(flags.Duration(&ttl), "ttl", "t", "lease time from now on (default: unchanged)")
	cmd.Flags().BoolVarP(&shared, "shared", "s", false, "share the lock with other readers from now on")
	flags.Print(cmd, &print)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("ttl") && ttl == 0 {
			return exit.Usagef("-t 0: a lease time must be more than 0; without -t it does not change")
		}
		if shared && ttl != 0 {
			return exit.Usagef("-s with -t: use one command for each")
		}
		var text string
		err := which.Ask(cmd, args, func(ctx context.Context, l *client.Lease) error {
			change := func() error { return l.Extend(ctx, ttl) }
			if shared {
				change = func() error { return l.Downgrade(ctx) }
			}
			err := optionError(cmd)(change())
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
