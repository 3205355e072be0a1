package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	hostCount   = 3
	hostWorkers = 20 // on each host
	allWorkers  = hostCount * hostWorkers
)

var severalHosts = scenario{
	part: "hosts", workers: allWorkers, shared: true, hold: contendedHold, think: contendedThink,
	title: fmt.Sprintf("%d workers, one name, hold %v, think %v", allWorkers, contendedHold, contendedThink),
}

// The names of the rows.
const (
	oneHost  = "redlockd, one host"
	allHosts = "redlockd, three hosts"
)

// hostsBench measures several daemons that stand for several hosts: each has its own socket, and
// all have the same nodes.
type hostsBench struct {
	*pairBench
	env     *environment
	started int // number of daemons so far

	one, all *series
	counts   daemonCounts // of the slices with all hosts
	deaths   []death
}

// daemonCounts are counts of STATUS. A daemon may not have them.
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

// measure gives, in each round, a slice to one host with all workers and a slice to all hosts.
func (b *hostsBench) measure(ctx context.Context) error {
	h, err := openHosts(ctx, b.fleet.hosts, allWorkers)
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

// counted runs a slice on all hosts, and adds up what their daemons count meanwhile.
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

// hosts is the daemons of several hosts as one contender. Workers are assigned to hosts in turn,
// and have a connection each.
type hosts []*redlockdContender

// openHosts connects to each daemon as often as conns says.
func openHosts(ctx context.Context, daemons []*daemon, conns int) (hosts, error) {
	var h hosts
	for _, d := range daemons {
		c, err := openRedlockd(ctx, d, conns)
		if err != nil {
			h.close()
			return nil, err
		}
		h = append(h, c.(*redlockdContender))
	}
	return h, nil
}

// of returns the host of a worker.
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

// counts adds up the daemons' counts.
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

// deathTTL is the lease time of the locks when a host dies.
const deathTTL = 2 * time.Second

// death has the measurements of the other hosts when the holder's host dies.
type death struct {
	ttl   time.Duration
	delay time.Duration // from the kill -9 to the next grant
	gap   time.Duration // the longest time between two grants to them
	after int           // number of grants to them after the kill

	failed  int // their failed locks and unlocks
	failure error
	clashes int
}

// kill lets all hosts contend, kills the daemon of the host that holds the lock after a while, and
// then starts another one in its place.
func (b *hostsBench) kill(ctx context.Context, ttl time.Duration) error {
	fmt.Fprintf(b.logs, "%d hosts: one dies\n", hostCount)
	m := &mortal{daemons: b.fleet.hosts, ttl: ttl}
	m.victim.Store(nobody)
	b.fleet.hosts = nil // their CPU time cannot be read to the end
	defer func() { b.fleet.hosts = append(b.fleet.hosts, m.alive()...) }()
	var err error
	if m.hosts, err = openHosts(ctx, m.daemons, allWorkers); err != nil {
		return err
	}
	defer m.hosts.close()
	defer time.AfterFunc(ttl/2, func() { m.doomed.Store(true) }).Stop()
	got, err := b.slice(ctx, entry{recipe: recipe{name: allHosts}, contender: m}, severalHosts, 2*ttl, nil)
	if err != nil {
		return err
	}
	d, err := m.death(time.Now())
	if err != nil {
		return err
	}
	d.failed, d.failure, d.clashes = got.failed, got.failure, got.clashes
	b.deaths = append(b.deaths, d)
	_, err = b.startHost(ctx)
	return err
}

// mortal is a group of hosts. Once doomed is set, the next host that acquires the lock dies. After
// that, the workers of that host do nothing.
type mortal struct {
	hosts
	daemons []*daemon // one for each host
	ttl     time.Duration
	doomed  atomic.Bool  // the next host that acquires the lock dies
	victim  atomic.Int32 // the host that died

	mu     sync.Mutex // guards the fields below
	killed time.Time  // zero: not yet
	grants []grant    // in order
}

// nobody is the victim until a host dies.
const nobody = -1

type grant struct {
	at   time.Time
	host int
}

func (m *mortal) gone(host int) bool { return int(m.victim.Load()) == host }

func (m *mortal) locker(w int) locker {
	return mortalLocker{mortal: m, locker: m.hosts.locker(w), host: m.of(w)}
}

func (m *mortal) settle(ctx context.Context) error {
	var errs []error
	for i, c := range m.hosts {
		if !m.gone(i) {
			errs = append(errs, c.settle(ctx))
		}
	}
	return errors.Join(errs...)
}

func (m *mortal) alive() []*daemon {
	var some []*daemon
	for i, d := range m.daemons {
		if !m.gone(i) {
			some = append(some, d)
		}
	}
	return some
}

// granted is called with each grant, while no other worker can hold the lock.
func (m *mortal) granted(host int) {
	now := time.Now()
	dies := m.doomed.CompareAndSwap(true, false)
	if dies {
		m.victim.Store(int32(host))
		m.daemons[host].kill()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grants = append(m.grants, grant{at: now, host: host})
	if dies {
		m.killed = now
	}
}

// death returns the measurements of the other hosts until end.
func (m *mortal) death(end time.Time) (death, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.killed.IsZero() {
		return death{}, fmt.Errorf("no host was granted anything after %v: none could die with the lock", m.ttl/2)
	}
	d := death{ttl: m.ttl, delay: end.Sub(m.killed)}
	var last time.Time
	for _, g := range m.grants {
		if m.gone(g.host) {
			continue
		}
		if !last.IsZero() {
			d.gap = max(d.gap, g.at.Sub(last))
		}
		last = g.at
		if g.at.After(m.killed) {
			d.after++
			d.delay = min(d.delay, g.at.Sub(m.killed))
		}
	}
	d.gap = max(d.gap, d.delay)
	return d, nil
}

// mortalLocker is the locker of a worker on one of the hosts.
type mortalLocker struct {
	*mortal
	locker
	host int
}

func (l mortalLocker) lock(ctx context.Context, name string, _ time.Duration) (held, error) {
	if !l.gone(l.host) {
		got, err := l.locker.lock(ctx, name, l.ttl)
		if err == nil {
			l.granted(l.host)
			return mortalLock{held: got, of: l}, nil
		}
		if !l.gone(l.host) {
			return nil, err
		}
	}
	<-ctx.Done() // a dead worker does nothing until the end of the slice
	return nil, ctx.Err()
}

// mortalLock is a lock that is released, unless its host is dead.
type mortalLock struct {
	held
	of mortalLocker
}

func (l mortalLock) Unlock(ctx context.Context) error {
	if err := l.held.Unlock(ctx); err != nil && !l.of.gone(l.of.host) {
		return err
	}
	return nil
}
