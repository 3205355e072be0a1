package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// fleetPart has many hosts that want one lock: each host is a daemon of its own, with one client.
const fleetPart = "fleet"

// The words of -rows for part fleet.
const (
	fleetGrants    = "grants"
	fleetLoads     = "load"
	fleetHandOvers = "hand-over"
	fleetFaults    = "faults"
	fleetForeign   = "foreign"
	fleetIdle      = "idle"
)

var fleetRowNames = []string{fleetGrants, fleetLoads, fleetHandOvers, fleetFaults, fleetForeign, fleetIdle}

// The contenders of part fleet.
const (
	fleetNow     = "redlockd"
	fleetBefore  = "before"
	fleetRedsync = "redsync"
)

// fleetHosts are the numbers of hosts unless -hosts gives others.
var fleetHosts = []int{1, 2, 5, 10, 20, 30, 50}

const (
	mostHosts     = 200 // of -hosts
	startsAtOnce  = 4   // daemons
	fleetSettle   = 2 * time.Second
	fleetRTT      = 2 * time.Millisecond // of the network between hosts whose hand-overs are measured
	handOverHosts = 10
	idleShare     = 6 // an idle window before a slice is this much shorter than the slice
	leastIdle     = time.Second
)

// build is a redlockd binary that is measured.
type build struct{ name, binary string }

// fleetBench measures fleets of one build after the other.
type fleetBench struct {
	*pairBench
	env     *environment
	builds  []build
	many    int      // hosts of the idle fleet
	started int      // groups of hosts so far
	config  []string // more lines for the daemons' configs
	report  *fleetReport
	rates   map[string]*series // see fleetKey
}

// measureFleet runs part fleet, only if -only names it: it takes long.
func measureFleet(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) error {
	if !slices.Contains(o.only, fleetPart) {
		return nil
	}
	b := &fleetBench{
		pairBench: &pairBench{opts: o, fleet: &fleet{nodes: env.nodes}, logs: logs}, env: env,
		builds: []build{{fleetNow, env.binary}}, many: manyIdle, report: &fleetReport{}, rates: map[string]*series{},
	}
	if o.before != "" {
		b.builds = append(b.builds, build{fleetBefore, o.before})
	}
	rep.Fleet = b.report
	for _, row := range []struct {
		name    string
		measure func(context.Context) error
	}{{fleetGrants, b.grants}, {fleetLoads, b.loads}, {fleetHandOvers, b.handOvers}, {fleetFaults, b.faults}, {fleetForeign, b.foreigners}, {fleetIdle, b.idle}} {
		if !o.wantsRow(row.name) {
			continue
		}
		if err := row.measure(ctx); err != nil {
			return fmt.Errorf("fleet, %s: %w", row.name, err)
		}
	}
	return nil
}

// hostGroup is the daemons of one build that stand for as many hosts.
type hostGroup struct {
	hosts
	daemons []*daemon
}

// startHosts starts n hosts with one connection each, and waits until they are idle.
func (b *fleetBench) startHosts(ctx context.Context, by build, n int) (*hostGroup, error) {
	return b.startHostsOf(ctx, by, n, 1)
}

// startHostsOf starts n hosts with so many connections each.
func (b *fleetBench) startHostsOf(ctx context.Context, by build, n, conns int) (*hostGroup, error) {
	g := &hostGroup{daemons: make([]*daemon, n)}
	b.started++
	err := atOnce(startsAtOnce, n, func(i int) (err error) {
		g.daemons[i], err = startDaemon(ctx, b.env.dir, by.binary, fmt.Sprintf("%s%d-%d", by.name, b.started, i+1), b.env.nodes, b.config...)
		return err
	})
	g.daemons = slices.DeleteFunc(g.daemons, func(d *daemon) bool { return d == nil })
	if err == nil {
		g.hosts, err = openHosts(ctx, g.daemons, conns)
	}
	if err == nil {
		err = pause(ctx, fleetSettle)
	}
	if err != nil {
		return nil, errors.Join(err, g.stop())
	}
	return g, nil
}

func (g *hostGroup) stop() error {
	for _, d := range g.daemons {
		d.resume()
	}
	g.hosts.close()
	return atOnce(startsAtOnce, len(g.daemons), func(i int) error { return g.daemons[i].stop() })
}

// clientHosts is the clients of as many hosts, each with connections of its own. Workers are
// assigned to hosts in turn.
type clientHosts []contender

func openRedsyncHosts(ctx context.Context, f *fleet, n int) (clientHosts, error) {
	return openClientHosts(n, func() (contender, error) { return openRedsyncGoRedis(ctx, f) })
}

