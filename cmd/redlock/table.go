package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// table prints rows of cells in aligned columns, the first row being the titles.
func table(out io.Writer, rows [][]string) error {
	var aligned strings.Builder // writing to it does not fail
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for _, text := range row {
			fmt.Fprint(w, cell(text), "\t")
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	for line := range strings.Lines(aligned.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return unwritten(err)
		}
	}
	return nil
}

// cell is text that neither breaks the columns nor controls the terminal: notes
// and holders are the words of others.
func cell(text string) string {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if strings.ContainsFunc(text, unprintable) {
		return strconv.Quote(text)
	}
	return text
}

// unwritten is the failure to write the output; nil for nil.
func unwritten(err error) error {
	if err == nil {
		return nil
	}
	return fail(exitInternal, "the output cannot be written: %w", err)
}

// short is a duration as people like to read it; "-" for none.
func short(d time.Duration) string {
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

// count is a number; "-" for 0, which is none.
func count(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// times is how often, in a sentence.
func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// nodeCount is so many of them, in a sentence.
func nodeCount(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// known is a word; "-" for none.
func known(word string) string {
	if word == "" {
		return "-"
	}
	return word
}
