package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// print writes the tables for people.
func (r *report) print(w io.Writer) {
	if len(r.Rows) > 0 {
		fmt.Fprintf(w, "%s.\nOther processes kept %.2f CPUs busy meanwhile.\nRatios are against %s. CPU is for 10,000 pairs; that of the client side has the daemon's in it. The daemon runs at nice -10, as its unit has it.\n", r.Machine, r.Others, baseline)
		fmt.Fprint(w, "Commands (those inside of scripts included) and read calls are those of all nodes for one pair; keys left behind are for 10,000 pairs.\n\n")
		r.pairTable().print(w)
		r.printFailures(w)
	}
	if len(r.Held) > 0 {
		fmt.Fprint(w, "\nHeld leases of ", heldTTL, ", each extended every ", heldTTL/3, "; CPU scaled up from the share that was measured.\n",
			"On a bare quorum: leases that have their key on no more than ", quorum, " of the nodes that answer. Bytes/lease: the most that the daemon had resident meanwhile, above what it had without leases.\n\n")
		r.heldTable().print(w)
		r.printLosses(w)
	}
	r.printContention(w)
	r.printNetwork(w)
	r.printFleet(w)
	r.printCost(w)
	r.printAlternatives(w)
	if targets := targetsOf(r); len(targets) > 0 {
		fmt.Fprint(w, "\nWhat it must reach\n\n")
		targetTable(targets).print(w)
	}
}

func (r *report) printFailures(w io.Writer) {
	for _, one := range r.Rows {
		if one.Failed > 0 {
			fmt.Fprintf(w, "\n%s%s: %d locks or unlocks failed, the first: %s\n", one.where(), hungMark(one.Hung), one.Failed, one.Failure)
		}
	}
}

func (r *report) printLosses(w io.Writer) {
	for _, h := range r.Held {
		if h.Lost > 0 {
			fmt.Fprintf(w, "\n%s%s: %d leases were lost, one of them, %s\n", h.Contender, hungMark(h.Hung), h.Lost, h.Loss)
		}
	}
}

func (r *report) pairTable() *table {
	t := &table{header: []string{"scenario", "contender", "pairs/s", "p50 ms", "p99 ms", "client CPU s", "daemon's part", "Redis CPU s",
		"cmds", "reads", "keys left", "pairs/s ×", "p50 ×", "CPU ×"}}
	previous := ""
	for _, one := range r.Rows {
		scenario := one.Scenario + hungMark(one.Hung)
		shown := scenario
		if scenario == previous {
			shown = ""
		}
		previous = scenario
		t.add(shown, one.Contender, number(one.Rate), number(one.P50), number(one.P99), number(one.ClientCPU), number(one.daemonPart()), number(one.RedisCPU),
			number(one.Commands), number(one.Reads), fmt.Sprintf("%.0f", one.Left), number(one.RateRatio), number(one.P50Ratio), number(one.CPURatio))
	}
	return t
}

// daemonPart returns the daemon's CPU time, or 0 if the contender does not use the daemon.
func (r row) daemonPart() float64 {
	if !strings.HasPrefix(r.Contender, "redlockd") {
		return 0
	}
	return r.DaemonCPU
}

func hungMark(hung bool) string {
	if hung {
		return ", 1 node hung"
	}
	return ""
}

func (r *report) heldTable() *table {
	t := &table{header: []string{"nodes", "contender", "leases", "seconds", "lost", "bare quorum", "client cores", "Redis cores", "daemon's part", "bytes/lease"}}
	for _, h := range r.Held {
		nodes := "all well"
		if h.Hung {
			nodes = "1 hung"
		}
		t.add(nodes, h.Contender, fmt.Sprint(h.Leases), number(h.Seconds), fmt.Sprint(h.Lost), fmt.Sprint(h.Bare),
			number(h.Cores), number(h.Redis), number(h.Daemon), number(float64(h.PerLease)))
	}
	return t
}

func targetTable(targets []target) *table {
	t := &table{header: []string{"what", "wanted", "got", ""}, texts: 4}
	for _, one := range targets {
		verdict := "MISS"
		if one.Pass {
			verdict = "pass"
		}
		t.add(one.What, one.Want, one.Got, verdict)
	}
	return t
}

// number formats a figure with three significant digits, and 0 as an empty text, because 0 means
// that there is no figure.
func number(v float64) string {
	switch {
	case v < 0:
		return fmt.Sprintf("%.0f", v)
	case v == 0:
		return ""
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	case v >= 0.001:
		return fmt.Sprintf("%.3f", v)
	}
	return "<0.001"
}

// table is printed in Markdown, with aligned columns.
type table struct {
	header []string
	texts  int // number of left-aligned columns, at least two
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	widths := t.widths()
	t.line(w, widths, t.header)
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width)
		if i >= t.leftColumns() {
			rule[i] = rule[i][1:] + ":"
		}
	}
	t.line(w, widths, rule)
	for _, cells := range t.rows {
		t.line(w, widths, cells)
	}
}

func (t *table) leftColumns() int { return max(t.texts, 2) }

func (t *table) widths() []int {
	widths := make([]int, len(t.header))
	for _, cells := range append([][]string{t.header}, t.rows...) {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 2)
		}
	}
	return widths
}

func (t *table) line(w io.Writer, widths []int, cells []string) {
	for i, cell := range cells {
		padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if i < t.leftColumns() {
			cell += padding
		} else {
			cell = padding + cell
		}
		fmt.Fprint(w, "| ", cell, " ")
	}
	fmt.Fprintln(w, "|")
}
