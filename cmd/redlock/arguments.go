package main

import "github.com/spf13/cobra"

// exactlyOne is for a command about one thing, and what to call that.
func exactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("%s is wanted: %s", what, cmd.UseLine())
		}
		return atMost(1)(cmd, args)
	}
}

// oneLock is for a command about a lock, or several that are taken together.
var oneLock = exactlyOne("the NAME of a lock")

// atMost is for a command with so many arguments, 0 among them.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usage("%q is one word too many: %s", args[n], cmd.UseLine())
	}
}
