package main

import (
	"fmt"
	"io"
)

// printContention writes the tables of waiters for one name.
func (r *report) printContention(w io.Writer) {
	if len(r.Contention) > 0 {
		fmt.Fprintf(w, "\n%s.\nOther processes kept %.2f CPUs busy meanwhile. Workers sleep by timerfd, which is precise: hold is what it came to.\n", r.Machine, r.Others)
		fmt.Fprint(w, "A hand-over is from calling unlock to the grant of the next who had waited, on this program's monotonic clock; alone is a lock that nobody else wants. The daemon runs at nice -10, as its unit has it.\n",
			"Commands are those that a node was sent for an acquisition (counted by MONITOR in a slice of its own; not those inside of scripts). Ratios are against the first row of each scenario.\n\n")
		r.contentionTable().print(w)
		r.printContentionFailures(w)
	}
	if r.Hosts != nil {
		r.printHosts(w, r.Hosts)
	}
	if r.Readers != nil {
		printReaders(w, r.Readers)
	}
}

func (r *report) contentionTable() *table {
	t := &table{header: []string{"scenario", "contender", "locks/s", "hand-over p50 ms", "p99 ms", "alone p50 ms", "hold ms", "cmds a node",
		"least served", "most", "least/most", "CPU s/10,000", "locks/s ×", "hand-over ×", "hand-over/alone"}}
	previous := ""
	for _, one := range r.Contention {
		shown := one.Scenario
		if shown == previous {
			shown = ""
		}
		previous = one.Scenario
		t.add(shown, one.Contender, number(one.Rate), number(one.P50), number(one.P99), number(one.Alone), number(one.Hold), number(one.Commands),
			fmt.Sprintf("%.0f", one.Least), fmt.Sprintf("%.0f", one.Most), fmt.Sprintf("%.2f", one.Fairness), number(one.CPU),
			number(one.RateRatio), number(one.HandOverRatio), number(one.AloneRatio))
	}
	return t
}

func (r *report) printContentionFailures(w io.Writer) {
	for _, one := range r.Contention {
		if one.Failed > 0 {
			fmt.Fprintf(w, "\n%s: %d locks or unlocks failed, the first: %s\n", one.where(), one.Failed, one.Failure)
		}
	}
}

func (r *report) printHosts(w io.Writer, h *hostsRow) {
	fmt.Fprintf(w, "\n%d hosts: fairness between them %.2f (least / most). For 1,000 acquisitions their daemons counted %.1f split votes, %.0f hand-overs, %.0f wake-ups (0 where this version counts none).\n",
		hostCount, h.Fairness, h.Splits, h.HandOvers, h.WakeUps)
	if h.Deaths > 0 {
		fmt.Fprintf(w, "%d times the daemon of one was killed (kill -9) while it held, ttl %.0f ms: the others waited %.0f ms at most; the longest time without a grant to them was %.0f ms; then they had %d grants or more.\n",
			h.Deaths, h.TTL, h.Delay, h.Gap, h.After)
	}
	if h.Failed > 0 {
		fmt.Fprintf(w, "%d locks or unlocks of the others failed meanwhile, the first: %s\n", h.Failed, h.Failure)
	}
}

func printReaders(w io.Writer, one *readersRow) {
	if one.Skipped != "" {
		fmt.Fprintf(w, "\nReaders: skipped, this daemon has none: it answered %s\n", one.Skipped)
		return
	}
	fmt.Fprintf(w, "\nReaders, on two hosts: %d of %d held one name together, %.1f ms after the first asked. Then they came and went, %.0f grants/s, each held it for %.0f ms at most,\nand %d writers wanted it meanwhile: they waited %.1f ms at p50, %.1f ms at most.\n",
		one.Together, workersAtOnce, one.Gathered, one.Reads, one.Hold, one.Writers, one.P50, one.Max)
}
