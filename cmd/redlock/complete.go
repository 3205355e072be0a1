package main

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
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
	return namesOf(entries), cobra.ShellCompDirectiveNoFileComp
}

// completeSeveral is for commands that are about one lock or several: after a comma
// comes another one of them.
func completeSeveral(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	names, directive := completeNames(cmd, args, word)
	typed := word[:strings.LastIndex(word, nameSeparator)+1]
	if typed == "" {
		return names, directive
	}
	words := strings.Split(typed, nameSeparator)
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(words, name) })
	for i := range names {
		names[i] = typed + names[i]
	}
	return names, directive
}

func namesOf(entries []client.Entry) (names []string) {
	for _, e := range entries {
		for _, name := range e.Names {
			if word := joinNames(name); isPlain(word) {
				names = append(names, word)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isPlain tells whether a word is an argument to every shell as it is. Others are not offered:
// bash inserts what several of them have in common without quotes, and to complete that evaluates
// it. So a name, which is of whoever took the lock, would be a command of whoever looks: $(…).
func isPlain(word string) bool {
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

// noValues says that a shell has nothing to complete the values of flags to: it
// would offer files.
func noValues(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions); err != nil {
			panic(err) // there is no such flag
		}
	}
}
