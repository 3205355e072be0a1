package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// nodeWork is what one node does in a while, as the mean of all nodes.
type nodeWork struct {
	seconds float64
	scripts float64 // calls of scripts
	sets    float64 // SET, also inside of scripts
	cpu     float64 // seconds
}

// workOf returns what a node does while do runs.
func (b *fleetBench) workOf(do func() error) (nodeWork, error) {
	before, err := workOf(b.env.nodes)
	if err != nil {
		return before, err
	}
	if err := do(); err != nil {
		return before, err
	}
	after, err := workOf(b.env.nodes)
	return after.since(before), err
}

// workOf returns what the nodes have done since their start. Its seconds are those of this
// process's clock.
func workOf(nodes []*node) (sum nodeWork, err error) {
	for _, n := range nodes {
		cpu, err := threadsCPU(n.PID())
		if err != nil {
			return sum, err
		}
		stats, err := n.Do("INFO", "commandstats")
		n.looks++
		if err != nil {
			return sum, err
		}
		sum.cpu += cpu.Seconds() / float64(len(nodes))
		sum.scripts += float64(commandCalls(stats.Str, "evalsha")+commandCalls(stats.Str, "eval")) / float64(len(nodes))
		sum.sets += float64(commandCalls(stats.Str, "set")) / float64(len(nodes))
	}
	sum.seconds = time.Since(processStart).Seconds()
	return sum, nil
}

var processStart = time.Now()

// commandCalls returns how often a command was called, from INFO commandstats.
func commandCalls(stats, command string) int64 {
	_, rest, _ := strings.Cut(stats, "\r\ncmdstat_"+command+":calls=")
	digits, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.ParseInt(digits, 10, 64) // 0 if it was never called
	return n
}

func (w nodeWork) since(start nodeWork) nodeWork {
	return nodeWork{seconds: w.seconds - start.seconds, scripts: w.scripts - start.scripts, sets: w.sets - start.sets, cpu: w.cpu - start.cpu}
}

// beyond returns w without what an idle fleet does in the same time.
func (w nodeWork) beyond(idle nodeWork) nodeWork {
	times := w.seconds / idle.seconds
	return nodeWork{seconds: w.seconds, scripts: w.scripts - times*idle.scripts, sets: w.sets - times*idle.sets, cpu: w.cpu - times*idle.cpu}
}

// loadSlices is how many slices long a window of a fleet without grants is.
const loadSlices = 3

// load is what a fleet without grants costs.
type load struct {
	Scripts  float64 `json:"scripts_per_second"`  // calls of scripts on a node
	Commands float64 `json:"commands_per_second"` // that a node got, without those that scripts call
	CPU      float64 `json:"node_cores"`          // of a node
	Daemon   float64 `json:"daemon_cores"`        // of a host's daemon
}

// loads measures the largest fleet while it is idle, while one more host holds a lock, and while
// all others wait for that. It compares that with nodes without any host.
func (b *fleetBench) loads(ctx context.Context) error {
	n := b.opts.hosts[len(b.opts.hosts)-1]
	var alone []load
	all := make([][]threeLoads, len(b.builds))
	for round := range b.opts.rounds {
		fmt.Fprintf(b.logs, "fleet of %d, idle and waiting: round %d of %d\n", n, round+1, b.opts.rounds)
		bare, err := b.load(ctx, nil)
		if err != nil {
			return err
		}
		alone = append(alone, bare)
		for i := range b.builds {
			i = (i + round) % len(b.builds)
			got, err := b.threeLoads(ctx, b.builds[i], n)
			if err != nil {
				return fmt.Errorf("%s: %w", b.builds[i].name, err)
			}
			all[i] = append(all[i], got)
		}
	}
	for i, by := range b.builds {
		b.report.addLoads(by.name, n, alone, all[i])
	}
	return nil
}

// threeLoads are those of the same hosts.
type threeLoads struct{ idle, held, waiting load }

func (b *fleetBench) threeLoads(ctx context.Context, by build, n int) (got threeLoads, err error) {
	g, err := b.startHosts(ctx, by, n+1)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	if got.idle, err = b.load(ctx, g.daemons); err != nil {
		return got, err
	}
	const name = "fleet-held"
	lease, err := g.locker(n).lock(ctx, name, heldTTL)
	if err != nil {
		return got, err
	}
	if got.held, err = b.load(ctx, g.daemons); err != nil {
		return got, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, n)
	for i := range n { // each ends with the context
		go func() {
			_, err := g.locker(i).lock(waiting, name, heldTTL)
			ended <- err
		}()
	}
	if err := pause(ctx, fleetSettle); err != nil {
		return got, err
	}
	if got.waiting, err = b.load(ctx, g.daemons); err != nil {
		return got, err
	}
	select {
	case err := <-ended:
		return got, fmt.Errorf("a host that should wait does not: %w", err)
	default:
	}
	cancel()
	for range n {
		<-ended
	}
	return got, lease.Unlock(ctx)
}

// load measures a window. MONITOR slows a node down, so it counts on one node, and the rest is
// measured on the others.
func (b *fleetBench) load(ctx context.Context, daemons []*daemon) (load, error) {
	last := nodeCount - 1
	watch, err := watchCommands(ctx, b.env.nodes[last])
	if err != nil {
		return load{}, err
	}
	measure := func() (w nodeWork, daemon time.Duration, err error) {
		for _, d := range daemons {
			used, err := threadsCPU(d.pid())
			if err != nil {
				return w, 0, err
			}
			daemon += used
		}
		w, err = workOf(b.env.nodes[:last])
		return w, daemon, err
	}
	before, daemonBefore, err1 := measure()
	err2 := pause(ctx, loadSlices*b.opts.slice)
	after, daemonAfter, err3 := measure()
	commands, err4 := watch.stop()
	w := after.since(before)
	return load{
		Scripts:  w.scripts / w.seconds,
		Commands: float64(commands) / w.seconds,
		CPU:      w.cpu / w.seconds,
		Daemon:   (daemonAfter - daemonBefore).Seconds() / w.seconds / float64(max(1, len(daemons))),
	}, errors.Join(err1, err2, err3, err4)
}
