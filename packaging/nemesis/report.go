package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// A report is what one run found.
type report struct {
	options    options
	took       time.Duration
	faults     map[string]*faultCount
	holds      map[holdKey]*hold
	violations []violation
}

func (r *report) effectiveFaults() (total int) {
	for _, count := range r.faults {
		total += count.effective
	}
	return total
}

// mostViolations is how many are printed.
const mostViolations = 10

func (r *report) print(out io.Writer) {
	o := r.options
	fmt.Fprintf(out, "%s: %d nodes, %d daemons, %d client processes of %d workers, seed %d, %v\n", o.contender, o.nodes, o.daemons, o.clients, o.workers, o.seed, r.took.Round(time.Second))
	kinds, reasons := map[mode]int{}, map[string]int{}
	for _, one := range r.holds {
		kinds[one.Mode]++
		reasons[cmp.Or(one.Reason, "end of the run")]++
	}
	fmt.Fprintf(out, "%d grants, %d faults that changed something\n\n", len(r.holds), r.effectiveFaults())
	for _, name := range slices.Sorted(maps.Keys(r.faults)) {
		count := r.faults[name]
		fmt.Fprintf(out, "%7d of %-7d %s (effect %d)\n", count.effective, count.made, name, count.effect)
	}
	fmt.Fprintln(out)
	for _, m := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(out, "%7d grants %s\n", kinds[m], m)
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(out, "%7d ended: %s\n", reasons[reason], reason)
	}
	fmt.Fprintf(out, "\n%d violations\n", len(r.violations))
	for i, v := range r.violations {
		if i == mostViolations {
			fmt.Fprintf(out, "… and %d more\n", len(r.violations)-i)
			break
		}
		fmt.Fprintln(out, v)
	}
}
