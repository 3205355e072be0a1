package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// heldSample has the measurements of held leases.
type heldSample struct {
	contender string
	hung      bool
	leases    int
	lasted    time.Duration
	due       int             // extensions: one for each lease every ttl/3
	latencies []time.Duration // of the extensions that succeeded, sorted; none if the daemon makes them
	failed    int             // failed unlocks at the end
	failure   error
	perLease  int64 // bytes of the daemon's memory
	losses
	usage
	counters
}

// heldBench holds leases of each contender in turn.
type heldBench struct {
	opts options
	env  *environment
	logs io.Writer
}

// measure returns two samples for each contender: without and with a hung node.
func (b *heldBench) measure(ctx context.Context) ([]heldSample, error) {
	var all []heldSample
	for _, r := range recipes {
		if r.many || r.old {
			continue // the kind of connection makes no difference for held leases
		}
		got, err := b.contender(ctx, r)
		if err != nil {
			return all, fmt.Errorf("%s, held leases: %w", r.name, err)
		}
		all = append(all, got...)
	}
	return all, nil
}

// contender measures one contender; redlockd gets a daemon of its own. The peers hold a share of
// the leases, for the time in which each is extended once.
func (b *heldBench) contender(ctx context.Context, r recipe) (_ []heldSample, err error) {
	f := &fleet{nodes: b.env.nodes}
	h := &holding{recipe: r, fleet: f, leases: b.opts.leases, well: b.opts.hold, hung: b.opts.hold / 2}
	if r.peer {
		h.leases = max(1, int(float64(b.opts.leases)*b.opts.share))
		h.well, h.hung = heldTTL/3, heldTTL/3
	} else {
		if f.daemon, err = b.env.startDaemon(ctx, "held"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.daemon.stop()) }()
	}
	if !b.opts.hung {
		h.hung = 0
	}
	fmt.Fprintf(b.logs, "%d leases held, %s: %v, and %v with a node hung\n", h.leases, r.name, h.well, h.hung)
	return h.run(ctx)
}

// holding is a number of leases of one contender.
type holding struct {
	recipe
	fleet      *fleet
	leases     int
	well, hung time.Duration // how long to measure
	memory     int64         // memory of the daemon before the first lease

	stats extensions
	mark  string // part of the name of every lock
	taken []possession
	known []bool // by number: the lease is known to be lost

	keepers     sync.WaitGroup
	stopKeepers context.CancelFunc
}

// run takes the leases, measures while they are held, and releases them.
func (h *holding) run(ctx context.Context) (samples []heldSample, err error) {
	c, err := h.open(ctx, h.fleet)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if h.memory, err = h.daemonMemory(ctx); err != nil {
		return nil, err
	}
	if err := h.takeAll(ctx, c); err != nil {
		return nil, err
	}
	h.keep(ctx)
	defer h.endKeepers()
	for _, hung := range []*node{nil, h.fleet.nodes[nodeCount-1]} {
		sample, err := h.watch(ctx, hung)
		if err != nil {
			return samples, err
		}
		if sample.lasted > 0 {
			samples = append(samples, sample)
		}
	}
	last := &samples[len(samples)-1]
	last.failed, last.failure = h.giveBack(ctx)
	return samples, c.settle(ctx)
}

// inParallel calls do for each of 0..n-1 from as many workers as the pairs have; see atOnce.
func inParallel(n int, do func(i int) error) error { return atOnce(workersAtOnce, n, do) }

// atOnce calls do for each of 0..n-1 from that many workers. After an error it starts no more
// calls, and returns the first error.
func atOnce(workers, n int, do func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, workers)
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					errs <- err
					next.Store(int64(n))
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// takeAll takes the locks. Their names are distinct and end in their numbers.
func (h *holding) takeAll(ctx context.Context, c contender) error {
	h.mark = "held" + strconv.FormatInt(time.Now().UnixNano(), 36) + ":"
	h.taken, h.known = make([]possession, h.leases), make([]bool, h.leases)
	return inParallel(h.leases, func(i int) error {
		l, err := c.locker(i%workersAtOnce).lock(ctx, h.mark+strconv.Itoa(i), heldTTL)
		if err != nil {
			return fmt.Errorf("lock number %d: %w", i+1, err)
		}
		if e, ok := l.(extender); ok {
			l = newKeeper(e)
		}
		h.taken[i] = l.(possession) // every lock is a possession or an extender
		return nil
	})
}

// keep starts a keeper for each lease that needs one.
func (h *holding) keep(ctx context.Context) {
	ctx, h.stopKeepers = context.WithCancel(ctx)
	for _, p := range h.taken {
		if k, ok := p.(*keeper); ok {
			h.keepers.Go(func() { k.run(ctx, &h.stats) })
		}
	}
}

// endKeepers stops all extensions and waits for their end; a second call does nothing.
func (h *holding) endKeepers() {
	h.stopKeepers()
	h.keepers.Wait()
}

// watch holds the leases for a while, with hung stopped if it is not nil, and counts costs and
// losses.
func (h *holding) watch(ctx context.Context, hung *node) (sample heldSample, err error) {
	sample = heldSample{contender: h.name, hung: hung != nil, leases: h.leases, lasted: h.well}
	if hung != nil {
		sample.lasted = h.hung
	}
	if sample.lasted == 0 {
		return sample, nil
	}
	before, err := countersOf(h.fleet.nodes)
	if err != nil {
		return sample, err
	}
	if hung != nil {
		if err := hung.Stop(); err != nil {
			return sample, err
		}
		defer hung.resume()
	}
	if err := h.count(ctx, &sample, hung); err != nil {
		return sample, err
	}
	if hung != nil {
		if err := hung.wake(); err != nil {
			return sample, err
		}
	}
	after, err := countersOf(h.fleet.nodes)
	sample.counters = after.since(before)
	return sample, err
}

