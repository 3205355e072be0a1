package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// manyIdle is the number of hosts whose cost on a node is measured. They are the connections of so
// many daemons, with all that these send to the node, in this process: as processes they would not
// fit on one machine.
const manyIdle = 1000

// idleStart is how long they may take to be ready.
const idleStart = time.Minute

// idleRow is what idle hosts cost a node.
type idleRow struct {
	Hosts    int     `json:"hosts"`
	Bare     float64 `json:"bare_node_cores"`
	CPU      float64 `json:"node_cores"`
	Commands float64 `json:"commands_per_second"`
}

// idle measures one node that many idle hosts look at. It is the only node of each of them.
func (b *fleetBench) idle(ctx context.Context) (err error) {
	s, err := redlocktest.LaunchRedis(filepath.Join(b.env.dir, "idle", "a"), redlocktest.TCP())
	if err != nil {
		return err
	}
	defer s.Kill()
	if err := redlocktest.Admit(ctx, []redlock.Node{s.Node()}, redlock.DefaultPrefix); err != nil {
		return err
	}
	row := idleRow{Hosts: b.many}
	fmt.Fprintf(b.logs, "fleet of %d idle hosts, one node\n", row.Hosts)
	length := loadSlices * b.opts.slice
	if row.Bare, _, err = watchNode(ctx, s, length); err != nil {
		return err
	}
	hosts := make([]*redlock.Quorum, row.Hosts)
	defer func() {
		err = errors.Join(err, atOnce(startsAtOnce, len(hosts), func(i int) error {
			if hosts[i] != nil {
				hosts[i].Close()
			}
			return nil
		}))
	}()
	ready := make(chan struct{}, row.Hosts)
	err = atOnce(startsAtOnce, len(hosts), func(i int) (err error) {
		hosts[i], err = redlock.New(redlock.Options{
			Nodes: []redlock.Node{s.Node()}, Prefix: redlock.DefaultPrefix,
			Observe: func(n redlock.NodeStatus) {
				if n.State == redlock.NodeReady {
					select {
					case ready <- struct{}{}:
					default: // it was ready before
					}
				}
			},
		})
		return err
	})
	if err != nil {
		return err
	}
	late := time.After(idleStart)
	for range hosts {
		select {
		case <-ready:
		case <-late:
			return fmt.Errorf("not all of %d hosts were ready within %v", row.Hosts, idleStart)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := pause(ctx, fleetSettle); err != nil {
		return err
	}
	if row.CPU, row.Commands, err = watchNode(ctx, s, length); err != nil {
		return err
	}
	b.report.Idle = &row
	return nil
}

// watchNode returns which share of a processor a node uses, and how many commands it gets a second,
// without those of its scripts.
func watchNode(ctx context.Context, s *redlocktest.Server, length time.Duration) (cores, commands float64, err error) {
	measure := func() (cpu, calls float64) {
		if err == nil {
			cpu, err = s.CPUSeconds()
		}
		if err == nil {
			var stats redlock.Reply
			stats, err = s.Do("INFO", "stats")
			calls = float64(infoNumber(stats.Str, "total_commands_processed"))
		}
		return cpu, calls
	}
	start := time.Now()
	cpu, calls := measure()
	if err == nil {
		err = pause(ctx, length)
	}
	cpuThen, callsThen := measure()
	seconds := time.Since(start).Seconds()
	return (cpuThen - cpu) / seconds, (callsThen - calls) / seconds, err
}
