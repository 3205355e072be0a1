package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A report has the results of one run.
type report struct {
	options    options
	server     string // name and version
	took       time.Duration
	checking   time.Duration // time of the checks after the run
	faults     map[string]*faultCount
	history    *history
	did        workCount
	calmest    time.Duration // the longest wait after the last fault
	locks      int
	violations []violation
	dir        string // directory with the files of a violation
}

func (r *report) effectiveFaults() (total int) {
	for _, count := range r.faults {
		total += count.effective
	}
	return total
}

// mostViolations is how many violations are printed.
const mostViolations = 10

func (r *report) print(out io.Writer) {
	o, grants, faults := r.options, r.history.totalGrants(), r.effectiveFaults()
	fmt.Fprintf(out, "%s: %d nodes (%s), %d daemons, %d client processes of %d workers, seed %d, %v\n",
		o.contender, o.nodes, r.server, o.daemons, o.clients, o.workers, o.seed, r.took.Round(time.Second))
	fmt.Fprintf(out, "%d grants (%.0f/s) of %d locks, %d faults that changed something (%.1f/s), %d violations; the last checks took %v\n\n",
		grants, float64(grants)/r.took.Seconds(), r.locks, faults, float64(faults)/r.took.Seconds(), len(r.violations), r.checking.Round(time.Millisecond))
	fmt.Fprintln(out, "| fault | made | changed something | effect |\n|---|---:|---:|---:|")
	for _, name := range slices.Sorted(maps.Keys(r.faults)) {
		count := r.faults[name]
		fmt.Fprintf(out, "| %s | %d | %d | %d |\n", name, count.made, count.effective, count.effect)
	}
	fmt.Fprintln(out, "\n| grants | |\n|---|---:|")
	for _, m := range slices.Sorted(maps.Keys(r.history.grants)) {
		fmt.Fprintf(out, "| %s | %d |\n", m, r.history.grants[m])
	}
	ended := 0
	for _, reason := range slices.Sorted(maps.Keys(r.history.reasons)) {
		ended += r.history.reasons[reason]
		fmt.Fprintf(out, "| ended: %s | %d |\n", reason, r.history.reasons[reason])
	}
	fmt.Fprintf(out, "| held at the end of the run | %d |\n", grants-ended)
	if r.did.writes > 0 {
		fmt.Fprintln(out, "\n| work under the locks: read, work, write | updates | lost | refused |\n|---|---:|---:|---:|")
		fmt.Fprintf(out, "| without fencing | %d | %d | |\n", r.did.writes, r.did.lost)
		fmt.Fprintf(out, "| the store compares tokens | %d | %d | %d |\n", r.did.fencedWrites, r.did.fencedLost, r.did.refused)
	}
	if r.calmest > 0 {
		fmt.Fprintf(out, "\nafter the last fault, all %d workers had a grant of one lock within %v\n", (r.options.clients-r.options.rivals)*r.options.workers, r.calmest.Round(time.Millisecond))
	}
	if r.history.tooLate > 0 {
		fmt.Fprintf(out, "\n%d lines came after their lock was checked\n", r.history.tooLate)
	}
	for i, v := range r.violations {
		if i == mostViolations {
			fmt.Fprintf(out, "… and %d more\n", len(r.violations)-i)
			break
		}
		fmt.Fprintln(out, v)
	}
	if len(r.violations) > 0 {
		fmt.Fprintf(out, "\nhistories, logs and options: %s\n", r.dir)
	}
}

// writePage writes the report as a page.
func (r *report) writePage(path string) error {
	var text strings.Builder
	r.print(&text)
	return os.WriteFile(path, []byte(text.String()), 0o666)
}

// serverVersion returns the name and version that a node reports.
func serverVersion(n *node) string {
	db := redis.NewClient(&redis.Options{Addr: n.Addr()})
	defer db.Close()
	info, err := db.Info(context.Background(), "server").Result()
	if err != nil {
		return "unknown server"
	}
	name, version := "redis", ""
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch key {
		case "server_name":
			name = value
		case "redis_version":
			if version == "" {
				version = value
			}
		case "valkey_version":
			version = value
		}
	}
	return name + " " + version
}
