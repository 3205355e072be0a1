package describe

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/client"
)

// Assignments returns variables of a lease as assignments for a shell. The lease must be held:
// after the connection is closed, the values are not valid. name is the lock or locks, as on the
// command line. The variables are never renamed.
func Assignments(name string, l *client.Lease) string {
	var b strings.Builder
	for _, field := range [][2]string{
		{"REDLOCK_NAME", name},
		{"REDLOCK_FENCE", strconv.FormatUint(l.Fence(), 10)},
		{"REDLOCK_LEASE", l.ID()},
		{"REDLOCK_TTL", strconv.FormatInt(l.Validity().Milliseconds(), 10)},
		{"REDLOCK_DEADLINE", strconv.FormatInt(l.DeadlineBoottime().Milliseconds(), 10)},
		{"REDLOCK_SLOT", SlotText(l)},
	} {
		fmt.Fprintf(&b, "%s=%s\n", field[0], ShellQuoted(field[1]))
	}
	return b.String()
}

// SlotText returns the number of the slot that a lease holds, or an empty text.
func SlotText(l *client.Lease) string {
	if l.Slot() == 0 {
		return ""
	}
	return strconv.Itoa(l.Slot())
}

// ShellQuoted quotes a word for any shell: only a single quote is special in single quotes.
func ShellQuoted(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
