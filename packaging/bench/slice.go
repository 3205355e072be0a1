package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// scenarios are the parts that measure lock+unlock pairs.
var scenarios = []scenario{
	{part: "one", title: "1 worker", workers: 1},
	{part: "distinct", title: fmt.Sprintf("%d workers, distinct names", workersAtOnce), workers: workersAtOnce},
	{part: "same", title: fmt.Sprintf("%d workers, one name", workersAtOnce), workers: workersAtOnce, shared: true},
}

const (
	warmUp = 300 * time.Millisecond
	// hungLimit is how long after the end of its slice a contender may still hang with the hung
	// node. Then the node is continued.
	hungLimit = 15 * time.Second
	// wellLimit is the same if no node hangs.
	wellLimit = 15 * time.Second
)

// sample has the results of one slice.
type sample struct {
	pairs
	usage
	counters
	left int      // keys left on the nodes
	work nodeWork // of a node for the grants; only in part fleet
}

// pairBench measures the scenarios for all contenders, in rounds.
type pairBench struct {
	opts    options
	fleet   *fleet
	entries []entry
	slices  int // so far; the number is the mark of the next one
	logs    io.Writer
}

// series is one contender's samples in one scenario, by round.
type series struct {
	scenario
	contender string
	hung      bool
	rounds    map[int]sample
}

// measure returns the series of one scenario for every contender: first without a hung node, then
// with one.
func (b *pairBench) measure(ctx context.Context, s scenario) ([]*series, error) {
	well, hung := b.blank(s, false), b.blank(s, true)
	for i, e := range b.entries {
		if well[i] == nil {
			continue
		}
		if _, err := b.slice(ctx, e, s, warmUp, nil); err != nil {
			return nil, err
		}
	}
	for round := range b.opts.rounds {
		fmt.Fprintf(b.logs, "%s: round %d of %d\n", s.title, round+1, b.opts.rounds)
		if err := b.round(ctx, well, round, nil); err != nil {
			return nil, err
		}
		if !b.opts.hung {
			continue
		}
		if err := b.round(ctx, hung, round, b.fleet.nodes[nodeCount-1]); err != nil {
			return nil, err
		}
	}
	return append(present(well), present(hung)...), nil
}

// blank returns an empty series for each entry, or nil if the entry is not measured in s.
func (b *pairBench) blank(s scenario, hung bool) []*series {
	all := make([]*series, len(b.entries))
	for i, e := range b.entries {
		if !e.many || s.workers > 1 {
			all[i] = &series{scenario: s, contender: e.name, hung: hung, rounds: map[int]sample{}}
		}
	}
	return all
}

func present(all []*series) []*series {
	var some []*series
	for _, s := range all {
		if s != nil && len(s.rounds) > 0 {
			some = append(some, s)
		}
	}
	return some
}

// round gives every contender a slice. If a contender hangs together with a hung node, it is
// measured only once, because that takes long and would happen again.
func (b *pairBench) round(ctx context.Context, all []*series, round int, hung *node) error {
	for i, s := range all {
		if s == nil || hung != nil && stalled(s, b.opts.slice) {
			continue
		}
		got, err := b.slice(ctx, b.entries[i], s.scenario, b.opts.slice, hung)
		if err != nil {
			return err
		}
		s.rounds[round] = got
	}
	return nil
}

// stalled reports whether a measured slice took far longer than its length.
func stalled(s *series, length time.Duration) bool {
	for _, got := range s.rounds {
		if got.elapsed > length+2*time.Second {
			return true
		}
	}
	return false
}

// slice lets one contender work, with hung stopped if it is not nil, and measures the costs and the
// keys left. All nodes work before and after it.
func (b *pairBench) slice(ctx context.Context, e entry, s scenario, length time.Duration, hung *node) (sample, error) {
	fail := func(err error) (sample, error) {
		return sample{}, fmt.Errorf("%s, %s: %w", e.name, s.title, err)
	}
	b.slices++
	run := slice{scenario: s, locker: e.locker, mark: fmt.Sprintf("bench%d", b.slices), length: length, limit: wellLimit, relief: func() {}}
	if hung != nil {
		run.limit, run.relief = hungLimit, hung.resume
	}
	if err := e.settle(ctx); err != nil {
		return fail(err)
	}
	before, err := countersOf(b.fleet.nodes)
	if err != nil {
		return fail(err)
	}
	got, err := b.watched(ctx, run, hung)
	if err != nil {
		return fail(err)
	}
	if got.left, err = b.tidy(ctx, e, run.mark); err != nil {
		return fail(err)
	}
	after, err := countersOf(b.fleet.nodes)
	if err != nil {
		return fail(err)
	}
	got.counters = after.since(before)
	return got, nil
}

