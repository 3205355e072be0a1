package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/client"
)

// print shows the picture to people: the most important comes first, as a screen
// has room for so much.
func (p *picture) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "%s  redlockd %s answered in %s\n%s\n%s\n%s\n\n", p.at.Format(time.DateTime), cell(p.hello.Version),
		fine(p.answered), verdict(p.status), strings.Join(gaugeWords(p.status), ", "), p.totals())
	if err != nil {
		return unwritten(err)
	}
	if err := printNodes(out, p.status.Nodes); err != nil {
		return err
	}
	if err := printReasons(out, p.status.Nodes); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return unwritten(err)
	}
	return printEntries(out, p.longestFirst())
}

// totals are the counts of what was.
func (p *picture) totals() string {
	return cmp.Or(strings.Join(totalWords(p.status, p.rates), ", "), "nothing has happened yet")
}

// longestFirst are those who wait, then those who hold, the longest first.
func (p *picture) longestFirst() []client.Entry {
	entries := slices.Clone(p.entries)
	slices.SortStableFunc(entries, func(a, b client.Entry) int {
		switch {
		case a.Waits && !b.Waits:
			return -1
		case b.Waits && !a.Waits:
			return 1
		}
		return cmp.Compare(b.Since, a.Since)
	})
	return entries
}

const (
	clearScreen = "\x1b[2J"
	cursorHome  = "\x1b[H"
	clearLine   = "\x1b[K" // what is right of the cursor
	clearBelow  = "\x1b[J"
)

// paint appends what shows text on the screen, cut to its size.
func (s screen) paint(out *bytes.Buffer, text []byte, first bool) {
	if first {
		out.WriteString(clearScreen)
	}
	out.WriteString(cursorHome)
	n := 0
	for line := range strings.Lines(string(text)) {
		if n++; n == s.height {
			break // the last line stays empty: the cursor stands there
		}
		out.WriteString(s.cut(strings.TrimSuffix(line, "\n")) + clearLine + "\n")
	}
	out.WriteString(clearBelow)
}

// fine is a short duration as people like to read it, to three digits; "-" for none.
func fine(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	unit := time.Nanosecond
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}
