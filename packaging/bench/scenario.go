package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// scenarios are the parts that measure lock+unlock pairs.
var scenarios = []scenario{
	{part: "one", title: "1 worker", workers: 1},
	{part: "distinct", title: fmt.Sprintf("%d workers, distinct names", workersAtOnce), workers: workersAtOnce},
	{part: "same", title: fmt.Sprintf("%d workers, one name", workersAtOnce), workers: workersAtOnce, shared: true},
}

const (
	warmUp = 300 * time.Millisecond
	// hungLimit is how long after the end of its slice a contender may still hang with the hung
	// node. Then the node is continued.
	hungLimit = 15 * time.Second
	// wellLimit is the same if no node hangs.
	wellLimit = 15 * time.Second
)

// sample has the results of one slice.
type sample struct {
	pairs
	usage
	counters
	left int // keys left on the nodes
}

// pairBench measures the scenarios for all contenders, in rounds.
type pairBench struct {
	opts    options
	fleet   *fleet
	entries []entry
	slices  int // so far; the number is the mark of the next one
	logs    io.Writer
}

// series is one contender's samples in one scenario, by round.
type series struct {
	scenario
	contender string
	hung      bool
	rounds    map[int]sample
}

// measure returns the series of one scenario for every contender: first without a hung node, then
// with one.
func (b *pairBench) measure(ctx context.Context, s scenario) ([]*series, error) {
	well, hung := b.blank(s, false), b.blank(s, true)
	for i, e := range b.entries {
		if well[i] == nil {
			continue
		}
		if _, err := b.slice(ctx, e, s, warmUp, nil); err != nil {
			return nil, err
		}
	}
	for round := range b.opts.rounds {
		fmt.Fprintf(b.logs, "%s: round %d of %d\n", s.title, round+1, b.opts.rounds)
		if err := b.round(ctx, well, round, nil); err != nil {
			return nil, err
		}
		if !b.opts.hung {
			continue
		}
		if err := b.round(ctx, hung, round, b.fleet.nodes[nodeCount-1]); err != nil {
			return nil, err
		}
	}
	return append(present(well), present(hung)...), nil
}

// blank returns an empty series for each entry, or nil if the entry is not measured in s.
func (b *pairBench) blank(s scenario, hung bool) []*series {
	all := make([]*series, len(b.entries))
	for i, e := range b.entries {
		if !e.many || s.workers > 1 {
			all[i] = &series{scenario: s, contender: e.name, hung: hung, rounds: map[int]sample{}}
		}
	}
	return all
}

func present(all []*series) []*series {
	var some []*series
	for _, s := range all {
		if s != nil && len(s.rounds) > 0 {
			some = append(some, s)
		}
	}
	return some
}

// round gives every contender a slice. If a contender hangs together with a hung node, it is
// measured only once, because that takes long and would happen again.
func (b *pairBench) round(ctx context.Context, all []*series, round int, hung *node) error {
	for i, s := range all {
		if s == nil || hung != nil && stalled(s, b.opts.slice) {
			continue
		}
		got, err := b.slice(ctx, b.entries[i], s.scenario, b.opts.slice, hung)
		if err != nil {
			return err
		}
		s.rounds[round] = got
	}
	return nil
}

// stalled reports whether a measured slice took far longer than its length.
func stalled(s *series, length time.Duration) bool {
	for _, got := range s.rounds {
		if got.elapsed > length+2*time.Second {
			return true
		}
	}
	return false
}

// slice lets one contender work, with hung stopped if it is not nil, and measures the costs and the
// keys left. All nodes work before and after it.
func (b *pairBench) slice(ctx context.Context, e entry, s scenario, length time.Duration, hung *node) (sample, error) {
	fail := func(err error) (sample, error) {
		return sample{}, fmt.Errorf("%s, %s: %w", e.name, s.title, err)
	}
	b.slices++
	run := slice{scenario: s, locker: e.locker, mark: fmt.Sprintf("bench%d", b.slices), length: length, limit: wellLimit, relief: func() {}}
	if hung != nil {
		run.limit, run.relief = hungLimit, hung.resume
	}
	if err := e.settle(ctx); err != nil {
		return fail(err)
	}
	before, err := countersOf(b.fleet.nodes)
	if err != nil {
		return fail(err)
	}
	got, err := b.watched(ctx, run, hung)
	if err != nil {
		return fail(err)
	}
	if got.left, err = b.tidy(ctx, e, run.mark); err != nil {
		return fail(err)
	}
	after, err := countersOf(b.fleet.nodes)
	if err != nil {
		return fail(err)
	}
	got.counters = after.since(before)
	return got, nil
}

// watched runs the slice and measures the CPU time. Then it continues a hung node and waits until
// that has executed all pending requests.
func (b *pairBench) watched(ctx context.Context, run slice, hung *node) (sample, error) {
	if hung != nil {
		defer context.AfterFunc(ctx, hung.resume)() // so that an interrupted run ends soon
		defer hung.resume()
		if err := hung.Stop(); err != nil {
			return sample{}, err
		}
	}
	before, err := b.fleet.usage()
	if err != nil {
		return sample{}, err
	}
	did, err := run.run(ctx)
	if err != nil {
		return sample{}, err
	}
	after, err := b.fleet.usage()
	if err == nil && hung != nil {
		err = hung.wake()
	}
	return sample{pairs: did, usage: after.since(before)}, err
}

// tidyLimit is how long a contender has to finish its last releases.
const tidyLimit = 500 * time.Millisecond

// tidy waits until the contender has finished all its calls, and returns how many of the slice's
// keys are still on the nodes.
func (b *pairBench) tidy(ctx context.Context, e entry, mark string) (left int, err error) {
	if err := e.settle(ctx); err != nil {
		return 0, err
	}
	for end := time.Now().Add(tidyLimit); ; time.Sleep(20 * time.Millisecond) {
		left, err = leftBehind(b.fleet.nodes, mark)
		if left == 0 || err != nil || time.Now().After(end) {
			return left, err
		}
	}
}
