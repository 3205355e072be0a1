package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

// newHelpCommand prints the long text about a command. cobra's own help exits with 0 if there is no
// such command.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the full text about a command",
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
				return exit.Usagef("there is no command %q; redlock --help lists all", args[0])
			}
			return output.WriteError(printHelp(cmd.OutOrStdout(), about, cmp.Or(about.Long, about.Short+"."), math.MaxInt))
		},
	}
}

// shortHelp prints what -h and --help show. It implements cobra's help function.
func shortHelp(cmd *cobra.Command, _ []string) {
	about := cmd.Short + "."
	if cmd.HasParent() {
		about += "\nredlock help " + cmd.Name() + " and redlock(1) say more."
	}
	_ = printHelp(cmd.OutOrStdout(), cmd, about, 2) // cobra's help function cannot fail
}

// printHelp prints a text about a command, its usage, some of its examples and its flags.
func printHelp(out io.Writer, cmd *cobra.Command, about string, examples int) error {
	cmd.InitDefaultHelpFlag()
	var text strings.Builder
	usage := cmd.UseLine()
	if cmd.HasSubCommands() {
		usage = cmd.CommandPath() + " COMMAND [flags] [arguments]"
	}
	fmt.Fprintf(&text, "%s\n\nUsage:\n  %s\n", about, usage)
	for _, group := range cmd.Groups() {
		fmt.Fprintf(&text, "\n%s:\n", group.Title)
		for _, sub := range visibleCommands(cmd) {
			if sub.GroupID == group.ID {
				fmt.Fprintf(&text, "  %-11s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	if cmd.HasExample() {
		lines := strings.Split(cmd.Example, "\n")
		fmt.Fprintf(&text, "\nExamples:\n%s\n", strings.Join(lines[:min(examples, len(lines))], "\n"))
	}
	cmd.InheritedFlags() // adds the flags of redlock to those of the command
	fmt.Fprintf(&text, "\nFlags:\n%s", cmd.Flags().FlagUsagesWrapped(helpWidth))
	if cmd.HasSubCommands() {
		text.WriteString("\nredlock COMMAND -h shows the flags of a command, redlock help COMMAND and redlock(1) the full text.\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// helpWidth is the number of columns for the usage of flags.
const helpWidth = 90
