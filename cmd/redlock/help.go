package main

import (
	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
)

// newHelpCommand is in the place of cobra's, which ends with 0 where there is no such
// command.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		Args:  flags.AtMost(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			if len(args) == 0 {
				for _, c := range visibleCommands(cmd.Root()) {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, _, err := cmd.Root().Find(args)
			if err != nil {
				return exit.Usagef("there is no command %q; redlock --help lists those that there are", args[0])
			}
			about.InitDefaultHelpFlag() // shown too
			return about.Help()
		},
	}
}
