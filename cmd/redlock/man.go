package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newManCommand prints redlock(1), made of what --help says: for who packages it.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "man",
		Short:             "Print the manual page redlock(1)",
		Example:           "  redlock man | man -l -",
		Hidden:            true,
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return unwritten(manual(cmd.OutOrStdout(), cmd.Root()))
		},
	}
}

// manual writes the manual page of a command and of those below it, as man(7) has it.
func manual(out io.Writer, root *cobra.Command) error {
	var page strings.Builder
	fmt.Fprintf(&page, ".TH REDLOCK 1 \"\" \"redlock %s\" \"User Commands\"\n", roff(buildVersion()))
	fmt.Fprintf(&page, ".SH NAME\nredlock \\- %s\n", roff(strings.ToLower(root.Short[:1])+root.Short[1:]))
	page.WriteString(".SH SYNOPSIS\n")
	for _, cmd := range listed(root) {
		fmt.Fprintf(&page, ".PP\n\\fB%s\\fR %s\n", roff(cmd.CommandPath()), roff(arguments(cmd)))
	}
	page.WriteString(".SH DESCRIPTION\n")
	asItIs(&page, root.Long)
	for _, cmd := range listed(root) {
		section(&page, cmd)
	}
	page.WriteString(".SH EXAMPLES\n")
	asItIs(&page, root.Example)
	page.WriteString(".SH ENVIRONMENT\n.TP\n.B REDLOCK_SOCKET\nwhere redlockd listens, instead of /run/redlockd/redlockd.sock\n")
	page.WriteString(".SH SEE ALSO\n.BR flock (1),\n.BR redlockd\\-protocol (7),\n.BR redlockd (8)\n")
	_, err := io.WriteString(out, page.String())
	return err
}

// listed are the commands that --help shows.
func listed(root *cobra.Command) (cmds []*cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			cmds = append(cmds, cmd)
		}
	}
	return cmds
}

// arguments is what stands behind the command's name in its usage.
func arguments(cmd *cobra.Command) string {
	_, rest, _ := strings.Cut(cmd.Use, " ")
	return rest
}

const manualWidth = 78 // columns of text that is laid out here

// section is one command: what it is for, its help, flags and examples.
func section(page *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(page, ".SH %s\n", roff(strings.ToUpper(cmd.CommandPath())))
	asItIs(page, cmp.Or(cmd.Long, cmd.Short+"."))
	cmd.InitDefaultHelpFlag()
	page.WriteString(".PP\nFlags:\n.PP\n")
	asItIs(page, strings.TrimRight(cmd.LocalFlags().FlagUsagesWrapped(manualWidth), "\n"))
	if cmd.Example != "" {
		page.WriteString(".PP\nExamples:\n.PP\n")
		asItIs(page, cmd.Example)
	}
}

// asItIs sets text that is laid out for a terminal.
func asItIs(page *strings.Builder, text string) {
	page.WriteString(".nf\n")
	for line := range strings.SplitSeq(text, "\n") {
		page.WriteString(roff(line) + "\n")
	}
	page.WriteString(".fi\n")
}

// roff has every character stand for itself.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`, "…", "...").Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
