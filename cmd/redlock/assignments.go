package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

func printFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "print", false, "print what there is to know of the lock as assignments for a shell")
}

// assignments are what a shell can evaluate to know a lease, which is held: of one
// whose connection is closed nothing would be valid. name is that of the lock, or of
// several, as the command line has them. The variables are never renamed.
func assignments(name string, l *client.Lease) string {
	var b strings.Builder
	for _, field := range [][2]string{
		{"REDLOCK_NAME", name},
		{"REDLOCK_FENCE", strconv.FormatUint(l.Fence(), 10)},
		{"REDLOCK_LEASE", l.ID()},
		{"REDLOCK_TTL", strconv.FormatInt(l.Validity().Milliseconds(), 10)},
		{"REDLOCK_DEADLINE", strconv.FormatInt(l.DeadlineBoottime().Milliseconds(), 10)},
		{"REDLOCK_SLOT", slotWord(l)},
	} {
		fmt.Fprintf(&b, "%s=%s\n", field[0], quoted(field[1]))
	}
	return b.String()
}

// slotWord is the place of a semaphore that a lease has, or empty.
func slotWord(l *client.Lease) string {
	if l.Slot() == 0 {
		return ""
	}
	return strconv.Itoa(l.Slot())
}

// printText prints what is for programs.
func printText(out io.Writer, text string) error {
	_, err := io.WriteString(out, text)
	return unwritten(err)
}

// quoted is a word that every shell takes as it is: in single quotes only a single
// quote means anything.
func quoted(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
