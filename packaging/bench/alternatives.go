package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// alternativesPart compares redlockd with what people use instead. Each alternative has servers of
// its own, so that all tolerate the same failures.
const alternativesPart = "alternatives"

// alternative is one way of taking locks.
type alternative struct {
	name    string
	missing func() string // why it cannot be measured here; ""
	start   func(ctx context.Context, dir string, d delays) (*cluster, error)
	// connect makes the connections of one process. Those of redlockd are to the daemon's socket.
	connect func(ctx context.Context, addresses []string) (contender, error)
	warm    int // slices that its servers are warmed up for
	// sharer returns a reader or writer of that contender. nil: it has none, or readers.go has them.
	sharer func(c contender) sharer
}

// The alternatives that code asks for by name.
const (
	ofRedlockd = "redlockd"
	ofRedsync  = "redsync"
	ofSetnx    = "one Redis"
)

var alternatives []alternative

// An initializer would refer to itself, by way of the process that holds a lock.
func init() {
	alternatives = []alternative{
		{name: ofRedlockd, warm: 2, start: startRedis(serverCount), connect: redlockdAt},
		{name: ofRedsync, warm: 2, start: startRedis(serverCount), connect: func(_ context.Context, addresses []string) (contender, error) { return redsyncAt(addresses), nil }},
		{name: ofSetnx, warm: 2, start: startOneRedis, connect: func(_ context.Context, addresses []string) (contender, error) { return setnxAt(addresses[0]), nil }},
		{name: "etcd", warm: 2, missing: etcdMissing, start: startEtcd, connect: etcdAt},
		{name: "ZooKeeper", warm: 12, missing: zookeeperMissing, start: startZooKeeper, connect: zookeeperAt,
			sharer: func(c contender) sharer { return c.locker(0).(*zookeeperLocker) }},
	}
}

// alternativesRTT is the round trip of the emulated network.
const alternativesRTT = 2 * time.Millisecond

// The scenarios. Each worker always uses its own name again, if names are distinct: a new name is a
// new znode in ZooKeeper.
var (
	alternativeOne      = scenario{part: alternativesPart, title: "one worker", workers: 1, repeat: true}
	alternativeDistinct = scenario{part: alternativesPart, title: "64 workers", workers: workersAtOnce, repeat: true}
	alternativeWaiters  = scenario{part: alternativesPart, title: "64 waiters", workers: workersAtOnce, shared: true, hold: contendedHold}
)

// sharedSlices is how many slices long those of one lock are.
const sharedSlices = 2

// alternativeHosts are the numbers of hosts with one waiter each.
var alternativeHosts = []int{2, 10, 30}

// alternativesBench measures all alternatives, in stages with new servers.
type alternativesBench struct {
	opts   options
	env    *environment // its directory and its binary
	logs   io.Writer
	report *alternativesReport
}

