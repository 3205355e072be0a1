package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// partNames are the words of -only, in the order in which the parts run.
var partNames = []string{"one", "distinct", "same", "contended", "hosts", "readers", "foreign", "held", "memory", costPart, fleetPart, alternativesPart, networkPart}

func isPart(name string) bool { return slices.Contains(partNames, name) }

func (o options) wants(part string) bool {
	if o.rtt > 0 || part == networkPart {
		return o.rtt > 0 && part == networkPart
	}
	return len(o.only) == 0 || slices.Contains(o.only, part)
}

// environment is shared by all parts: the nodes, and a daemon binary.
type environment struct {
	dir    string
	binary string
	nodes  []*node
}

func newEnvironment(ctx context.Context, given string) (*environment, error) {
	dir, err := os.MkdirTemp("", "rlbench")
	if err != nil {
		return nil, err
	}
	env := &environment{dir: dir}
	if env.binary, err = buildDaemon(ctx, dir, given); err == nil {
		env.nodes, err = startNodes(dir, redlock.DefaultPrefix, nodeCount)
	}
	if err != nil {
		env.close()
		return nil, err
	}
	return env, nil
}

func (env *environment) close() {
	killNodes(env.nodes)
	os.RemoveAll(env.dir)
}

func (env *environment) startDaemon(ctx context.Context, name string, lines ...string) (*daemon, error) {
	return startDaemon(ctx, env.dir, env.binary, name, env.nodes, lines...)
}

// measureAll runs the parts that o selects and returns the measurements, after an error also those
// up to then. It leaves no process behind.
func measureAll(ctx context.Context, o options, logs io.Writer) (*report, error) {
	rep := newReport(o)
	env, err := newEnvironment(ctx, o.daemon)
	if err != nil {
		return rep, err
	}
	defer env.close()
	for _, part := range []func(context.Context, options, *environment, *report, io.Writer) error{
		memoryPart, pairParts, contendedPart, hostsPart, readersPart, foreignPart, heldPart, measureCost, measureFleet, measureAlternatives, networkedPart,
	} {
		if err := part(ctx, o, env, rep, logs); err != nil {
			return rep, err
		}
	}
	return rep, rep.fault()
}

func memoryPart(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) (err error) {
	if !o.wants("memory") {
		return nil
	}
	rep.Memory, err = measureMemory(ctx, env, o.conns, logs)
	return err
}

// pairParts measures the scenarios with one daemon and one set of contenders.
func pairParts(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) (err error) {
	wanted := slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return !o.wants(s.part) })
	if len(wanted) == 0 {
		return nil
	}
	f := &fleet{nodes: env.nodes}
	if err := f.start(ctx, env, o.before); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	entries, err := openAll(ctx, f, func(r recipe) bool { return !r.old || f.before != nil })
	if err != nil {
		return err
	}
	defer closeAll(entries)
	b := &pairBench{opts: o, fleet: f, entries: entries, logs: logs}
	for _, s := range wanted {
		measured, err := b.measure(ctx, s)
		if err != nil {
			return err
		}
		rep.addPairs(measured)
	}
	return nil
}

func heldPart(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) error {
	if !o.wants("held") {
		return nil
	}
	b := &heldBench{opts: o, env: env, logs: logs}
	samples, err := b.measure(ctx)
	rep.addHeld(samples)
	return err
}

// pause waits for d. It returns an error if ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
}
