package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// Error is everything that is wrong with a config file, in file order.
type Error struct {
	Faults []Fault
}

// Error has one line a fault.
func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, fault := range e.Faults {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// Fault is one thing that is wrong, and where.
type Fault struct {
	File   string
	Line   int // from 1; 0 where no file was read
	Column int // from 1, in characters
	Text   string
}

// String is the fault with its place.
func (f Fault) String() string {
	if f.Line == 0 {
		return f.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Text)
}

func faultAt(at hcl.Range, text string) Fault {
	return Fault{File: at.Filename, Line: at.Start.Line, Column: at.Start.Column, Text: text}
}

func compareFaults(a, b Fault) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

// failure is the error for what has been found so far.
func (r *reader) failure() error {
	faults := slices.Clone(r.syntax)
	for _, fault := range r.faults {
		if !slices.ContainsFunc(r.syntax, func(s Fault) bool { return s.Line == fault.Line }) {
			faults = append(faults, fault) // what was half understood is not worth a second complaint
		}
	}
	slices.SortStableFunc(faults, compareFaults)
	return &Error{Faults: faults}
}

func (r *reader) faultf(at hcl.Range, format string, args ...any) {
	r.faults = append(r.faults, faultAt(at, fmt.Sprintf(format, args...)))
}

func (r *reader) warnf(at hcl.Range, format string, args ...any) {
	r.warnings = append(r.warnings, faultAt(at, fmt.Sprintf(format, args...)))
}

// syntaxFaults takes over what the HCL parser complains of. After a quote that
// is not closed the parser takes text for quotes and quotes for text: of that
// complaint only the first is kept.
func (r *reader) syntaxFaults(diags hcl.Diagnostics) {
	openQuote := false
	for _, err := range diags.Errs() {
		fault := syntaxFault(r.file, err)
		if strings.Contains(fault.Text, "multi-line string") || strings.Contains(fault.Text, "unterminated template") {
			if openQuote {
				continue
			}
			openQuote = true
			fault.Text = "wanted a \" at the end of the string, found the end of the line"
		}
		r.syntax = append(r.syntax, fault)
	}
}

func syntaxFault(file string, err error) Fault {
	diag, ok := err.(*hcl.Diagnostic)
	if !ok {
		return Fault{File: file, Line: 1, Column: 1, Text: err.Error()}
	}
	at := hcl.Range{Filename: file, Start: hcl.InitialPos}
	if diag.Subject != nil {
		at = *diag.Subject
	}
	detail := strings.Join(strings.Fields(diag.Detail), " ")
	if diag.Summary == "Argument or block definition required" { // the detail says it again
		return faultAt(at, detail)
	}
	return faultAt(at, strings.ToLower(diag.Summary)+": "+detail)
}

// quote shows a value of the file in a fault. People write passwords
// where they do not belong, above all into addresses: what stands before an @
// or after a ? is left out.
func quote(value string) string {
	const longest = 80
	if i := strings.LastIndexByte(value, '@'); i >= 0 {
		value = "…" + value[i:]
	}
	if i := strings.IndexByte(value, '?'); i >= 0 {
		value = value[:i+1] + "…"
	}
	if runes := []rune(value); len(runes) > longest {
		value = string(runes[:longest]) + "…"
	}
	return strconv.Quote(value)
}

// suggestion is the known word that was probably meant, as the end of a
// sentence, or "".
func suggestion(word string, known []string) string {
	word = strings.ToLower(word)
	best, distance := "", max(2, len(word)/3)+1
	for _, candidate := range known {
		if d := editDistance(word, candidate); d < min(distance, len(candidate)) {
			best, distance = candidate, d
		}
	}
	for i := 0; best == "" && i < len(known); i++ {
		if len(word) > 1 && (strings.Contains(known[i], word) || strings.Contains(word, known[i])) {
			best = known[i]
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// editDistance is the number of bytes to insert, delete or replace between a and b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
