package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

const (
	hostCount   = 3
	hostWorkers = 20 // on each
)

var severalHosts = scenario{
	part: "hosts", workers: hostCount * hostWorkers, shared: true, hold: contendedHold, think: contendedThink,
	title: fmt.Sprintf("%d workers, one name, hold %v, think %v", hostCount*hostWorkers, contendedHold, contendedThink),
}

// What the rows are called.
const (
	oneHost  = "redlockd, one host"
	allHosts = "redlockd, three hosts"
)

// hostsBench measures several daemons that stand for as many hosts: each has a
// socket of its own, and all have the same nodes.
type hostsBench struct {
	*pairBench
	env     *environment
	started int // daemons so far

	one, all *series
	counts   daemonCounts // of the slices with all hosts
	deaths   []death
}

// daemonCounts are counts of STATUS, which a daemon may not have.
type daemonCounts struct{ splits, handOvers, wakeUps int64 }

func hostsPart(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) (err error) {
	if !o.wants(severalHosts.part) {
		return nil
	}
	b := newHostsBench(&pairBench{opts: o, fleet: &fleet{nodes: env.nodes}, logs: logs}, env)
	defer func() { err = errors.Join(err, b.fleet.stop()) }()
	for range hostCount {
		if _, err := b.startHost(ctx); err != nil {
			return err
		}
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	for range o.rounds {
		if err := b.kill(ctx, deathTTL); err != nil {
			return err
		}
	}
	rep.addHosts(b)
	return nil
}

func newHostsBench(pairs *pairBench, env *environment) *hostsBench {
	return &hostsBench{pairBench: pairs, env: env, one: newSeries(severalHosts, oneHost), all: newSeries(severalHosts, allHosts)}
}

// startHost starts one more daemon.
func (b *hostsBench) startHost(ctx context.Context) (*daemon, error) {
	b.started++
	d, err := b.env.startDaemon(ctx, fmt.Sprintf("host%d", b.started))
	if err == nil {
		b.fleet.hosts = append(b.fleet.hosts, d)
	}
	return d, err
}

// measure gives a slice to one host that has all the workers, and one to all
// hosts, in each round.
func (b *hostsBench) measure(ctx context.Context) error {
	h, err := openHosts(ctx, b.fleet.hosts)
	if err != nil {
		return err
	}
	defer h.close()
	one := entry{recipe: recipe{name: oneHost}, contender: hosts{h[0]}}
	all := entry{recipe: recipe{name: allHosts}, contender: h}
	for _, e := range []entry{one, all} {
		if _, err := b.slice(ctx, e, severalHosts, warmUp, nil); err != nil {
			return err
		}
	}
	for round := range b.opts.rounds {
		fmt.Fprintf(b.logs, "%d hosts: round %d of %d\n", hostCount, round+1, b.opts.rounds)
		if b.one.rounds[round], err = b.slice(ctx, one, severalHosts, contendedSlices*b.opts.slice, nil); err != nil {
			return err
		}
		if b.all.rounds[round], err = b.counted(ctx, h, all); err != nil {
			return err
		}
	}
	return nil
}

// counted is a slice of all hosts; what their daemons count meanwhile is added up.
func (b *hostsBench) counted(ctx context.Context, h hosts, e entry) (sample, error) {
	before, err := h.counts(ctx)
	if err != nil {
		return sample{}, err
	}
	got, err := b.slice(ctx, e, severalHosts, contendedSlices*b.opts.slice, nil)
	if err != nil {
		return got, err
	}
	after, err := h.counts(ctx)
	b.counts.splits += after.splits - before.splits
	b.counts.handOvers += after.handOvers - before.handOvers
	b.counts.wakeUps += after.wakeUps - before.wakeUps
	return got, err
}

// hosts is the daemons of several hosts as one contender: its workers are on each
// of them in turn, and have a connection each.
type hosts []*redlockdContender

func openHosts(ctx context.Context, daemons []*daemon) (hosts, error) {
	var h hosts
	for _, d := range daemons {
		c, err := openRedlockd(ctx, d, hostCount*hostWorkers) // as many as one host may have alone
		if err != nil {
			h.close()
			return nil, err
		}
		h = append(h, c.(*redlockdContender))
	}
	return h, nil
}

// of is on which of the hosts a worker is.
func (h hosts) of(w int) int { return w % len(h) }

func (h hosts) locker(w int) locker { return h[h.of(w)].locker(w / len(h)) }

func (h hosts) settle(ctx context.Context) error {
	var errs []error
	for _, c := range h {
		errs = append(errs, c.settle(ctx))
	}
	return errors.Join(errs...)
}

func (h hosts) close() {
	for _, c := range h {
		c.close()
	}
}

// counts adds up what the daemons count.
func (h hosts) counts(ctx context.Context) (sum daemonCounts, err error) {
	for _, c := range h {
		status, err := c.clients[0].Status(ctx)
		if err != nil {
			return sum, err
		}
		sum.splits += status.Counts["splits"]
		sum.handOvers += status.Counts["handovers"]
		sum.wakeUps += status.Counts["wakeups"]
	}
	return sum, nil
}
