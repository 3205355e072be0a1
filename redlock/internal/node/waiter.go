package node

import (
	"maps"
	"math/bits"
	"slices"
	"sync"

	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// bells is who of this host waits for locks that are held elsewhere, by the keys
// of which the nodes tell that they have changed.
type Bells struct {
	mu      sync.Mutex // guards what follows
	waiting map[string][]*Waiter
}

// bellOf is the key that is deleted when a lock is given back: see ballot.lua.
func bellOf(key string) string { return key + script.Separator + "b" }

// waiter is one who waits.
type Waiter struct {
	Mark   string // what the nodes know it by: a token that holds nothing
	quorum int
	locks  []string // the keys of the locks
	bell   chan struct{}
	Marked NodeSet // nodes that may know its mark

	mu    sync.Mutex // guards what follows
	keys  []string   // not changed, but replaced
	last  *Arming    // of the last attempt
	nodes uint64     // where the lock may be free, as bits
}

// join listens for the release of a lock.
func (b *Bells) Join(locks []string, mark string, quorum int) *Waiter {
	w := &Waiter{Mark: mark, quorum: quorum, locks: locks, bell: make(chan struct{}, 1)}
	for _, lock := range locks {
		w.keys = append(w.keys, bellOf(lock))
	}
	b.add(w, w.keys)
	return w
}

func (b *Bells) add(w *Waiter, keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[string][]*Waiter{}
	}
	for _, key := range keys {
		b.waiting[key] = append(b.waiting[key], w)
	}
}

// alsoTo has w listen to the keys themselves, too, where who holds the lock rings no
// bell; and not any more where he does. It is true where it begins to.
func (b *Bells) AlsoTo(w *Waiter, foreign bool) (more bool) {
	if does := len(w.listensTo()) > len(w.locks); does == foreign {
		return false
	}
	if !foreign {
		b.forget(w, w.locks)
		w.listenTo(w.listensTo()[:len(w.locks)])
		return false
	}
	w.listenTo(slices.Concat(w.listensTo(), w.locks))
	b.add(w, w.locks)
	return true
}

func (w *Waiter) listenTo(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = keys
}

func (b *Bells) Leave(w *Waiter) { b.forget(w, w.listensTo()) }

func (b *Bells) forget(w *Waiter, keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		others := slices.DeleteFunc(b.waiting[key], func(other *Waiter) bool { return other == w })
		if b.waiting[key] = others; len(others) == 0 {
			delete(b.waiting, key)
		}
	}
}

// heard: a node says that keys have changed; nil: that any may have.
func (b *Bells) heard(node int, keys []string) {
	for _, w := range b.listeningTo(keys) {
		w.ring(node, true)
	}
}

func (b *Bells) listeningTo(keys []string) (waiters []*Waiter) {
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
func (w *Waiter) ring(node int, news bool) {
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
func (w *Waiter) Arm() *Arming {
	select {
	case <-w.bell:
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = 0
	w.last = &Arming{waiter: w, keys: w.keys}
	return w.last
}

// isTold tells whether a quorum of nodes were asked, in the last attempt, to tell
// when the lock is given back.
func (w *Waiter) IsTold() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last != nil && w.last.asked.count() >= w.quorum
}

func (w *Waiter) listensTo() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys
}

// open is on how many nodes the lock may be free.
func (w *Waiter) Open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bits.OnesCount64(w.nodes)
}

// rung is signalled for what is news. Nil for who does not listen.
func (w *Waiter) Rung() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.bell
}

// arming is what a node is to tell a waiter of from now on. A key that is missing
// when it is read has rung already.
type Arming struct {
	waiter *Waiter
	keys   []string
	asked  NodeSet // nodes that are to tell
	failed NodeSet // of those, which gave no vote, and made no bell
}

// read takes in whether a bell has rung before the node was asked to tell. It may also
// be missing because nobody was refused there.
func (a *Arming) read(node int, rung bool) {
	if rung && !a.failed.Has(node) {
		a.waiter.ring(node, false)
	}
}

// hasRung tells whether one of the bells is missing.
func hasRung(bells []redis.Reply) bool {
	return slices.ContainsFunc(bells, func(bell redis.Reply) bool { return bell.Nil })
}
