package redlock

import (
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// bells is who of this host waits for locks that are held elsewhere, by the keys
// of which the nodes tell that they have changed.
type bells struct {
	mu      sync.Mutex // guards what follows
	waiting map[string][]*waiter
}

// bellOf is the key that is deleted when a lock is given back: see ballot.lua.
func bellOf(key string) string { return key + beside + "b" }

// waiter is one who waits.
type waiter struct {
	mark   string // what the nodes know it by: a token that holds nothing
	quorum int
	bell   chan struct{}
	marked nodeSet // nodes that may know its mark

	mu    sync.Mutex // guards what follows
	keys  []string   // not changed, but replaced
	last  *arming    // of the last attempt
	nodes uint64     // where the lock may be free, as bits
}

// join listens for the release of a lock.
func (b *bells) join(t *target, mark string, quorum int) *waiter {
	w := &waiter{mark: mark, quorum: quorum, bell: make(chan struct{}, 1)}
	for i := range t.width() {
		w.keys = append(w.keys, bellOf(t.at(i)))
	}
	b.add(w, w.keys)
	return w
}

func (b *bells) add(w *waiter, keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[string][]*waiter{}
	}
	for _, key := range keys {
		b.waiting[key] = append(b.waiting[key], w)
	}
}

// alsoTo has w listen to the keys themselves, too, where who holds the lock rings no
// bell; and not any more where he does. It is true where it begins to.
func (b *bells) alsoTo(w *waiter, t *target, foreign bool) (more bool) {
	if does := len(w.listensTo()) > t.width(); does == foreign {
		return false
	}
	var keys []string
	for i := range t.width() {
		keys = append(keys, t.at(i))
	}
	if !foreign {
		b.forget(w, keys)
		w.listenTo(w.listensTo()[:t.width()])
		return false
	}
	w.listenTo(slices.Concat(w.listensTo(), keys))
	b.add(w, keys)
	return true
}

func (w *waiter) listenTo(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = keys
}

func (b *bells) leave(w *waiter) { b.forget(w, w.listensTo()) }

func (b *bells) forget(w *waiter, keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		others := slices.DeleteFunc(b.waiting[key], func(other *waiter) bool { return other == w })
		if b.waiting[key] = others; len(others) == 0 {
			delete(b.waiting, key)
		}
	}
}

// heard: a node says that keys have changed; nil: that any may have.
func (b *bells) heard(node int, keys []string) {
	for _, w := range b.listeningTo(keys) {
		w.ring(node, true)
	}
}

func (b *bells) listeningTo(keys []string) (waiters []*waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if keys == nil {
		keys = slices.Sorted(maps.Keys(b.waiting)) // the same order in each simulation
	}
	for _, key := range keys {
		waiters = append(waiters, b.waiting[key]...)
	}
	return waiters
}

// ring: the lock may be free on a node. That is news where the node says so by
// itself, unless it was free there for the attempt already, which gives back what it got
// there and would wake itself; and also where it makes a quorum of them.
func (w *waiter) ring(node int, news bool) {
	w.mu.Lock()
	known := w.nodes&(1<<node) != 0
	w.nodes |= 1 << node
	news = news && !known || bits.OnesCount64(w.nodes) >= w.quorum
	w.mu.Unlock()
	if !news {
		return
	}
	select {
	case w.bell <- struct{}{}:
	default: // it is awake already
	}
}

// arm begins anew: what was heard before belongs to the attempt before.
func (w *waiter) arm() *arming {
	select {
	case <-w.bell:
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = 0
	w.last = &arming{waiter: w, keys: w.keys}
	return w.last
}

// isTold tells whether a quorum of nodes were asked, in the last attempt, to tell
// when the lock is given back.
func (w *waiter) isTold() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last != nil && w.last.asked.count() >= w.quorum
}

func (w *waiter) listensTo() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys
}

// open is on how many nodes the lock may be free.
func (w *waiter) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bits.OnesCount64(w.nodes)
}

// rung is signalled for what is news. Nil for who does not listen.
func (w *waiter) rung() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.bell
}

// arming is what a node is to tell a waiter of from now on. A key that is missing
// when it is read has rung already.
type arming struct {
	waiter *waiter
	keys   []string
	asked  nodeSet // nodes that are to tell
	failed nodeSet // of those, which gave no vote, and made no bell
}

// read takes in whether a bell has rung before the node was asked to tell. It may also
// be missing because nobody was refused there.
func (a *arming) read(node int, rung bool) {
	if rung && !a.failed.has(node) {
		a.waiter.ring(node, false)
	}
}

// hasRung tells whether one of the bells is missing.
func hasRung(bells []Reply) bool {
	return slices.ContainsFunc(bells, func(bell Reply) bool { return bell.Nil })
}

// Those who were woken together try again at a random time within a window of so
// many round trips: long enough for one of them to have his requests on all nodes
// before the next one begins, mostly. Where that was not so, and nobody won, it is
// twice as long.
const (
	windowTrips = 3
	maxDoubled  = 4
	leastWindow = 300 * time.Microsecond
)

// spread is how long one of several waits who were woken together.
func (q *Quorum) spread(name string, splits int) time.Duration {
	return q.rules.jitter(name, q.window()<<min(splits, maxDoubled))
}

// yielding is how long one waits who lets others go first. They may be farther away
// from the nodes, by how much is not known: so it is long rarely, twice as long half
// as often, up to the node timeout, by which the farthest have an answer.
func (q *Quorum) yielding(name string) time.Duration {
	const parts = 1000
	least := max(2*q.window(), leastYield)
	return min(least*parts/(1+q.rules.jitter(name, parts)), max(least, q.options.NodeTimeout))
}

const leastYield = 2 * time.Millisecond

// window is a few round trips to a quorum of nodes.
func (q *Quorum) window() time.Duration {
	trips := make([]time.Duration, 0, len(q.lanes))
	for _, l := range q.lanes {
		if trip := l.roundTripTime(); trip > 0 {
			trips = append(trips, trip)
		}
	}
	slices.Sort(trips)
	if len(trips) < q.quorum {
		return leastWindow
	}
	return min(max(windowTrips*trips[q.quorum-1], leastWindow), q.options.NodeTimeout)
}

func (l *lane) roundTripTime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rtt
}

// isTracked tells whether enough nodes tell when a lock is given back.
func (q *Quorum) isTracked() bool {
	n := 0
	for _, l := range q.lanes {
		if l.tracks.Load() {
			n++
		}
	}
	return n >= q.quorum
}
