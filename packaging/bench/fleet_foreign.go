package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

const (
	foreignHosts  = 10
	foreignConfig = `key_prefix = ""` // the names of redsync
)

// foreignRow has the results of hosts that want one lock together with a redsync client.
type foreignRow struct {
	Contender string  `json:"contender"`
	Hosts     int     `json:"hosts"`
	Rate      float64 `json:"per_second"`         // of a host, the mean
	Least     float64 `json:"least_per_second"`   // of the host with the fewest grants
	Redsync   float64 `json:"redsync_per_second"` // of the redsync client
	Longest   float64 `json:"redsync_longest_wait_ms"`
	Failed    int     `json:"failed"`
	Failure   string  `json:"failure,omitempty"`
	Clashes   int     `json:"clashes"`
}

// besideHosts is a group of hosts with one worker each, and a redsync client for the last worker.
type besideHosts struct {
	*hostGroup
	foreign clientHosts
}

func (b besideHosts) locker(w int) locker {
	if w == len(b.daemons) {
		return b.foreign.locker(0)
	}
	return b.hostGroup.locker(w)
}

// foreigners measures hosts with a redsync client beside them: it does not enter the queue, and
// nobody calls it. They have nodes of their own, whose keys other Redlock clients share.
func (b *fleetBench) foreigners(ctx context.Context) error {
	nodes, err := startNodes(filepath.Join(b.env.dir, "foreign hosts"), "", nodeCount)
	if err != nil {
		return err
	}
	defer killNodes(nodes)
	env := *b.env
	env.nodes = nodes
	c := &fleetBench{
		pairBench: &pairBench{opts: b.opts, fleet: &fleet{nodes: nodes}, logs: b.logs},
		env:       &env, builds: b.builds, config: []string{foreignConfig},
	}
	all := make([]*series, len(c.builds))
	for round := range c.opts.rounds {
		fmt.Fprintf(c.logs, "fleet of %d and a redsync client: round %d of %d\n", foreignHosts, round+1, c.opts.rounds)
		for i := range c.builds {
			i = (i + round) % len(c.builds)
			got, err := c.foreignSlice(ctx, c.builds[i])
			if err != nil {
				return fmt.Errorf("%s: %w", c.builds[i].name, err)
			}
			if all[i] == nil {
				all[i] = newSeries(fleetScenario(foreignHosts+1), c.builds[i].name)
			}
			all[i].rounds[round] = got
		}
	}
	for _, s := range all {
		b.report.addForeign(s, contendedSlices*c.opts.slice)
	}
	return nil
}

func (b *fleetBench) foreignSlice(ctx context.Context, by build) (got sample, err error) {
	g, err := b.startHosts(ctx, by, foreignHosts)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	r, err := openRedsyncHosts(ctx, b.fleet, 1)
	if err != nil {
		return got, err
	}
	defer r.close()
	e := entry{recipe: recipe{name: by.name}, contender: besideHosts{g, r}}
	return b.slice(ctx, e, fleetScenario(foreignHosts+1), contendedSlices*b.opts.slice, nil)
}

func (f *fleetReport) addForeign(s *series, length time.Duration) {
	last := s.workers - 1 // the redsync client
	perSecond := func(count func(sample) int) float64 {
		return s.medianOf(func(got sample) float64 { return float64(count(got)) / got.elapsed.Seconds() })
	}
	sum := s.total()
	one := foreignRow{
		Contender: s.contender, Hosts: last, Failed: sum.failed, Clashes: sum.clashes,
		Rate:    perSecond(func(got sample) int { return (len(got.latencies) - got.served[last]) / last }),
		Least:   perSecond(func(got sample) int { return slices.Min(got.served[:last]) }),
		Redsync: perSecond(func(got sample) int { return got.served[last] }),
	}
	for _, got := range s.rounds {
		alone := sample{pairs: pairs{grants: got.grants[last:]}}
		one.Longest = max(one.Longest, milliseconds(alone.longestHostWait(1, length)))
	}
	if sum.failure != nil {
		one.Failure = sum.failure.Error()
	}
	f.Foreign = append(f.Foreign, one)
}

func (f *fleetReport) foreignTable() *table {
	t := &table{header: []string{"hosts", "contender", "grants/s of a host", "of the last one", "of redsync", "redsync's longest wait ms"}}
	for _, one := range f.Foreign {
		t.add(fmt.Sprint(one.Hosts), one.Contender, number(one.Rate), number(one.Least), number(one.Redsync), number(one.Longest))
	}
	return t
}
