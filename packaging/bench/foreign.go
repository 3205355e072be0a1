package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// foreign has half of the workers use redsync and half of them redlockd, on one
// key. Its figures say what becomes of those who poll beside those who are woken;
// what counts is that no two of them ever have the lock.
var foreign = scenario{
	part: "foreign", workers: workersAtOnce, shared: true, hold: contendedHold, think: contendedThink,
	title: fmt.Sprintf("%d workers of each, one key, hold %v, think %v", workersAtOnce/2, contendedHold, contendedThink),
}

// mixture is two contenders of whose workers every other is one's.
type mixture [2]entry

func (m mixture) locker(w int) locker { return m[w%2].locker(w / 2) }

func (m mixture) settle(ctx context.Context) error {
	return errors.Join(m[0].settle(ctx), m[1].settle(ctx))
}

func (m mixture) close() { closeAll(m[:]) }

// foreignPart has a daemon and nodes of its own, which share their keys with others.
func foreignPart(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) (err error) {
	if !o.wants(foreign.part) {
		return nil
	}
	nodes, err := startNodes(filepath.Join(env.dir, "foreign nodes"), "")
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
