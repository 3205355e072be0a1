package node

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Waiters has the requests of this host that stand in the nodes' wait queues: see queue.lua.
type Waiters struct {
	Host string // the id of this process on the nodes

	mu      sync.Mutex // guards the fields below; no other mutex is taken while it is held
	waiting map[string]*Waiter
	joined  uint64 // how many waiters have joined so far
	quit    bool   // this process ends
}

// Waiter is one request that waits for a lock, or for several at once.
type Waiter struct {
	Entry  string  // its entry in the queues: see queue.lua
	Placed NodeSet // nodes that may have the entry

	lock   string // the key of one of its locks
	number uint64 // in the order of joining
	system quorum.System
	news   chan struct{} // of capacity 1

	mu         sync.Mutex    // guards the fields below; no other mutex is taken while it is held
	called     quorum.Set    // nodes on which it is its turn, since the last attempt
	positions  map[int]int   // in the queue of each node, from 1 on
	unanswered map[int]int   // by node: calls with the entry without an answer
	turnOf     time.Duration // how long the turn of the waiters before it lasts; 0: no node reported one since the last attempt
}

// Join adds a waiter. lock is the key of one of its locks, and kind the kind of a shared lock. turn is how
// long a node keeps the lock free for it. token is one that no lock has.
func (b *Waiters) Join(lock, kind string, turn time.Duration, token string, system quorum.System) *Waiter {
	if kind == "" {
		kind = exclusive
	}
	entry := b.Host + " " + kind + " " + strconv.FormatInt(max(turn.Milliseconds(), 1), 10) + " " + token
	w := &Waiter{lock: lock, Entry: entry, system: system, news: make(chan struct{}, 1), positions: map[int]int{}, unanswered: map[int]int{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[string]*Waiter{}
	}
	b.joined++
	w.number = b.joined
	b.waiting[w.Entry] = w
	return w
}

// exclusive is the kind of an exclusive lock in an entry.
const exclusive = "-"

// Leave removes a waiter.
func (b *Waiters) Leave(w *Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, w.Entry)
}

// showsHost reports whether the nodes are told that this process lives: requests of it wait.
func (b *Waiters) showsHost() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0 && !b.quit
}

// HasQuit reports whether Quit was called: then no request may enter the queues any more.
func (b *Waiters) HasQuit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.quit
}

// Quit makes the lanes no longer tell the nodes that this process lives. It returns the key that says
// so there, which has the value HostAlive.
func (b *Waiters) Quit() (key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quit = true
	return hostChannel + b.Host
}

func (b *Waiters) find(entry string) *Waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[entry]
}

// missed makes all waiters ask again soon, at different times: they may have missed a call of a node,
// or it may have lost its queues.
func (b *Waiters) missed(jitter func(who string, n time.Duration) time.Duration) {
	b.mu.Lock()
	all := make([]*Waiter, 0, len(b.waiting))
	for _, w := range b.waiting {
		all = append(all, w)
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(a, b *Waiter) int { return cmp.Compare(a.number, b.number) }) // the same order in each simulation
	for _, w := range all {
		w.next(1 + jitter(w.lock, missedWithin))
	}
}

// missedWithin is how soon all waiters ask again after a node could not call them.
const missedWithin = 2 * time.Second

// call notes that it is the waiter's turn on a node.
func (w *Waiter) call(node int) {
	w.mu.Lock()
	w.called |= quorum.Of(node)
	w.mu.Unlock()
	w.wake()
}

// next notes that the waiter is behind those whose turn it is on a node, for turn.
func (w *Waiter) next(turn time.Duration) {
	w.mu.Lock()
	w.turnOf = turn
	w.mu.Unlock()
	w.wake()
}

func (w *Waiter) wake() {
	select {
	case w.news <- struct{}{}:
	default: // it is awake
	}
}

// Begin begins a new attempt: earlier messages of the nodes belong to the previous one.
func (w *Waiter) Begin() {
	select {
	case <-w.news:
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called, w.turnOf = 0, 0
}

// Called returns the nodes that have called the waiter since its last attempt. turn is how long the
// turn of the waiters before it lasts; 0: no node reported one.
func (w *Waiter) Called() (nodes quorum.Set, turn time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.called, w.turnOf
}

// notePosition records the position in a node's queue; 0: it is not in the queue. An attempt is refused before
// all nodes have answered, so Position may be smaller then, and News is signalled.
func (w *Waiter) notePosition(node, position int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.positionLocked()
	w.unanswered[node]--
	if position > 0 {
		w.positions[node] = position
	} else {
		delete(w.positions, node)
		if w.unanswered[node] == 0 { // otherwise a later call may have entered it again
			w.Placed.remove(node)
		}
	}
	if now := w.positionLocked(); now != 0 && (now < before || before == 0) {
		w.wake()
	}
}

// noteSent records that a call with the entry will be sent to a node.
func (w *Waiter) noteSent(node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Placed.Add(node)
	w.unanswered[node]++
}

// Position returns the position in the queue of which a quorum of nodes reports that it is not
// farther back, as of the last attempt. 0: fewer nodes have the waiter in their queues.
func (w *Waiter) Position() int {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.positionLocked()
}

// positionLocked is Position. The caller holds mu.
func (w *Waiter) positionLocked() int {
	position := quorum.AtMost(w.system, func(node int) int { return cmp.Or(w.positions[node], math.MaxInt) })
	if position == math.MaxInt {
		return 0
	}
	return position
}

// News returns the channel that is signalled when Called changes, or Position is smaller; nil for a nil Waiter.
func (w *Waiter) News() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.news
}

// message is what a node sends to the channel of this process: see queue.lua.
type message struct {
	key     string
	entries []string
	next    time.Duration // how long the turn of the waiters before it lasts; 0: it is the turn of the entries
}

// parseMessage reads a message. It is not ok if no script of a node sends such a message.
func parseMessage(text string) (m message, ok bool) {
	what, rest, ok1 := strings.Cut(text, script.Separator)
	key, entries, ok2 := strings.Cut(rest, script.Separator)
	if !ok1 || !ok2 || key == "" {
		return message{}, false
	}
	m = message{key: key, entries: strings.Split(entries, script.Separator)}
	if slices.Contains(m.entries, "") {
		return message{}, false
	}
	if what == "turn" {
		return m, true
	}
	ms, isNext := strings.CutPrefix(what, "next ")
	n, err := strconv.ParseInt(ms, 10, 32)
	m.next = time.Duration(n) * time.Millisecond
	return m, isNext && err == nil && n > 0 && len(m.entries) == 1
}

// heard handles a message of the node. An entry of this process that waits no longer gives up its
// turn. Other messages that no waiter expects are ignored.
func (l *Lane) heard(text string) {
	m, ok := parseMessage(text)
	if !ok {
		return
	}
	for _, entry := range m.entries {
		w := l.waiters.find(entry)
		switch {
		case w != nil && m.next > 0:
			w.next(m.next)
		case w != nil:
			w.call(l.index)
		case m.next == 0 && strings.HasPrefix(entry, l.waiters.Host+" ") && strings.HasPrefix(m.key, l.prefix):
			now, placed := l.clock(), &NodeSet{}
			placed.Add(l.index)
			l.Do(Call{Op: "done", Ops: []script.Operation{{Op: script.EndWait, Key: m.key, Token: entry}}, Placed: placed, Until: now + l.timing.silence}, now)
		}
	}
}
