package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The ends of a holder.
const (
	processKilled = "process" // kill -9
	hostFails     = "host"    // its processes stop (SIGSTOP) and answer nothing, like a host without power
)

const (
	// waitFirst is how long a client waits before the holder ends.
	waitFirst = 500 * time.Millisecond
	// nextLimit is when the next client must have the lock.
	nextLimit = 6 * pairTTL
)

// killHolders measures how long a lock stays taken after its holder ended. All alternatives wait at
// the same time, because waiting costs nothing.
func (b *alternativesBench) killHolders(ctx context.Context, s *stage) error {
	for round := range b.opts.rounds {
		fmt.Fprintf(b.logs, "holders end: round %d of %d\n", round+1, b.opts.rounds)
		ends := []string{processKilled, hostFails}
		took := make([]time.Duration, len(ends)*len(s.all))
		err := atOnce(len(took), len(took), func(i int) (err error) {
			one, end := s.all[i/len(ends)], ends[i%len(ends)]
			if took[i], err = one.afterEnd(ctx, s.dir, end, fmt.Sprintf("%s-%s%d", one.id(), end, round)); err != nil {
				err = fmt.Errorf("%s, the holder's %s: %w", one.name, end, err)
			}
			return err
		})
		if err != nil {
			return err
		}
		for i, d := range took {
			b.report.addEnd(s.all[i/len(ends)].name, ends[i%len(ends)], d)
		}
	}
	return nil
}

// id returns the name as part of a file's name.
func (s *installation) id() string {
	return fmt.Sprint(slices.IndexFunc(alternatives, func(a alternative) bool { return a.name == s.name }))
}

// afterEnd returns the time from the end of the holder to the grant of a client on another host that
// already waited.
func (s *installation) afterEnd(ctx context.Context, dir, end, name string) (took time.Duration, err error) {
	theirs, ours := s.addresses, s.addresses
	var daemons []*daemon
	if s.hosts != nil {
		for _, host := range []string{"holder", "waiter"} {
			d, err := startDaemon(ctx, dir, s.hosts.env.binary, host+name, s.nodes)
			if err != nil {
				return 0, err
			}
			defer d.kill() // also if it is stopped
			daemons = append(daemons, d)
		}
		theirs, ours = []string{daemons[0].socket}, []string{daemons[1].socket}
	}
	holder, err := startHolder(dir, s.name, name, theirs)
	if err != nil {
		return 0, err
	}
	defer holder.kill()
	c, err := s.connect(ctx, ours)
	if err != nil {
		return 0, err
	}
	defer c.close()

	ctx, cancel := context.WithTimeout(ctx, nextLimit)
	defer cancel()
	granted := make(chan time.Time, 1)
	failed := make(chan error, 1)
	go func() { // ends with the context
		if _, err := c.locker(0).lock(ctx, name, pairTTL); err != nil {
			failed <- err
			return
		}
		granted <- time.Now()
	}()
	if err := pause(ctx, waitFirst); err != nil {
		return 0, err
	}
	start := time.Now() // a grant before this is one beside the holder
	if err := endHolder(end, holder, daemons); err != nil {
		return 0, err
	}
	select {
	case at := <-granted:
		if at.Before(start) {
			return 0, errHeldTwice
		}
		return at.Sub(start), nil
	case err := <-failed:
		return 0, err
	}
}

var errHeldTwice = errors.New("the lock was held twice")

func endHolder(end string, holder *child, daemons []*daemon) error {
	if end == processKilled {
		holder.kill()
		return nil
	}
	err := redlocktest.Pause(holder.cmd.Process)
	if len(daemons) > 0 {
		err = errors.Join(err, redlocktest.Pause(daemons[0].cmd.Process))
	}
	return err
}

const (
	serverHosts = 10              // with one waiter each, when a server is killed
	serverSlice = 6 * time.Second // a third of it before that
)

// serverEnd is what the clients notice of a killed server.
type serverEnd struct {
	Pause   float64 `json:"pause_ms"` // the longest without a grant; 0: it did not end
	Failed  int     `json:"failed"`
	Clashes int     `json:"clashes"`
}

// killServers kills a server of each alternative while clients of ten hosts want one lock.
func (b *alternativesBench) killServers(ctx context.Context, s *stage) error {
	for _, one := range s.all {
		fmt.Fprintf(b.logs, "a server of %s ends\n", one.name)
		if err := b.killServer(ctx, one); err != nil {
			return fmt.Errorf("%s, a server ends: %w", one.name, err)
		}
	}
	return nil
}

func (b *alternativesBench) killServer(ctx context.Context, s *installation) (err error) {
	c, stop, err := s.open(ctx, serverHosts, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	bench := &pairBench{opts: b.opts, fleet: &fleet{}, logs: b.logs} // the times of a killed process cannot be read
	e := entry{recipe: recipe{name: s.name}, contender: unsettled{c}}
	if _, err := bench.slice(ctx, e, fleetScenario(serverHosts), warmUp, nil); err != nil {
		return err
	}
	killed := make(chan error, 1)
	defer time.AfterFunc(serverSlice/3, func() { killed <- s.killWorst(ctx) }).Stop()
	got, err := bench.slice(ctx, e, fleetScenario(serverHosts).titled("a server is killed"), serverSlice, nil)
	if err != nil {
		return err
	}
	if err := <-killed; err != nil {
		return err
	}
	b.report.addServerEnd(s.name, got)
	return nil
}

// unsettled is a contender one of whose servers has ended.
type unsettled struct{ contender }

func (unsettled) settle(context.Context) error { return nil }

// longestPause returns the longest time without a grant to anybody from that time on, or 0 if that
// time had not ended at the end.
func (p pairs) longestPause(from, end time.Duration) time.Duration {
	longest, before := time.Duration(0), from
	for _, at := range slices.Sorted(slices.Values(slices.Concat(p.grants...))) {
		if at > from {
			longest, before = max(longest, at-before), at
		}
	}
	if end-before >= longest {
		return 0
	}
	return longest
}
