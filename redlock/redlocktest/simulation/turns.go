package simulation

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// turns observes whom the nodes call, and whom they have in their wait queues.
type turns struct {
	w *world

	mu     sync.Mutex               // guards what follows
	called []callee                 // by the command that a node executes
	calls  map[callee]time.Duration // when the node last called an entry, which has not asked since
	stay   map[callee]time.Duration // since when an entry was seen on a healthy node although its client waits no longer
}

// callee is an entry in the wait queue of a lock on one node.
type callee struct{ node, key, entry string }

func newTurns(w *world) *turns {
	return &turns{w: w, calls: map[callee]time.Duration{}, stay: map[callee]time.Duration{}}
}

// requestOf returns the number of the request that an entry stands for.
func requestOf(entry string) int {
	_, rest, _ := strings.Cut(entry, " pid=")
	number, _, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		panic("an entry without a request: " + entry) // a bug of the simulation
	}
	return n
}

// published notes a message of a node to waiters: executed checks it.
func (t *turns) published(n *simNode, message string) {
	what, rest, _ := strings.Cut(message, "\x00")
	key, entries, _ := strings.Cut(rest, "\x00")
	for entry := range strings.SplitSeq(entries, "\x00") {
		if t.w.plan.Commands {
			t.w.record.event(Event{Actor: "node " + n.Name(), What: "publishes", Note: what + " " + key + " " + entry, isCommand: true})
		}
		if what == "turn" {
			t.mu.Lock()
			t.called = append(t.called, callee{n.Name(), key, entry})
			t.mu.Unlock()
		}
	}
}

// executed checks the calls of waiters by a command of a node. A waiter that has asked may be called
// again: that is another turn.
func (t *turns) executed(n *simNode, c redlock.Command) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	letters, args := operationsOf(c)
	asked := map[callee]bool{}
	for i, letter := range letters {
		if strings.ContainsRune("ikd", letter) {
			id := callee{n.Name(), c[4+i], args[0]}
			delete(t.calls, id)
			asked[id] = true
		}
		args = args[argumentsOf[letter]:]
	}
	now, healthySince := t.w.record.now(), slices.Max(t.w.faults.connectedSince(n))
	for _, id := range t.called {
		number := requestOf(id.entry)
		t.w.record.called(n, number, healthySince)
		if before, again := t.calls[id]; again && !asked[id] && isAlone(id.entry) && now-before < turn-time.Millisecond {
			t.w.record.calledTwice(n, number, before)
		}
		for other := range t.calls { // their turn has ended
			if isAlone(id.entry) && other.node == id.node && other.key == id.key {
				delete(t.calls, other)
			}
		}
		t.calls[id] = now
	}
	t.called = nil
}

// isAlone reports whether an entry has its turn alone.
func isAlone(entry string) bool { return strings.Fields(entry)[1] == "-" }

// turn is how long the turn of a waiter lasts if its round trips are short: see Quorum.turn.
const turn = 50 * time.Millisecond

// lookAtQueues checks that entries do not stay in the queues when their clients wait no longer.
func (t *turns) lookAtQueues(n *simNode, healthySince []time.Duration) {
	if t == nil {
		return
	}
	present, now := map[callee]bool{}, t.w.record.now()
	var all []callee
	n.Waiting(func(key, entry string) { all = append(all, callee{n.Name(), key, entry}) })
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range all {
		q, ended := t.w.record.waited(requestOf(id.entry))
		if ended == never || q.DaemonEnded != never {
			continue
		}
		present[id] = true
		since := max(ended, healthySince[q.host.index])
		if seen, known := t.stay[id]; known && now-max(since, seen) > strayAllowance {
			t.w.record.stays(n, q, ended)
		} else if !known {
			t.stay[id] = now
		}
	}
	for id := range t.stay {
		if id.node == n.Name() && !present[id] {
			delete(t.stay, id)
		}
	}
}

// hostTTL is HOST_TTL of queue.lua. mostHostTTL is how long after its end a node takes a daemon for alive
// at most: the node's clock may be slow, and the last message may be on its way.
const (
	hostTTL     = 3500 * time.Millisecond
	mostHostTTL = hostTTL + hostTTL/100 + nodeTimeout
)

// called checks that a node, healthy since an instant, calls no waiter that has left, and no host that
// has been dead for long.
func (r *recorder) called(n *simNode, number int, healthySince time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q, now := r.report.Requests[number], r.now()
	ended := q.waitEnded()
	switch {
	case q.DaemonEnded != never && now-q.DaemonEnded > mostHostTTL:
		r.report.violate("called", now, "node %s called request %d of %s, whose daemon had ended (%s)", n.Name(), q.N, q.Lock, instant(q.DaemonEnded))
	case q.DaemonEnded == never && ended != never && now-max(ended, healthySince) > strayAllowance:
		r.report.violate("called", now, "node %s called request %d of %s, which waited no longer (%s)", n.Name(), q.N, q.Lock, instant(ended))
	}
}

// calledTwice records that a node called a waiter twice for one turn.
func (r *recorder) calledTwice(n *simNode, number int, before time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.violate("twice", r.now(), "node %s called request %d of %s again in the same turn (%s)", n.Name(), number, r.report.Requests[number].Lock, instant(before))
}

// stays records that an entry stays in a queue.
func (r *recorder) stays(n *simNode, q *Request, ended time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.violate("entry", r.now(), "node %s still has request %d of %s in its queue, which waits no longer (%s)", n.Name(), q.N, q.Lock, instant(ended))
}

// waited returns a request, and when it stopped waiting, or never.
func (r *recorder) waited(number int) (q *Request, ended time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q = r.report.Requests[number]
	return q, q.waitEnded()
}

// waitEnded returns when the request stopped waiting, or never. The caller holds mu.
func (q *Request) waitEnded() time.Duration {
	if q.Grant != nil {
		return q.Grant.At
	}
	return q.Ended
}
