package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

// completionTimeout is how long a shell hangs at the tab key where the daemon does.
const completionTimeout = 500 * time.Millisecond

// completeNames completes the first argument to the locks that are in use here.
// Where the daemon does not say them there are none.
func completeNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	entries, _ := fetchEntries(ctx) // none is what an error leaves
	return lockNames(entries), cobra.ShellCompDirectiveNoFileComp
}

// completeSeveral is for commands that are about one lock or several: after a comma
// comes another one of them.
func completeSeveral(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	names, directive := completeNames(cmd, args, word)
	typed := word[:strings.LastIndex(word, lockname.Separator)+1]
	if typed == "" {
		return names, directive
	}
	words := strings.Split(typed, lockname.Separator)
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(words, name) })
	for i := range names {
		names[i] = typed + names[i]
	}
	return names, directive
}

func lockNames(entries []client.Entry) (names []string) {
	for _, e := range entries {
		for _, name := range e.Names {
			if word := lockname.Join(name); isSafeWord(word) {
				names = append(names, word)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isSafeWord tells whether a word is an argument to every shell as it is. Others are not offered:
// bash inserts what several of them have in common without quotes, and to complete that evaluates
// it. So a name, which is of whoever took the lock, would be a command of whoever looks: $(…).
func isSafeWord(word string) bool {
	return !strings.HasPrefix(word, "-") && !strings.ContainsFunc(word, isSpecial)
}

func isSpecial(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("%+-./:=@_", r)
}

// completeQuarantined completes the argument of admit.
func completeQuarantined(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	names := []string{"all"}
	if status, err := fetchStatus(ctx); err == nil {
		names = append(names, quarantined(status.Nodes)...)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func quarantined(nodes []client.Node) (names []string) {
	for _, n := range nodes {
		if n.State == "quarantined" {
			names = append(names, n.Name)
		}
	}
	return names
}

// noFlagCompletion says that a shell has nothing to complete the values of flags to: it
// would offer files.
func noFlagCompletion(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions); err != nil {
			panic(err) // there is no such flag
		}
	}
}

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
		Args:              flags.ExactlyOne("the name of a SHELL"),
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			script := shells[args[0]]
			if script == nil {
				return exit.Usagef("there is no completion for the shell %q, but for %s", args[0], strings.Join(names, ", "))
			}
			return output.WriteError(script(cmd.Root(), cmd.OutOrStdout()))
		},
	}
}