// watched runs the slice and measures the CPU time. Then it continues a hung node and waits until
// that has executed all pending requests.
func (b *pairBench) watched(ctx context.Context, run slice, hung *node) (sample, error) {
	if hung != nil {
		defer context.AfterFunc(ctx, hung.resume)() // so that an interrupted run ends soon
		defer hung.resume()
		if err := hung.Stop(); err != nil {
			return sample{}, err
		}
	}
	before, err := b.fleet.usage()
	if err != nil {
		return sample{}, err
	}
	did, err := run.run(ctx)
	if err != nil {
		return sample{}, err
	}
	after, err := b.fleet.usage()
	if err == nil && hung != nil {
		err = hung.wake()
	}
	return sample{pairs: did, usage: after.since(before)}, err
}

// tidyLimit is how long a contender has to finish its last releases.
const tidyLimit = 500 * time.Millisecond

// tidy waits until the contender has finished all its calls, and returns how many of the slice's
// keys are still on the nodes.
func (b *pairBench) tidy(ctx context.Context, e entry, mark string) (left int, err error) {
	if err := e.settle(ctx); err != nil {
		return 0, err
	}
	for end := time.Now().Add(tidyLimit); ; time.Sleep(20 * time.Millisecond) {
		left, err = leftBehind(b.fleet.nodes, mark)
		if left == 0 || err != nil || time.Now().After(end) {
			return left, err
		}
	}
}

// scenario describes the locks of workers. A worker takes a lock, holds it (hold), releases it,
// pauses (think), and takes the next one.
type scenario struct {
	part    string
	title   string
	workers int
	shared  bool // all workers use the same name
	repeat  bool // each worker always uses its own name; otherwise a new name each time
	hold    time.Duration
	think   time.Duration
}

// slice is a short time in which one contender works.
type slice struct {
	scenario
	locker func(w int) locker
	mark   string        // part of the name of every lock of this slice, and of no other
	length time.Duration // no pair begins after this time, and after the first pair
	limit  time.Duration // relief is called after this time, to end calls that hang
	relief func()
}

// pairs has the results of a slice's workers.
type pairs struct {
	latencies []time.Duration   // of each pair, sorted
	elapsed   time.Duration     // until the last pair ended
	failed    int               // locks or unlocks for which the contender returned an error
	failure   error             // one of them
	clashes   int               // locks granted while another worker held them
	served    []int             // pairs of each worker
	grants    [][]time.Duration // to each worker, since the slice's start

	// Sorted durations.
	locks     []time.Duration // from the request for a lock to its grant
	handOvers []time.Duration // from one worker's unlock to the grant of another that waited for it
	holds     []time.Duration // real hold times
}

// stuckAfter is how long after relief workers may still be busy. Then the contender is given up.
const stuckAfter = 30 * time.Second

// run returns when all workers have ended, which is soon after the slice's length unless calls take
// longer. It returns an error if a worker never ends or ctx has ended.
func (s slice) run(ctx context.Context) (pairs, error) {
	ctx, cancel := context.WithTimeout(ctx, s.length+s.limit+stuckAfter)
	defer cancel()
	lockCtx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var over, passed, paired atomic.Bool
	end := func() {
		over.Store(true)
		if s.shared {
			giveUp() // otherwise a worker that waits for others goes on waiting
		}
	}
	defer time.AfterFunc(s.length, func() {
		if passed.Store(true); paired.Load() {
			end()
		}
	}).Stop()
	onPair := func() {
		if !paired.Swap(true) && passed.Load() {
			end()
		}
	}
	defer time.AfterFunc(s.length+s.limit, s.relief).Stop()

	crew := make([]worker, s.workers)
	var common place
	start := time.Now()
	var wg sync.WaitGroup
	for i := range crew {
		w := &crew[i]
		*w = worker{slice: &s, number: i, locker: s.locker(i), over: &over, onPair: onPair, start: start, place: &common}
		if !s.shared {
			w.place = new(place)
		}
		wg.Go(func() { w.run(ctx, lockCtx) })
	}
	if err := waitFor(ctx, &wg); err != nil {
		return pairs{}, err
	}
	return collect(crew, time.Since(start)), nil
}

