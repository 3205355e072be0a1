package flags

import (
	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// ExactlyOne checks that there is one argument. what names it in the error.
func ExactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return exit.Usagef("%s is missing: %s", what, cmd.UseLine())
		}
		return AtMost(1)(cmd, args)
	}
}

// OneLock is for commands about one lock, or several locks taken together.
var OneLock = ExactlyOne("the NAME of a lock")

// AtMost checks that there are at most n arguments.
func AtMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return exit.Usagef("unexpected argument %q: %s", args[n], cmd.UseLine())
	}
}
