package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

// newManCommand prints redlock(1) for packages. It uses the commands' long texts.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "man",
		Short:             "Print the manual page redlock(1)",
		Example:           "  redlock man | man -l -",
		Hidden:            true,
		Args:              flags.AtMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return output.WriteError(manual(cmd.OutOrStdout(), cmd.Root()))
		},
	}
}

// manual writes the manual page of redlock and its commands in man(7).
func manual(out io.Writer, root *cobra.Command) error {
	var page strings.Builder
	fmt.Fprintf(&page, ".TH REDLOCK 1 \"\" \"redlock %s\" \"User Commands\"\n", escapeRoff(buildVersion()))
	fmt.Fprintf(&page, ".SH NAME\nredlock \\- %s\n", escapeRoff(strings.ToLower(root.Short[:1])+root.Short[1:]))
	page.WriteString(".SH SYNOPSIS\n")
	for _, cmd := range visibleCommands(root) {
		fmt.Fprintf(&page, ".PP\n\\fB%s\\fR %s\n", escapeRoff(cmd.CommandPath()), escapeRoff(strings.TrimPrefix(strings.TrimPrefix(cmd.Use, cmd.Name()), " ")))
	}
	page.WriteString(".SH DESCRIPTION\n")
	preformatted(&page, root.Long)
	for _, cmd := range visibleCommands(root) {
		section(&page, cmd)
	}
	page.WriteString(".SH EXAMPLES\n")
	preformatted(&page, root.Example)
	page.WriteString(".SH ENVIRONMENT\n.TP\n.B REDLOCK_SOCKET\nwhere redlockd listens, instead of /run/redlockd/redlockd.sock; the flag \\-\\-socket PATH of every command goes before it\n")
	page.WriteString(".SH SEE ALSO\n.BR flock (1),\n.BR redlockd\\-protocol (7),\n.BR redlockd (8)\n")
	_, err := io.WriteString(out, page.String())
	return err
}

// visibleCommands are the commands that --help shows.
func visibleCommands(root *cobra.Command) (cmds []*cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			cmds = append(cmds, cmd)
		}
	}
	return cmds
}

const manualWidth = 78 // columns of preformatted text

// section writes the section of one command: its purpose, help, flags and examples.
func section(page *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(page, ".SH %s\n", escapeRoff(strings.ToUpper(cmd.CommandPath())))
	preformatted(page, cmp.Or(cmd.Long, cmd.Short+"."))
	cmd.InitDefaultHelpFlag()
	page.WriteString(".PP\nFlags:\n.PP\n")
	preformatted(page, strings.TrimRight(cmd.LocalFlags().FlagUsagesWrapped(manualWidth), "\n"))
	if cmd.Example != "" {
		page.WriteString(".PP\nExamples:\n.PP\n")
		preformatted(page, cmd.Example)
	}
}

// preformatted writes text that is laid out for a terminal.
func preformatted(page *strings.Builder, text string) {
	page.WriteString(".nf\n")
	for line := range strings.SplitSeq(text, "\n") {
		page.WriteString(escapeRoff(line) + "\n")
	}
	page.WriteString(".fi\n")
}

// escapeRoff makes roff print every character of a text.
func escapeRoff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`, "…", "...").Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
