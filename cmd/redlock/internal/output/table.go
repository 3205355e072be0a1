package output

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// PreciseDuration formats a duration to three digits, and 0 as "-".
func PreciseDuration(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	unit := time.Nanosecond
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}

// Table returns rows in aligned columns. The first row holds the titles.
func Table(rows [][]string) string {
	var aligned, text strings.Builder // writes to it never fail
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for _, text := range row {
			fmt.Fprint(w, Cell(text), "\t")
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	for line := range strings.Lines(aligned.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return text.String()
}

// Cell quotes text that would break the columns or control the terminal: notes and holders are text
// of other users.
func Cell(text string) string {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if strings.ContainsFunc(text, unprintable) {
		return strconv.Quote(text)
	}
	return text
}

// WriteError returns the failure to write the output, or nil if err is nil.
func WriteError(err error) error {
	if err == nil {
		return nil
	}
	return exit.Errorf(exit.Internal, "the output cannot be written: %w", err)
}

// Duration formats a duration for people, and 0 as "-".
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Count formats a number, and 0 as "-".
func Count(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// Times formats how often something happened, for a sentence.
func Times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// NodeCount formats a number of nodes, for a sentence.
func NodeCount(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// OrDash returns the word, or "-" if it is empty.
func OrDash(word string) string {
	if word == "" {
		return "-"
	}
	return word
}