// measureAlternatives runs the part, only if -only names it.
func measureAlternatives(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) error {
	if !slices.Contains(o.only, alternativesPart) {
		return nil
	}
	memory, err := os.MkdirTemp(o.data, "rlbench")
	if err != nil {
		return fmt.Errorf("-data: %w", err)
	}
	defer os.RemoveAll(memory)
	redis.SetLogger(silent{}) // a killed server is part of the measurement
	b := &alternativesBench{opts: o, env: env, logs: logs, report: newAlternativesReport(o)}
	rep.Alternatives = b.report
	stages := []struct {
		name    string
		dir     string
		rtt     time.Duration
		measure func(context.Context, *stage) error
	}{
		{"loopback", memory, 0, b.onLoopback},
		{"a network of 2 ms", memory, alternativesRTT, b.overNetwork},
		{"a disk", env.dir, 0, b.onDisk},
	}
	for i, s := range stages {
		fmt.Fprintf(logs, "alternatives on %s\n", s.name)
		if err := b.stage(ctx, filepath.Join(s.dir, fmt.Sprintf("stage%d", i)), s.rtt, s.measure); err != nil {
			return fmt.Errorf("alternatives on %s: %w", s.name, err)
		}
	}
	return nil
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// stage is the running servers of all alternatives that can be measured here.
type stage struct {
	dir string
	all []*installation
}

// installation is one alternative with its servers in a stage.
type installation struct {
	alternative
	*cluster
	bench *pairBench  // with its servers and daemons
	hosts *fleetBench // starts the daemons, if it is redlockd
}

// stage starts the servers, calls measure, and ends the servers.
func (b *alternativesBench) stage(ctx context.Context, dir string, rtt time.Duration, measure func(context.Context, *stage) error) (err error) {
	s := &stage{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var d delays
	if rtt > 0 {
		n, err := startNetwork(ctx, dir, rtt, b.env.nodes) // to find out the delay
		if err != nil {
			return err
		}
		n.kill()
		directly(b.env.nodes)
		b.report.Network = &n.networkFigures
		d = delays{on: true, oneWay: n.oneWay}
	}
	defer func() {
		for _, one := range s.all {
			one.kill()
		}
	}()
	for _, a := range alternatives {
		if a.missing != nil {
			if why := a.missing(); why != "" {
				b.report.Skipped[a.name] = why
				continue
			}
		}
		own := filepath.Join(dir, fmt.Sprintf("alternative%d", len(s.all)))
		if err := os.Mkdir(own, 0o700); err != nil {
			return err
		}
		c, err := a.start(ctx, own, d)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		s.all = append(s.all, b.install(a, c, own))
	}
	return measure(ctx, s)
}

func (b *alternativesBench) install(a alternative, c *cluster, dir string) *installation {
	one := &installation{alternative: a, cluster: c, bench: &pairBench{opts: b.opts, fleet: &fleet{nodes: c.nodes, others: c.servers}, logs: b.logs}}
	if a.name == ofRedlockd {
		own := &environment{dir: dir, binary: b.env.binary, nodes: c.nodes}
		one.hosts = &fleetBench{pairBench: one.bench, env: own}
	}
	return one
}

// open connects the processes of as many hosts with so many workers each. stop ends them.
func (s *installation) open(ctx context.Context, hosts, workers int) (_ contender, stop func() error, err error) {
	if s.hosts == nil {
		all, err := openClientHosts(hosts, func() (contender, error) { return s.connect(ctx, s.addresses) })
		return all, func() error { all.close(); return nil }, err
	}
	g, err := s.hosts.startHostsOf(ctx, build{fleetNow, s.hosts.env.binary}, hosts, workers)
	if err != nil {
		return nil, nil, err
	}
	s.bench.fleet.hosts = g.daemons
	return g, func() error { s.bench.fleet.hosts = nil; return g.stop() }, nil
}

// measured is a row's scenario and the length of its slices.
type measured struct {
	scenario
	length time.Duration
}

// measure measures scenarios with the processes of as many hosts, after a warm-up in the last one.
func (b *alternativesBench) measure(ctx context.Context, s *installation, hosts, round int, all ...measured) (err error) {
	workers := all[len(all)-1].workers
	c, stop, err := s.open(ctx, hosts, (workers+hosts-1)/hosts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	e := entry{recipe: recipe{name: s.name}, contender: c}
	if _, err := s.bench.slice(ctx, e, all[len(all)-1].scenario, warmUp, nil); err != nil {
		return err
	}
	for _, one := range all {
		got, err := s.bench.slice(ctx, e, one.scenario, one.length, nil)
		if err != nil {
			return err
		}
		b.report.add(one.scenario, s.name, round, got)
	}
	return nil
}

// rounds calls do for each alternative in each round. Another one is the first in each round.
func (b *alternativesBench) rounds(s *stage, what string, do func(s *installation, round int) error) error {
	for round := range b.opts.rounds {
		fmt.Fprintf(b.logs, "%s: round %d of %d\n", what, round+1, b.opts.rounds)
		for i := range s.all {
			one := s.all[(i+round)%len(s.all)]
			if err := do(one, round); err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
		}
	}
	return nil
}

// titled returns the scenario with another title, because that is the row's name.
func (s scenario) titled(title string) scenario {
	s.title = title
	return s
}

func (b *alternativesBench) onLoopback(ctx context.Context, s *stage) error {
	if err := b.idle(ctx, s); err != nil {
		return err
	}
	if err := b.warm(ctx, s); err != nil {
		return err
	}
	short, long := b.opts.slice, sharedSlices*b.opts.slice
	err := b.rounds(s, "one host", func(one *installation, round int) error {
		return b.measure(ctx, one, 1, round, measured{alternativeOne, short}, measured{alternativeDistinct, short}, measured{alternativeWaiters, long})
	})
	if err != nil {
		return err
	}
	for _, n := range alternativeHosts {
		err := b.rounds(s, fmt.Sprintf("%d hosts", n), func(one *installation, round int) error {
			return b.measure(ctx, one, n, round, measured{fleetScenario(n), long})
		})
		if err != nil {
			return err
		}
	}
	if err := b.rounds(s, "readers", func(one *installation, round int) error { return b.readers(ctx, one, round) }); err != nil {
		return err
	}
	if err := b.killHolders(ctx, s); err != nil {
		return err
	}
	return b.killServers(ctx, s)
}

func (b *alternativesBench) overNetwork(ctx context.Context, s *stage) error {
	if err := b.warm(ctx, s); err != nil {
		return err
	}
	short, long := b.opts.slice, sharedSlices*b.opts.slice
	return b.rounds(s, "2 ms", func(one *installation, round int) error {
		err := b.measure(ctx, one, 1, round, measured{networked(alternativeOne), short}, measured{networked(alternativeWaiters), long})
		if err != nil {
			return err
		}
		return b.measure(ctx, one, networkHosts, round, measured{networked(fleetScenario(networkHosts)), long})
	})
}

const networkHosts = 10

func networked(s scenario) scenario { return s.titled(s.title + ", 2 ms") }

func (b *alternativesBench) onDisk(ctx context.Context, s *stage) error {
	if err := b.warm(ctx, s); err != nil {
		return err
	}
	return b.rounds(s, "disk", func(one *installation, round int) error {
		return b.measure(ctx, one, 1, round, measured{onDisk(alternativeOne), b.opts.slice})
	})
}

func onDisk(s scenario) scenario { return s.titled(s.title + ", disk") }

// warm lets all servers work for a while. Those in Java compile their code meanwhile.
func (b *alternativesBench) warm(ctx context.Context, s *stage) error {
	for _, one := range s.all {
		fmt.Fprintf(b.logs, "%s: warm-up\n", one.name)
		if err := b.warmOne(ctx, one); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	return nil
}

func (b *alternativesBench) warmOne(ctx context.Context, s *installation) (err error) {
	c, stop, err := s.open(ctx, 1, workersAtOnce)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	_, err = s.bench.slice(ctx, entry{recipe: recipe{name: s.name}, contender: c}, alternativeDistinct, time.Duration(s.warm)*b.opts.slice, nil)
	return err
}

// idleHosts are connected, and have locked once, when the cost of idle ones is measured.
const idleHosts = 10

// idle measures the servers, and redlockd's daemons, while their clients do nothing.
func (b *alternativesBench) idle(ctx context.Context, s *stage) (err error) {
	for _, one := range s.all {
		c, stop, err := one.open(ctx, idleHosts, 1)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		defer stop() // the error of a daemon that had nothing to do is of no interest
		for i := range idleHosts {
			l, err := c.locker(i).lock(ctx, fmt.Sprint("idle", i), pairTTL)
			if err == nil {
				err = l.Unlock(ctx)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
		}
	}
	if err := pause(ctx, fleetSettle); err != nil {
		return err
	}
	before, err := usages(s.all)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := pause(ctx, max(leastIdle, 4*b.opts.slice)); err != nil {
		return err
	}
	after, err := usages(s.all)
	for i, one := range s.all {
		used := after[i].since(before[i])
		b.report.Idle[one.name] = idleUse{Servers: used.redis.Seconds() / time.Since(start).Seconds(), Daemons: used.daemon.Seconds() / time.Since(start).Seconds()}
	}
	return err
}

// usages returns the processor time of each so far.
func usages(all []*installation) ([]usage, error) {
	got := make([]usage, len(all))
	var errs []error
	for i, one := range all {
		var err error
		got[i], err = one.bench.fleet.usage()
		errs = append(errs, err)
	}
	return got, errors.Join(errs...)
}

// readers measures readers on two hosts, and a writer on each.
func (b *alternativesBench) readers(ctx context.Context, s *installation, round int) (err error) {
	name := fmt.Sprint("readers", round)
	length := sharedSlices * b.opts.slice
	var got readersSample
	switch {
	case s.hosts != nil:
		g, err := s.hosts.startHosts(ctx, build{fleetNow, s.hosts.env.binary}, 2)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.stop()) }()
		got, err = measureReaders(ctx, g.daemons, name, length)
		if err != nil {
			return err
		}
	case s.sharer != nil:
		c, stop, err := s.open(ctx, 2, workersAtOnce)
		if err != nil {
			return err
		}
		defer stop()
		r := &readersBench{name: name}
		for w := range workersAtOnce + 2 {
			one := s.sharer(c.(clientHosts)[w%2])
			if w < workersAtOnce {
				r.readers = append(r.readers, one)
			} else {
				r.writers = append(r.writers, one)
			}
		}
		if got, err = r.measure(ctx, length); err != nil {
			return err
		}
	default:
		return nil
	}
	b.report.addReaders(s.name, got)
	return nil
}
