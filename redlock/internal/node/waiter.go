package node

import (
	"maps"
	"math/bits"
	"slices"
	"sync"

	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Waiters has the clients of this host that wait for locks held elsewhere, by the keys whose
// changes wake them.
type Waiters struct {
	mu      sync.Mutex // guards waiting; no other mutex is taken while it is held
	waiting map[string][]*Waiter
}

// wakeupKey returns the key that a release of the lock deletes: see ballot.lua.
func wakeupKey(key string) string { return key + script.Separator + "b" }

// Waiter is one client that waits for a lock, or for several at once.
type Waiter struct {
	ID     string // its name on the nodes: a token that holds no lock
	quorum int
	locks  []string // the keys of the locks
	wakeup chan struct{}
	Placed NodeSet // nodes that may know its ID

	mu      sync.Mutex    // guards the fields below; no other mutex is taken while it is held
	keys    []string      // replaced, never changed
	current *Subscription // of the last attempt
	free    uint64        // nodes on which the lock may be free, as bits
}

// Join adds a waiter that listens for the release of locks, given by their keys.
func (b *Waiters) Join(locks []string, id string, quorum int) *Waiter {
	w := &Waiter{ID: id, quorum: quorum, locks: locks, wakeup: make(chan struct{}, 1)}
	for _, lock := range locks {
		w.keys = append(w.keys, wakeupKey(lock))
	}
	b.add(w, w.keys)
	return w
}

func (b *Waiters) add(w *Waiter, keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[string][]*Waiter{}
	}
	for _, key := range keys {
		b.waiting[key] = append(b.waiting[key], w)
	}
}

// WatchLocks makes w listen to the keys of the locks as well if a foreign client holds the lock:
// such a client deletes no wake-up key. It returns true if w begins to listen to more keys.
func (b *Waiters) WatchLocks(w *Waiter, foreign bool) (more bool) {
	if does := len(w.currentKeys()) > len(w.locks); does == foreign {
		return false
	}
	if !foreign {
		b.removeKeys(w, w.locks)
		w.setKeys(w.currentKeys()[:len(w.locks)])
		return false
	}
	w.setKeys(slices.Concat(w.currentKeys(), w.locks))
	b.add(w, w.locks)
	return true
}

func (w *Waiter) setKeys(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = keys
}

// Leave removes a waiter.
func (b *Waiters) Leave(w *Waiter) { b.removeKeys(w, w.currentKeys()) }

func (b *Waiters) removeKeys(w *Waiter, keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		others := slices.DeleteFunc(b.waiting[key], func(other *Waiter) bool { return other == w })
		if b.waiting[key] = others; len(others) == 0 {
			delete(b.waiting, key)
		}
	}
}

// keysChanged wakes the waiters for keys that a node reports as changed; nil: any key may have
// changed.
func (b *Waiters) keysChanged(node int, keys []string) {
	for _, w := range b.waitersFor(keys) {
		w.notify(node, true)
	}
}

func (b *Waiters) waitersFor(keys []string) (waiters []*Waiter) {
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

// notify records that the lock may be free on a node. It wakes the waiter if there is now a
// quorum of such nodes. It also wakes the waiter if news is true and the lock was not free there
// for the last attempt. news means that the node sent this report by itself. (That attempt
// releases what it got, and would wake its own waiter.)
func (w *Waiter) notify(node int, news bool) {
	w.mu.Lock()
	known := w.free&(1<<node) != 0
	w.free |= 1 << node
	news = news && !known || bits.OnesCount64(w.free) >= w.quorum
	w.mu.Unlock()
	if !news {
		return
	}
	select {
	case w.wakeup <- struct{}{}:
	default: // it is awake
	}
}

// Subscribe begins a new attempt: earlier reports of the nodes belong to the previous one.
func (w *Waiter) Subscribe() *Subscription {
	select {
	case <-w.wakeup:
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = 0
	w.current = &Subscription{waiter: w, keys: w.keys}
	return w.current
}

// IsSubscribed reports whether the last attempt asked a quorum of nodes to report the release of
// the lock.
func (w *Waiter) IsSubscribed() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current != nil && w.current.asked.count() >= w.quorum
}

func (w *Waiter) currentKeys() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys
}

// FreeNodes returns on how many nodes the lock may be free.
func (w *Waiter) FreeNodes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bits.OnesCount64(w.free)
}

// Woken returns the channel that is signalled when the lock may be free; nil for a nil
// Waiter.
func (w *Waiter) Woken() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.wakeup
}

// Subscription is what the nodes report to a waiter from one attempt on: changes of its keys. If
// a wake-up key is missing when it is read, it was deleted earlier.
type Subscription struct {
	waiter *Waiter
	keys   []string
	asked  NodeSet // nodes that were asked to report
	failed NodeSet // nodes that did not vote, and so set no wake-up key
}

// note records whether the lock was released before the node began to report releases. A wake-up
// key is also missing if the node refused no attempt.
func (a *Subscription) note(node int, released bool) {
	if released && !a.failed.Has(node) {
		a.waiter.notify(node, false)
	}
}

// wasReleased reports whether one of the wake-up keys is missing.
func wasReleased(wakeups []redis.Reply) bool {
	return slices.ContainsFunc(wakeups, func(key redis.Reply) bool { return key.Nil })
}
