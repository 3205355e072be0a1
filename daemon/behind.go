package daemon

import (
	"errors"
	"fmt"

	"github.com/redlockd/redlockd/redlock"
)

// obstacle is what a place waits for. The zero obstacle: nothing any more.
type obstacle struct {
	holder *holding  // of this host; or
	met    error     // what the first of those in its way has met on the nodes; or
	waiter *place    // that one, which does not hold it either
	behind *obstruct // what keeps that one waiting in this host's lines; nil: it is asking the nodes
}

// obstruct is one step of a line: who is in the way of another, and at which name.
type obstruct struct {
	name string
	who  *asker
	held bool // by who; or else he asked earlier
	same bool // he holds it together with others, as the one that is refused wants to
}

// ahead says what p waits for.
func (q *queue) ahead(p *place) obstacle {
	q.lock(p)
	defer q.unlock(p)
	first, _ := q.inWayOf(p)
	switch {
	case first == nil:
		return obstacle{met: p.met}
	case first.holding != nil:
		return obstacle{holder: first.holding}
	case first.met != nil && (covers(p, first) || !errors.Is(first.met, redlock.ErrHeld)): // that is in p's way, too
		return obstacle{met: first.met}
	}
	return obstacle{waiter: first, met: first.met, behind: q.obstructing(first, p)}
}

// obstructing is what keeps first waiting, for whom p waits. It needs mu.
func (q *queue) obstructing(first, p *place) *obstruct {
	by, name := q.inWayOf(first)
	if first.called || by == nil {
		return nil
	}
	held := by.holding != nil
	return &obstruct{name: name, who: by.who, held: held, same: held && p.kind.shared && by.kind == p.kind && overlap(by, p)}
}

// ahead says why the lock could not be had without so much as asking a node.
func (a *ask) ahead() error {
	switch way := a.s.d.queue.ahead(&a.place); {
	case way.holder != nil:
		return a.s.heldHere(way.holder)
	case way.waiter != nil:
		return a.s.behind(&a.place, way)
	case way.met != nil:
		return a.s.view().met(way.met, &a.place)
	}
	return &redlock.HeldError{Name: a.place.label()} // it has gone just now: another one asks the nodes
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
func (s *session) behind(p *place, way obstacle) error {
	held := &redlock.HeldError{Name: p.label(), Holder: s.d.holderOf(way.waiter.who, way.waiter.who.since), Waiting: true}
	if way.behind != nil && way.behind.same {
		held.Shared = true
		return held
	}
	return &behindError{held, s.why(way)}
}

// why says what keeps the one before waiting, without the names that the caller may
// not know.
func (s *session) why(way obstacle) string {
	by, view := way.behind, s.view()
	switch {
	case by != nil && by.held:
		return fmt.Sprintf("and waits for %s, which %v holds", view.name(by.name), by.who)
	case by != nil:
		return fmt.Sprintf("and waits for %s, which %v asked for earlier", view.name(by.name), by.who)
	case way.met != nil:
		return fmt.Sprintf("and waits for %s, held by others at least in part", view.label(way.waiter))
	}
	return "and is asking the nodes for it"
}
