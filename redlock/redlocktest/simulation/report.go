package simulation

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"
)

// Report is what happened in a simulation and what was wrong with it.
type Report struct {
	Plan       Plan
	Trace      []Event
	Violations []Violation
	Faults     map[string]int // by kind: how often something went wrong as planned

	Requests  []*Request
	Grants    []*Grant // in the order in which they were returned
	Stays     []*Stay
	Stuck     []string                 // locks that could not be had when all was well again
	Wakes     []Wake                   // while all is well
	Forced    map[string]time.Duration // by token: when it was forced away, at the first node
	Blackouts []time.Duration          // when a quorum of nodes was without counters
}

// Event is one line of a trace.
type Event struct {
	At    time.Duration
	Actor string // "h1.2", a client; "node b"; "h1"
	What  string
	Lock  string
	Lease int           // the number of its request
	Until time.Duration // the stated deadline; 0: there is none
	Fence uint64
	Note  string

	isCommand bool
}

func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%12s  %-7s %-12s", instant(e.At), e.Actor, e.What)
	if e.Lock != "" {
		fmt.Fprintf(&b, " %s", e.Lock)
	}
	if e.Until != 0 {
		fmt.Fprintf(&b, " lease %d until %s", e.Lease, instant(e.Until))
	}
	if e.Fence != 0 {
		fmt.Fprintf(&b, " fence %d", e.Fence)
	}
	if e.Note != "" {
		fmt.Fprintf(&b, "  %s", e.Note)
	}
	return strings.TrimRight(b.String(), " ")
}

// instant is a time since the beginning, in milliseconds.
func instant(at time.Duration) string { return fmt.Sprintf("%.6f", float64(at)/1e6) }

// Hash is another one where anything else happened, or at another nanosecond.
func (r *Report) Hash() uint64 {
	h := fnv.New64a()
	for _, e := range r.Trace {
		if !e.isCommand {
			fmt.Fprintln(h, e.At, e)
		}
	}
	return h.Sum64()
}

// Write writes the whole trace, and what was wrong where it was.
func (r *Report) Write(w io.Writer) error {
	_, err := io.WriteString(w, r.text(0))
	return err
}

// Tail is the last lines of the trace, with what was wrong.
func (r *Report) Tail(lines int) string { return r.text(max(0, len(r.Trace)-lines)) }

func (r *Report) text(first int) string {
	var b strings.Builder
	b.WriteString(strings.TrimRight(fmt.Sprintf("seed %d, instants in milliseconds", r.Plan.Seed), " ") + "\n")
	violations := slices.Clone(r.Violations)
	for _, e := range r.Trace[first:] {
		for len(violations) > 0 && violations[0].At < e.At {
			fmt.Fprintf(&b, "%v  <<<<<<\n", violations[0])
			violations = violations[1:]
		}
		fmt.Fprintln(&b, e)
	}
	for _, v := range violations {
		fmt.Fprintf(&b, "%v  <<<<<<\n", v)
	}
	return b.String()
}

// Until is the trace up to the first violation, the last lines of it.
func (r *Report) Until(lines int) string {
	if len(r.Violations) == 0 {
		return r.Tail(lines)
	}
	cut := *r
	end := slices.IndexFunc(r.Trace, func(e Event) bool { return e.At > r.Violations[0].At })
	if end < 0 {
		end = len(r.Trace)
	}
	cut.Trace, cut.Violations = r.Trace[:end], r.Violations[:1]
	return cut.Tail(lines)
}