func openClientHosts(n int, open func() (contender, error)) (clientHosts, error) {
	var all clientHosts
	for range n {
		c, err := open()
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (h clientHosts) locker(w int) locker          { return h[w%len(h)].locker(w / len(h)) }
func (h clientHosts) settle(context.Context) error { return nil }

func (h clientHosts) close() {
	for _, c := range h {
		c.close()
	}
}

// fleetScenario has one waiter on each of n hosts.
func fleetScenario(n int) scenario {
	return scenario{part: fleetPart, title: fmt.Sprintf("%d hosts", n), workers: n, shared: true, hold: contendedHold}
}

func fleetKey(contender string, hosts int) string { return fmt.Sprint(contender, "\x00", hosts) }

// grants gives each contender a slice for each number of hosts, in alternation.
func (b *fleetBench) grants(ctx context.Context) error {
	contenders := []string{fleetRedsync}
	for _, by := range b.builds {
		contenders = append(contenders, by.name)
	}
	for round := range b.opts.rounds {
		for _, n := range b.opts.hosts {
			fmt.Fprintf(b.logs, "fleet of %d: round %d of %d\n", n, round+1, b.opts.rounds)
			for i := range contenders {
				name := contenders[(i+round)%len(contenders)]
				got, err := b.grantSlice(ctx, name, n)
				if err != nil {
					return fmt.Errorf("%s, %d hosts: %w", name, n, err)
				}
				b.add(b.rates, name, n, round, got)
			}
		}
	}
	b.report.addRates(b, contenders)
	return nil
}

func (b *fleetBench) add(to map[string]*series, contender string, n, round int, got sample) {
	key := fleetKey(contender, n)
	if to[key] == nil {
		to[key] = newSeries(fleetScenario(n), contender)
	}
	to[key].rounds[round] = got
}

// grantSlice starts n hosts, measures what they cost the nodes while they are idle, and then a
// slice. It attributes to the grants what the nodes did beyond that.
func (b *fleetBench) grantSlice(ctx context.Context, name string, n int) (got sample, err error) {
	var c contender
	if name == fleetRedsync {
		if c, err = openRedsyncHosts(ctx, b.fleet, n); err != nil {
			return got, err
		}
		defer c.close()
	} else {
		g, err := b.startHosts(ctx, b.build(name), n)
		if err != nil {
			return got, err
		}
		defer func() { err = errors.Join(err, g.stop()) }()
		c = g
	}
	length := contendedSlices * b.opts.slice
	idle, err := b.workOf(func() error { return pause(ctx, max(leastIdle, length/idleShare)) })
	if err != nil {
		return got, err
	}
	e := entry{recipe: recipe{name: name}, contender: c}
	if _, err := b.slice(ctx, e, fleetScenario(n), warmUp, nil); err != nil {
		return got, err
	}
	work, err := b.workOf(func() (err error) {
		got, err = b.slice(ctx, e, fleetScenario(n), length, nil)
		return err
	})
	got.work = work.beyond(idle)
	if name != fleetRedsync {
		got.work.sets = 0 // those of its scripts
	}
	return got, err
}

func (b *fleetBench) build(name string) build {
	return b.builds[slices.IndexFunc(b.builds, func(by build) bool { return by.name == name })]
}

// handOvers measures hand-overs between hosts over a network.
func (b *fleetBench) handOvers(ctx context.Context) error {
	delays, err := startNetwork(ctx, b.env.dir, fleetRTT, b.env.nodes)
	if err != nil {
		return err
	}
	defer delays.kill()
	defer directly(b.env.nodes)
	b.report.Network = &delays.networkFigures
	all := map[string]*series{}
	for round := range b.opts.rounds {
		fmt.Fprintf(b.logs, "fleet of %d, hand-overs: round %d of %d\n", handOverHosts, round+1, b.opts.rounds)
		for i := range b.builds {
			by := b.builds[(i+round)%len(b.builds)]
			got, err := b.handOverSlice(ctx, by)
			if err != nil {
				return fmt.Errorf("%s: %w", by.name, err)
			}
			b.add(all, by.name, handOverHosts, round, got)
		}
	}
	for _, by := range b.builds {
		b.report.addHandOver(all[fleetKey(by.name, handOverHosts)])
	}
	return nil
}

func (b *fleetBench) handOverSlice(ctx context.Context, by build) (got sample, err error) {
	g, err := b.startHosts(ctx, by, handOverHosts)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	e := entry{recipe: recipe{name: by.name}, contender: g}
	if _, err := b.slice(ctx, e, fleetScenario(handOverHosts), warmUp, nil); err != nil {
		return got, err
	}
	return b.slice(ctx, e, fleetScenario(handOverHosts), contendedSlices*b.opts.slice, nil)
}

// directly lets the contenders use the nodes without a network.
func directly(nodes []*node) {
	for _, n := range nodes {
		n.via = ""
	}
}

// The faults of the host that waits first.
const (
	faultKilled  = "killed (kill -9)"
	faultStopped = "stopped (SIGSTOP)"
	faultUnheard = "hears nothing"
)

const (
	entryTime  = 300 * time.Millisecond // after this time a host waits at the nodes
	faultLimit = 20 * time.Second       // the next host has the lock by then
)

// afterFault is what happens when the lock is released.
type afterFault struct {
	delay time.Duration // from calling unlock to the next grant
	first bool          // the host with the fault got it
}

// faults measures how long a fault of the first waiting host keeps the lock from the next one. Each
// time three hosts are started: one holds, the first waits, and the second waits.
func (b *fleetBench) faults(ctx context.Context) error {
	for _, fault := range []string{faultKilled, faultStopped, faultUnheard} {
		all := make([][]afterFault, len(b.builds))
		for round := range b.opts.rounds {
			fmt.Fprintf(b.logs, "fleet, the first waiting host %s: round %d of %d\n", fault, round+1, b.opts.rounds)
			for i, by := range b.builds {
				got, err := b.fault(ctx, by, fault)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", by.name, fault, err)
				}
				all[i] = append(all[i], got)
			}
		}
		for i, by := range b.builds {
			b.report.addFault(by.name, fault, all[i])
		}
	}
	return nil
}

func (b *fleetBench) fault(ctx context.Context, by build, fault string) (got afterFault, err error) {
	var delays *network
	if fault == faultUnheard {
		if delays, err = launchNetwork(b.env.dir, 0, b.env.nodes); err != nil {
			return got, err
		}
		defer delays.kill()
	}
	first, err := b.startHosts(ctx, by, 1)
	directly(b.env.nodes)
	if err != nil {
		return got, err
	}
	defer first.stop() // its error is that of a killed daemon
	others, err := b.startHosts(ctx, by, 2)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, others.stop()) }()
	defer context.AfterFunc(ctx, first.daemons[0].resume)()

	b.slices++
	name := fmt.Sprint("fault", b.slices)
	lease, err := others.locker(0).lock(ctx, name, heldTTL)
	if err != nil {
		return got, err
	}
	waiting, cancel := context.WithTimeout(ctx, faultLimit)
	defer cancel()
	type grant struct {
		at    time.Time
		first bool
	}
	granted := make(chan grant, 2)
	wait := func(l locker, first bool) { // ends with the context
		if _, err := l.lock(waiting, name, heldTTL); err == nil {
			granted <- grant{time.Now(), first}
		}
	}
	go wait(first.locker(0), true)
	if err := pause(ctx, entryTime); err != nil {
		return got, err
	}
	go wait(others.locker(1), false)
	if err := pause(ctx, entryTime); err != nil {
		return got, err
	}
	if err := inject(fault, first.daemons[0], delays); err != nil {
		return got, err
	}
	start := time.Now()
	if err := lease.Unlock(ctx); err != nil {
		return got, err
	}
	select {
	case next := <-granted:
		got = afterFault{delay: next.at.Sub(start), first: next.first}
	case <-waiting.Done():
		return got, fmt.Errorf("nobody had the lock within %v", faultLimit)
	}
	if delays != nil {
		err = poll(5*time.Second, delays.dropped)
	}
	return got, err
}

// inject makes the fault happen. It returns when it has.
func inject(fault string, d *daemon, delays *network) error {
	switch fault {
	case faultKilled:
		d.kill()
		return nil
	case faultStopped:
		return redlocktest.Pause(d.cmd.Process)
	}
	if err := delays.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return err
	}
	return poll(5*time.Second, func() error { return delays.said(deafMark) })
}

// dropped returns nil if the network has dropped a message to the listener, and said so.
func (n *network) dropped() error { return n.said(droppedMark) }

func (n *network) said(mark string) error {
	text, err := os.ReadFile(n.log)
	if err == nil && !strings.Contains(string(text), mark) {
		err = fmt.Errorf("the network has not said %q: is the daemon's listener not %s any more?", strings.TrimSpace(mark), listenerName)
	}
	return err
}

// resume continues a daemon that was stopped.
func (d *daemon) resume() { _ = d.cmd.Process.Signal(syscall.SIGCONT) } // fails only if it has ended
