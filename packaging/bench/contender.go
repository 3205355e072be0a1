package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// contender is one way of taking Redlock locks, connected to the nodes.
type contender interface {
	// locker returns the locker of worker number w.
	locker(w int) locker
	// settle waits until no call is in progress any more, and every node that was hung is used
	// again.
	settle(ctx context.Context) error
	close()
}

// locker takes locks for one worker.
type locker interface {
	// lock waits until name is granted for ttl, or fails. It ends soon after ctx, unless the library
	// ignores ctx.
	lock(ctx context.Context, name string, ttl time.Duration) (held, error)
}

// held is a granted lock.
type held interface {
	Unlock(ctx context.Context) error
}

// extender is a lock that its user has to extend.
type extender interface {
	held
	extend(ctx context.Context) error
	until() time.Time
}

// The contenders, as the tables name them. The first one is the baseline.
const (
	redsyncGoRedis  = "redsync, go-redis"
	redsyncRueidis  = "redsync, rueidis"
	rueidisFanOut   = "rueidis fan-out"
	redlockdTags    = "redlockd, one conn"
	redlockdConns   = "redlockd, conn each"
	beforeTags      = "before, one conn"
	beforeConns     = "before, conn each"
	baseline        = redsyncGoRedis
	workersAtOnce   = 64
	retryAtLeast    = 50 * time.Millisecond // the defaults of redsync; the fan-out uses them too
	retryLessThan   = 250 * time.Millisecond
	connectionsEach = workersAtOnce + 8
)

// beforeOf has the contender of -before that does the same.
var beforeOf = map[string]string{redlockdTags: beforeTags, redlockdConns: beforeConns}

// recipe describes how to set a contender up.
type recipe struct {
	name string
	peer bool // not redlockd: its user must extend its locks
	many bool // with one worker, the same as another contender
	old  bool // needs the binary of -before
	open func(ctx context.Context, f *fleet) (contender, error)
}

var recipes = []recipe{
	{name: redsyncGoRedis, peer: true, open: openRedsyncGoRedis},
	{name: redsyncRueidis, peer: true, open: openRedsyncRueidis},
	{name: rueidisFanOut, peer: true, open: openFanOut},
	{name: redlockdTags, open: openRedlockdTags},
	{name: redlockdConns, many: true, open: openRedlockdConns},
	{name: beforeTags, old: true, open: openBeforeTags},
	{name: beforeConns, many: true, old: true, open: openBeforeConns},
}

// fleet is everything that a contender may need.
type fleet struct {
	nodes  []*node
	others []*child // servers of another kind
	daemon *daemon
	before *daemon   // a daemon of the binary of -before, or nil
	hosts  []*daemon // several daemons that stand for several hosts
	delays *network  // between the nodes and everything else, or nil
}

// start starts the daemon, and one of the binary before unless that is empty.
func (f *fleet) start(ctx context.Context, env *environment, before string) (err error) {
	if f.daemon, err = env.startDaemon(ctx, "pairs"); err != nil || before == "" {
		return err
	}
	if f.before, err = startDaemon(ctx, env.dir, before, "before", env.nodes); err != nil {
		f.daemon.kill()
	}
	return err
}

// daemons returns the running daemons.
func (f *fleet) daemons() []*daemon {
	all := append([]*daemon{f.daemon, f.before}, f.hosts...)
	return slices.DeleteFunc(all, func(d *daemon) bool { return d == nil })
}

// stop ends the daemons.
func (f *fleet) stop() error {
	var errs []error
	for _, d := range f.daemons() {
		errs = append(errs, d.stop())
	}
	return errors.Join(errs...)
}

// usage returns the CPU time that all processes have used so far.
func (f *fleet) usage() (usage, error) {
	var u usage
	var err error
	if u.bench, err = ownCPU(); err != nil {
		return u, err
	}
	for _, d := range f.daemons() {
		used, err := processCPU(d.pid())
		if err != nil {
			return u, err
		}
		u.daemon += used
	}
	if f.delays != nil {
		if u.delays, err = processCPU(f.delays.pid()); err != nil {
			return u, err
		}
	}
	if u.redis, err = usedBy(f.nodes); err != nil {
		return u, err
	}
	for _, s := range f.others {
		used, err := processCPU(s.pid())
		if err != nil {
			return u, err
		}
		u.redis += used
	}
	return u, nil
}

// entry is a contender with its name.
type entry struct {
	recipe
	contender
}

// openAll sets up all contenders for which want is true.
func openAll(ctx context.Context, f *fleet, want func(recipe) bool) ([]entry, error) {
	var opened []entry
	for _, r := range recipes {
		if !want(r) {
			continue
		}
		c, err := r.open(ctx, f)
		if err != nil {
			closeAll(opened)
			return nil, err
		}
		opened = append(opened, entry{recipe: r, contender: c})
	}
	return opened, nil
}

func closeAll(opened []entry) {
	for _, e := range slices.Backward(opened) {
		e.close()
	}
}

// retryDelay returns the pause of a contender without a queue between two attempts.
func retryDelay() time.Duration {
	return retryAtLeast + rand.N(retryLessThan-retryAtLeast)
}
