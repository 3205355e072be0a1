package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// deathTTL is the lease time of the locks that a host dies with.
const deathTTL = 2 * time.Second

// death is what the other hosts had to bear when one died that held the lock.
type death struct {
	ttl   time.Duration
	delay time.Duration // from the kill -9 to the next grant
	gap   time.Duration // the longest between two grants to them
	after int           // grants to them after the kill

	failed  int // locks and unlocks of theirs
	failure error
	clashes int
}

// kill has all hosts contend, kills the daemon of the one whose worker has the
// lock after a while, and puts another one in its place afterwards.
func (b *hostsBench) kill(ctx context.Context, ttl time.Duration) error {
	fmt.Fprintf(b.logs, "%d hosts: one dies\n", hostCount)
	m := &mortal{daemons: b.fleet.hosts, ttl: ttl}
	m.victim.Store(nobody)
	b.fleet.hosts = nil // whose CPU time cannot be read to the end
	defer func() { b.fleet.hosts = append(b.fleet.hosts, m.alive()...) }()
	var err error
	if m.hosts, err = openHosts(ctx, m.daemons); err != nil {
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

// mortal is hosts of which one dies: once they are doomed, the one that has the
// lock next. Its workers do nothing more after that.
type mortal struct {
	hosts
	daemons []*daemon // of the hosts
	ttl     time.Duration
	doomed  atomic.Bool  // the next one to have the lock dies
	victim  atomic.Int32 // which one did

	mu     sync.Mutex // guards the rest
	killed time.Time  // the zero time: not yet
	grants []grant    // in order
}

// nobody is the victim before there is one.
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

// granted is called with each grant, while nobody else can have the lock.
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

// death tells what became of the others until end.
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

// mortalLocker is a worker's on one of the hosts.
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
	<-ctx.Done() // who is dead does nothing until the end of the slice
	return nil, ctx.Err()
}

// mortalLock is a lock that is given back, unless its host is dead.
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