// count fills in the counts for the duration of the sample.
func (h *holding) count(ctx context.Context, sample *heldSample, hung *node) error {
	start, err := h.fleet.usage()
	if err != nil {
		return err
	}
	h.stats.take() // drop earlier values
	memory, err := h.mostMemory(ctx, sample.lasted)
	if err != nil {
		return err
	}
	end, err := h.fleet.usage()
	if err != nil {
		return err
	}
	sample.usage = end.since(start)
	sample.latencies = h.stats.take()
	sample.due = int(float64(h.leases) * sample.lasted.Seconds() / (heldTTL / 3).Seconds())
	if !h.peer {
		sample.perLease = (memory - h.memory) / int64(h.leases)
	}
	sample.losses, err = h.losses(hung)
	return err
}

// giveBack ends the keepers and releases all leases that are not lost. It returns how many releases
// failed, and one of the errors.
func (h *holding) giveBack(ctx context.Context) (failed int, failure error) {
	h.endKeepers()
	errs := make([]error, len(h.taken))
	inParallel(len(h.taken), func(i int) error {
		if h.taken[i].over() == nil {
			errs[i] = h.taken[i].Unlock(ctx)
		}
		return nil
	})
	for _, err := range errs {
		if err != nil {
			failed, failure = failed+1, err
		}
	}
	return failed, failure
}

// mostMemory returns the largest resident memory of the daemon within that time.
func (h *holding) mostMemory(ctx context.Context, lasts time.Duration) (most int64, err error) {
	const apart = 100 * time.Millisecond
	for end := time.Now().Add(lasts); ; {
		left := time.Until(end)
		if left <= 0 {
			return most, nil
		}
		if err := pause(ctx, min(left, apart)); err != nil {
			return 0, err
		}
		if h.fleet.daemon != nil {
			now, err := residentBytes(h.fleet.daemon.pid())
			if err != nil {
				return 0, err
			}
			most = max(most, now)
		}
	}
}

// daemonMemory returns the resident memory of the daemon after settleTime, or 0 if there is no
// daemon.
func (h *holding) daemonMemory(ctx context.Context) (int64, error) {
	if h.fleet.daemon == nil {
		return 0, nil
	}
	if err := pause(ctx, settleTime); err != nil {
		return 0, err
	}
	return residentBytes(h.fleet.daemon.pid())
}

// keeper extends one lease of a library that leaves this to its user.
type keeper struct {
	extender
	deadline atomic.Int64 // Unix ns; other goroutines read it
}

func newKeeper(e extender) *keeper {
	k := &keeper{extender: e}
	k.deadline.Store(e.until().UnixNano())
	return k
}

var errExpired = errors.New("it could not be extended in time")

func (k *keeper) over() error {
	if time.Now().UnixNano() > k.deadline.Load() {
		return errExpired
	}
	return nil
}

// run extends the lease every ttl/3 until ctx ends or the lease is lost. The first extension comes
// earlier by a random time, so that many keepers spread out.
func (k *keeper) run(ctx context.Context, stats *extensions) {
	const every = heldTTL / 3
	for next := rand.N(every); pause(ctx, next) == nil && k.over() == nil; {
		start := time.Now()
		if k.extend(ctx) != nil {
			next = retryDelay()
			continue
		}
		k.deadline.Store(k.until().UnixNano())
		stats.add(time.Since(start))
		next = every
	}
}

// extensions collects the latencies of extensions.
type extensions struct {
	mu        sync.Mutex // guards latencies
	latencies []time.Duration
}

func (e *extensions) add(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.latencies = append(e.latencies, d)
}

// take returns the sorted values since its previous call.
func (e *extensions) take() []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := e.latencies
	e.latencies = nil
	slices.Sort(taken)
	return taken
}

// possession is a lock that is held for long. The daemon or a keeper extends it.
type possession interface {
	held
	// over returns why the holder may no longer rely on it, or nil.
	over() error
}

var errUncovered = errors.New("its holder relies on it, but too few nodes have its key")

// losses counts leases that should be held.
type losses struct {
	lost int
	loss error // an example
	bare int   // not lost, but stored on no more than a quorum of nodes, so that one more failure loses them
}

// losses counts the leases that were lost since its previous call. A node that hangs cannot be
// queried and does not count.
func (h *holding) losses(hung *node) (l losses, err error) {
	copies, err := h.copies(hung)
	if err != nil {
		return l, err
	}
	for i := range h.taken {
		loss := h.loss(i, copies[i])
		switch {
		case h.known[i]:
		case loss != nil:
			h.known[i] = true
			l.lost++
			l.loss = fmt.Errorf("number %d: %w", i, loss)
		case copies[i] == quorum:
			l.bare++
		}
	}
	return l, nil
}

func (h *holding) loss(i, copies int) error {
	if err := h.taken[i].over(); err != nil {
		return err
	}
	if copies < quorum {
		return errUncovered
	}
	return nil
}

// copies returns for each lock how many nodes have its key, without the hung node.
func (h *holding) copies(hung *node) ([]int, error) {
	copies := make([]int, h.leases)
	for _, n := range h.fleet.nodes {
		if n == hung {
			continue
		}
		keys, err := n.keys(h.mark)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			i, err := strconv.Atoi(key[strings.LastIndexByte(key, ':')+1:])
			if err != nil {
				return nil, fmt.Errorf("%s: a key that is none of ours: %q", n.Name(), key)
			}
			copies[i]++
		}
	}
	return copies, nil
}
