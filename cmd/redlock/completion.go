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
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

// completionTimeout bounds how long the Tab key waits for a daemon that hangs.
const completionTimeout = 500 * time.Millisecond

// completeFirst completes the first argument to what ask gets from the daemon, or to nothing if the
// daemon does not answer.
func completeFirst[T any](cmd *cobra.Command, args []string, ask func(*client.Client, context.Context) (T, error)) (answer T) {
	if len(args) == 0 {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		answer, _ = socket.Get(ctx, ask)
	}
	return answer
}

// completeNames completes the first argument to the locks in use on this host.
func completeNames(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	for _, e := range completeFirst(cmd, args, (*client.Client).List) {
		for _, name := range e.Names {
			if word := lockname.Join(name); isSafeWord(word) {
				names = append(names, word)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// completeSeveral completes the name after the last comma, for commands that take several locks.
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

// isSafeWord reports whether every shell reads a word unchanged. Other names are not offered: bash
// inserts the common beginning of several names without quotes, and evaluates it when the next
// completion starts. A name such as $(…), chosen by another user, would run as a command.
func isSafeWord(word string) bool {
	return !strings.HasPrefix(word, "-") && !strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("%+-./:=@_", r)
	})
}

// completeQuarantined completes the argument of admit.
func completeQuarantined(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		names = []string{"all"}
	}
	if status := completeFirst(cmd, args, (*client.Client).Status); status != nil {
		for _, n := range status.Nodes {
			if n.State == "quarantined" {
				names = append(names, n.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// noFlagCompletion stops shells from offering files as values of flags.
func noFlagCompletion(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions); err != nil {
			panic(err) // the flag does not exist
		}
	}
}

// shells are the shells that have a completion script.
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
		Long: `Print the script that makes a shell complete the command line of redlock and the names of
locks in use. Names with characters that are special to a shell are left out: another
user may have chosen them to do harm. SHELL is ` + strings.Join(names, ", ") + `.`,
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