// waitFor waits for wg, at most until a while after the end of ctx.
func waitFor(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(10 * time.Second):
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("workers are stuck in lock or unlock")
	}
	return ctx.Err()
}

func collect(crew []worker, elapsed time.Duration) pairs {
	p := pairs{elapsed: elapsed}
	for i := range crew {
		w := &crew[i]
		p.latencies = append(p.latencies, w.latencies...)
		p.locks = append(p.locks, w.locks...)
		p.handOvers = append(p.handOvers, w.handOvers...)
		p.holds = append(p.holds, w.holds...)
		p.served = append(p.served, len(w.latencies))
		p.grants = append(p.grants, w.grants)
		p.failed += w.failed
		p.clashes += w.clashes
		if p.failure == nil {
			p.failure = w.failure
		}
	}
	for _, figures := range [][]time.Duration{p.latencies, p.locks, p.handOvers, p.holds} {
		slices.Sort(figures)
	}
	return p
}

// place is the critical section of one name.
type place struct {
	inUse  atomic.Int32 // 1 while a worker is inside
	leftAt atomic.Int64 // when an unlock was last called, in ns since the slice's start
}

// worker acquires and releases locks in a loop.
type worker struct {
	slice  *slice
	number int
	locker locker
	over   *atomic.Bool
	onPair func()    // is called after each pair
	start  time.Time // of the slice
	place  *place    // of the name that this worker takes
	alarm  *alarm    // nil if workers do not sleep in the scenario

	latencies []time.Duration
	locks     []time.Duration
	grants    []time.Duration
	handOvers []time.Duration
	holds     []time.Duration
	failed    int
	failure   error
	clashes   int
}

func (w *worker) run(ctx, lockCtx context.Context) {
	if w.slice.hold > 0 || w.slice.think > 0 {
		var err error
		if w.alarm, err = newAlarm(); err != nil {
			w.failed, w.failure = 1, err
			return
		}
		defer w.alarm.close()
	}
	w.work(ctx, lockCtx)
}

func (w *worker) work(ctx, lockCtx context.Context) {
	for n := 0; !w.over.Load() && ctx.Err() == nil; n++ {
		start := time.Now()
		err := w.pair(ctx, lockCtx, w.name(n))
		if w.onPair(); err != nil {
			if lockCtx.Err() == nil { // otherwise the pair failed because of that
				w.failed++
				w.failure = err
			}
			continue
		}
		w.latencies = append(w.latencies, time.Since(start))
		w.alarm.sleep(w.slice.think)
	}
}

// name returns the name of the n-th lock. If names are distinct, each pair has a new one, so that
// no key of an earlier pair matters.
func (w *worker) name(n int) string {
	switch {
	case w.slice.shared:
		return w.slice.mark
	case w.slice.repeat:
		return w.slice.mark + ":" + strconv.Itoa(w.number)
	}
	return w.slice.mark + ":" + strconv.Itoa(w.number) + ":" + strconv.Itoa(n)
}

func (w *worker) pair(ctx, lockCtx context.Context, name string) error {
	asked := time.Since(w.start)
	l, err := w.locker.lock(lockCtx, name, pairTTL)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	w.granted(asked, time.Since(w.start))
	w.criticalSection()
	w.place.leftAt.Store(int64(time.Since(w.start)))
	if err := l.Unlock(ctx); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}

// granted records how long a grant took: since the request, and since the previous unlock if that
// came after the request.
func (w *worker) granted(asked, now time.Duration) {
	w.locks = append(w.locks, now-asked)
	w.grants = append(w.grants, now)
	if left := time.Duration(w.place.leftAt.Load()); left > asked {
		w.handOvers = append(w.handOvers, now-left)
	}
}

// criticalSection is the work under the lock. It checks that no other worker is inside.
func (w *worker) criticalSection() {
	if !w.place.inUse.CompareAndSwap(0, 1) {
		w.clashes++
		return
	}
	if w.slice.hold > 0 {
		start := time.Now()
		w.alarm.sleep(w.slice.hold)
		w.holds = append(w.holds, time.Since(start))
	}
	w.place.inUse.Store(0)
}
