package main

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// shells are those that there is a completion script for.
var shells = map[string]func(root *cobra.Command, out io.Writer) error{
	"bash":       func(root *cobra.Command, out io.Writer) error { return root.GenBashCompletionV2(out, true) },
	"zsh":        func(root *cobra.Command, out io.Writer) error { return root.GenZshCompletion(out) },
	"fish":       func(root *cobra.Command, out io.Writer) error { return root.GenFishCompletion(out, true) },
	"powershell": func(root *cobra.Command, out io.Writer) error { return root.GenPowerShellCompletionWithDesc(out) },
}

func newCompletionCommand() *cobra.Command {
	names := slices.Sorted(maps.Keys(shells))
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for a shell: " + strings.Join(names, ", "),
		Long: `Print the script that makes a shell complete the command line of redlock, and the
names of locks that are in use, but for those in which a character means something to
a shell: who takes a lock names it, and may mean harm. SHELL is ` + strings.Join(names, ", ") + `.`,
		Example: `  source <(redlock completion bash)     # now; bash-completion must be installed
  redlock completion bash > /etc/bash_completion.d/redlock
  redlock completion zsh > "${fpath[1]}/_redlock"
  redlock completion fish > ~/.config/fish/completions/redlock.fish`,
		Args:              exactlyOne("the name of a SHELL"),
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			script := shells[args[0]]
			if script == nil {
				return usage("there is no completion for the shell %q, but for %s", args[0], strings.Join(names, ", "))
			}
			return unwritten(script(cmd.Root(), cmd.OutOrStdout()))
		},
	}
}
