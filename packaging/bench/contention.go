package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

const (
	contendedHold  = time.Millisecond
	contendedThink = 5 * time.Millisecond
	// contendedSlices is how many times longer the slices with contention are: every worker needs
	// many grants for fairness to show.
	contendedSlices = 3
)

var (
	contended = scenario{
		part: "contended", workers: workersAtOnce, shared: true, hold: contendedHold, think: contendedThink,
		title: fmt.Sprintf("%d waiters, one name, hold %v, think %v, one host", workersAtOnce, contendedHold, contendedThink),
	}
	// alone is the baseline of hand-overs. Its worker sleeps before each lock as long as a holder
	// does before its unlock, because a worker that has just slept is slower.
	alone = scenario{part: "alone", title: "1 worker", workers: 1, hold: contendedHold, think: contendedHold}
)

// contentionBench measures waiters for one name.
type contentionBench struct {
	*pairBench
	all []*contention
}

// contention has the measurements of one contender.
type contention struct {
	entry
	among, alone *series
	commands     float64 // to each node for a lock and its unlock
}

// contendedPart measures one daemon and redsync in alternation.
func contendedPart(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) (err error) {
	if !o.wants(contended.part) {
		return nil
	}
	f := &fleet{nodes: env.nodes}
	if err := f.start(ctx, env, o.before); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	entries, err := openAll(ctx, f, func(r recipe) bool { return r.name != rueidisFanOut && (!r.old || f.before != nil) })
	if err != nil {
		return err
	}
	defer closeAll(entries)
	b := newContentionBench(&pairBench{opts: o, fleet: f, entries: entries, logs: logs})
	if err := b.measure(ctx); err != nil {
		return err
	}
	rep.addContention(b.all)
	return nil
}

func newContentionBench(pairs *pairBench) *contentionBench {
	b := &contentionBench{pairBench: pairs}
	for _, e := range pairs.entries {
		b.all = append(b.all, &contention{entry: e, among: newSeries(contended, e.name), alone: newSeries(alone, e.name)})
	}
	return b
}

func newSeries(s scenario, contender string) *series {
	return &series{scenario: s, contender: contender, rounds: map[int]sample{}}
}

// measure counts the commands of every contender, which also warms it up. Then each round has a
// slice with one worker and one with waiters.
func (b *contentionBench) measure(ctx context.Context) (err error) {
	fmt.Fprintf(b.logs, "%s: commands\n", contended.title)
	for _, c := range b.all {
		if c.commands, err = b.commands(ctx, c.entry); err != nil {
			return err
		}
	}
	for round := range b.opts.rounds {
		fmt.Fprintf(b.logs, "%s: round %d of %d\n", contended.title, round+1, b.opts.rounds)
		for _, c := range b.all {
			if c.alone.rounds[round], err = b.slice(ctx, c.entry, alone, b.opts.slice, nil); err != nil {
				return err
			}
			if c.among.rounds[round], err = b.slice(ctx, c.entry, contended, contendedSlices*b.opts.slice, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// commands runs one contender in a slice of its own, and returns how many commands a node gets for
// each grant. It queries one node, because every contender sends the same to all of them.
func (b *contentionBench) commands(ctx context.Context, e entry) (float64, error) {
	watch, err := watchCommands(ctx, b.fleet.nodes[nodeCount-1])
	if err != nil {
		return 0, err
	}
	got, err := b.slice(ctx, e, contended, b.opts.slice, nil)
	n, watchErr := watch.stop()
	return float64(n) / float64(max(1, len(got.latencies))), errors.Join(err, watchErr)
}

// foreign has half of its workers use redsync and half of them redlockd, on one key. The important
// result is that no two of them ever hold the lock at once. Its figures show polling workers beside
// woken ones.
var foreign = scenario{
	part: "foreign", workers: workersAtOnce, shared: true, hold: contendedHold, think: contendedThink,
	title: fmt.Sprintf("%d workers of each, one key, hold %v, think %v", workersAtOnce/2, contendedHold, contendedThink),
}

// mixture is two contenders, to which the workers are assigned alternately.
type mixture [2]entry

func (m mixture) locker(w int) locker { return m[w%2].locker(w / 2) }

func (m mixture) settle(ctx context.Context) error {
	return errors.Join(m[0].settle(ctx), m[1].settle(ctx))
}

func (m mixture) close() { closeAll(m[:]) }

// foreignPart has its own daemon, and nodes whose keys other Redlock clients share.
func foreignPart(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) (err error) {
	if !o.wants(foreign.part) {
		return nil
	}
	nodes, err := startNodes(filepath.Join(env.dir, "foreign nodes"), "", nodeCount)
	if err != nil {
		return err
	}
	defer killNodes(nodes)
	f := &fleet{nodes: nodes}
	if f.daemon, err = startDaemon(ctx, env.dir, env.binary, "foreign", nodes, `key_prefix = ""`); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	entries, err := openAll(ctx, f, func(r recipe) bool { return r.name == redsyncGoRedis || r.name == redlockdConns })
	if err != nil {
		return err
	}
	m := mixture(entries)
	defer m.close()
	s, err := measureForeign(ctx, &pairBench{opts: o, fleet: f, logs: logs}, m)
	if err != nil {
		return err
	}
	rep.addForeign(m, s)
	return nil
}

func measureForeign(ctx context.Context, b *pairBench, m mixture) (*series, error) {
	s := newSeries(foreign, "both")
	e := entry{recipe: recipe{name: s.contender}, contender: m}
	for round := range b.opts.rounds {
		fmt.Fprintf(b.logs, "%s: round %d of %d\n", foreign.title, round+1, b.opts.rounds)
		got, err := b.slice(ctx, e, foreign, contendedSlices*b.opts.slice, nil)
		if err != nil {
			return nil, err
		}
		s.rounds[round] = got
	}
	return s, nil
}
