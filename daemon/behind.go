package daemon

import (
	"fmt"

	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/redlock"
)

// ahead says why the lock could not be had without so much as asking a node.
func (a *ask) ahead() error {
	switch way := a.s.d.queue.Obstacle(&a.waiter); {
	case way.Holder != nil:
		return a.s.heldHere(way.Holder, way.Lease)
	case way.Waiter != nil:
		return a.s.behind(&a.waiter, way)
	case way.Failure != nil:
		return renamed(a.s.view(), way.Failure, &a.waiter)
	}
	return &redlock.HeldError{Name: a.waiter.Label()} // it has gone just now: another one asks the nodes
}

// behindError is a HeldError of a lock that nobody of this host holds: somebody who
// waits himself was there before.
type behindError struct {
	*redlock.HeldError        // whose Holder is the one that waits
	why                string // he does not have it yet
}

func (e *behindError) Error() string {
	return fmt.Sprintf("%s: %v asked before, %s", e.Name, e.Holder, e.why)
}

func (e *behindError) Unwrap() error { return e.HeldError }

// behind is the answer to who stands behind one of this host that waits itself: for
// the readers to go, for another of its names, or for the nodes to answer.
func (s *session) behind(p *waitqueue.Waiter, way waitqueue.Obstacle) error {
	held := &redlock.HeldError{Name: p.Label(), Holder: s.d.holderOf(way.Waiter.Requester, way.Waiter.Requester.Asked), Waiting: true}
	if way.Blockage != nil && way.Blockage.Together {
		held.Shared = true
		return held
	}
	return &behindError{held, s.why(way)}
}

// why says what keeps the one before waiting, without the names that the caller may
// not know.
func (s *session) why(way waitqueue.Obstacle) string {
	by, view := way.Blockage, s.view()
	switch {
	case by != nil && by.Held:
		return fmt.Sprintf("and waits for %s, which %v holds", view.Name(by.Name), by.Requester)
	case by != nil:
		return fmt.Sprintf("and waits for %s, which %v asked for earlier", view.Name(by.Name), by.Requester)
	case way.Failure != nil:
		return fmt.Sprintf("and waits for %s, held by others at least in part", view.Label(way.Waiter.Names))
	}
	return "and is asking the nodes for it"
}
