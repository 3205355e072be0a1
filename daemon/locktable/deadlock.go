package locktable

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// ErrDeadlock matches every DeadlockError.
var ErrDeadlock = errors.New("deadlock")

// DeadlockError is a cycle among owners on this host.
type DeadlockError struct {
	Cycle []WaitsFor // from the refused waiter on, each waits for the owner of the next one
}

// WaitsFor is one step of a cycle.
type WaitsFor struct {
	Waiter, Ahead *Requester
	Name          string // of the lock
	Held          bool   // Ahead holds the lock; false: it asked for it earlier
}

// Is reports whether target is ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// Error describes each step of the cycle.
func (e *DeadlockError) Error() string {
	steps := make([]string, len(e.Cycle))
	for i, step := range e.Cycle {
		steps[i] = step.String()
	}
	return fmt.Sprintf("%s: %v: %s: release one of them first, and take them in the same order everywhere",
		e.Cycle[0].Name, ErrDeadlock, strings.Join(steps, "; "))
}

func (s WaitsFor) String() string {
	verb := "asked for earlier"
	if s.Held {
		verb = "holds"
	}
	return fmt.Sprintf("%v waits for %s, which %v %s", s.Waiter, s.Name, s.Ahead, verb)
}

// participant is an owner that waits for another owner of this host, or that another owner waits
// for. It lists the waiters and holders of the owner that wait or block others. Most owners need
// none, because no other owner wants their locks.
type participant struct {
	waiters    []*Waiter
	lastSearch int // the number of the last search that visited it
}

func (q *Queue) addParticipant(w *Waiter) {
	if w.participant != nil {
		return
	}
	if w.participant = q.participants[w.Owner]; w.participant == nil {
		w.participant = &participant{}
		q.participants[w.Owner] = w.participant
	}
	w.participant.waiters = append(w.participant.waiters, w)
}

func (q *Queue) removeParticipant(w *Waiter) {
	if w.participant == nil {
		return
	}
	others := slices.DeleteFunc(w.participant.waiters, func(other *Waiter) bool { return other == w })
	if w.participant.waiters = others; len(others) == 0 {
		delete(q.participants, w.Owner)
	}
	w.participant = nil
}

// checkDeadlock fails if a waiter or holder before w, which is not in its queues yet, waits
// for the owner of w. Only a waiter that joins adds a dependency, on those before it, so the
// one that would close a cycle is always the one that joins.
//
// It does not follow a waiter for a slot to the other clients with slots: one of them may continue.
// It cannot find cycles that this host does not know: through owners of other hosts, through locks
// that the nodes refuse to an owner, or through anything else that a program waits for.
func (q *Queue) checkDeadlock(w *Waiter) error {
	for _, name := range w.Names {
		for ahead := range q.names[name].backward() {
			q.addParticipant(ahead)
			if ahead.isBlocked() {
				break // addParticipant was called for the ones before it when it joined
			}
		}
	}
	if cycle := q.findCycle(w); cycle != nil {
		return &DeadlockError{Cycle: cycle}
	}
	q.addParticipant(w)
	return nil
}

// findCycle returns the cycle that w would close, or nil.
func (q *Queue) findCycle(w *Waiter) []WaitsFor {
	own := q.participants[w.Owner]
	if own == nil {
		return nil // nobody waits for it
	}
	q.searches++
	path, _ := (&search{q: q, number: q.searches, joining: w, own: own, visited: map[queueOfKind]int{}}).pathFrom(w)
	slices.Reverse(path)
	return path
}

// search looks, depth first, for a path back to the owner of the waiter that joins.
type search struct {
	q       *Queue
	number  int
	joining *Waiter
	own     *participant
	visited map[queueOfKind]int // how many of the first waiters of a queue a waiter of that kind need not visit again
}

type queueOfKind struct {
	name string
	kind Kind
}

// pathFrom continues the search from a waiter. The path that it returns begins with its last step.
func (s *search) pathFrom(w *Waiter) (path []WaitsFor, found bool) {
	for _, name := range w.Names {
		for ahead := range s.newBlockers(w, name) {
			if path, found = s.pathThrough(w, ahead); found {
				return append(path, WaitsFor{w.Requester, ahead.Requester, name, ahead.isGranted()}), true
			}
		}
	}
	return nil, false
}

// pathThrough continues the search from the owner of ahead, for which w waits.
func (s *search) pathThrough(w, ahead *Waiter) (path []WaitsFor, found bool) {
	participant := ahead.participant
	switch {
	case s.endsByItself(ahead):
		return nil, false
	case participant == s.own:
		return nil, true
	case participant.lastSearch == s.number:
		return nil, false
	}
	participant.lastSearch = s.number
	for _, other := range participant.waiters {
		if !other.isBlocked() || other == ahead && covers(w, ahead) {
			continue
		}
		if path, found = s.pathFrom(other); found {
			return path, true
		}
	}
	return nil, false
}

// newBlockers yields the waiters in a queue that conflict with w, without those that blocked another
// waiter earlier in this search. What the search finds behind a blocker does not depend on its waiter.
func (s *search) newBlockers(w *Waiter, name string) iter.Seq[*Waiter] {
	queue, own, exclusive := s.q.names[name], queueOfKind{name, w.mode()}, queueOfKind{name, Kind{}}
	return func(yield func(*Waiter) bool) {
		for {
			i, ahead := queue.next(max(s.visited[own], s.visited[exclusive]), w) // exclusive waiters visit all
			if ahead == nil {
				return
			}
			s.visited[own] = i + 1 // a search through ahead continues behind it
			if w.conflicts(ahead) && !yield(ahead) {
				return
			}
		}
	}
}

// endsByItself reports whether ahead holds a lease that ends by time alone. If the joining owner
// already holds one of the names that it wants, it lost that lease, so the lease ends likewise.
func (s *search) endsByItself(ahead *Waiter) bool {
	return ahead.isGranted() && (ahead.isKept || ahead.backing.EndsByItself()) || ahead.participant == s.own && Overlap(ahead, s.joining)
}
