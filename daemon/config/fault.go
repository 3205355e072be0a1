package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// Error has all faults of a config file, in file order.
type Error struct {
	Faults []Fault
}

// Error returns one line for each fault.
func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, fault := range e.Faults {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// Fault is one mistake in a config file.
type Fault struct {
	File   string
	Line   int // from 1; 0 if no file was read
	Column int // from 1, in characters
	Text   string
}

// String returns the fault with its position.
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

// failure returns the error with all faults found so far.
func (r *reader) failure() error {
	faults := slices.Clone(r.syntax)
	for _, fault := range r.faults {
		if !slices.ContainsFunc(r.syntax, func(s Fault) bool { return s.Line == fault.Line }) {
			faults = append(faults, fault) // a line with a syntax fault gets no second one
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

// syntaxFaults adds the errors of the HCL parser. After a quote that is not closed the parser takes
// text for quotes and quotes for text, so only the first of these errors is kept.
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
	if diag.Summary == "Argument or block definition required" { // the detail repeats it
		return faultAt(at, detail)
	}
	return faultAt(at, strings.ToLower(diag.Summary)+": "+detail)
}

// quote returns how a fault shows a value of the file. Operators write passwords where they do not
// belong, above all into addresses, so it leaves out the text before an @ or after a ?.
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

// suggestion returns the end of a sentence with the known word that was probably meant, or "".
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

// editDistance returns how many bytes to insert, delete or replace to turn a into b.
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
