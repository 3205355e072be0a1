package session

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/redlock"
)

// whyNotReady says why the lock could not be had without so much as asking a node.
func (a *lockRequest) whyNotReady() error {
	switch way := a.session.host.Queue.Obstacle(&a.waiter); {
	case way.Holder != nil:
		return a.session.heldHere(way.Holder, way.Lease)
	case way.Waiter != nil:
		return a.session.blockedByWaiter(&a.waiter, way)
	case way.Failure != nil:
		return renamed(a.session.view(), way.Failure, &a.waiter)
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

// blockedByWaiter is the answer to who stands behind one of this host that waits itself: for
// the readers to go, for another of its names, or for the nodes to answer.
func (s *session) blockedByWaiter(p *waitqueue.Waiter, way waitqueue.Obstacle) error {
	held := &redlock.HeldError{Name: p.Label(), Holder: s.host.holderOf(way.Waiter.Requester, way.Waiter.Requester.Asked), Waiting: true}
	if way.Blockage != nil && way.Blockage.Together {
		held.Shared = true
		return held
	}
	return &behindError{held, s.whyBlocked(way)}
}

// whyBlocked says what keeps the one before waiting, without the names that the caller may
// not know.
func (s *session) whyBlocked(way waitqueue.Obstacle) string {
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

// announceIntent tells the nodes that the request waits (writer intent), or renews that. An
// exclusive request waits in the daemon for the readers of this host, and readers of other hosts
// must not overtake it: see waitqueue.Waiter.NextInLine.
func (a *lockRequest) announceIntent() {
	if a.intent != nil {
		a.intent.Renew()
		return
	}
	intent, err := a.session.host.Nodes.Intend(a.Request())
	if err != nil { // a bad request: Acquire says so
		return
	}
	a.intent = intent
}

// endIntent ends it where the request never came to ask for the lock.
func (a *lockRequest) endIntent() {
	if a.intent != nil {
		a.intent.End()
	}
}

// renamed is the error that another waiter of this host got from the nodes, with the
// names of w: the client may not know the names that the other one asked for.
func renamed(view access.View, err error, w *waitqueue.Waiter) error {
	if held, ok := errors.AsType[*redlock.HeldError](err); ok && view.Rules != nil {
		own := *held
		own.Name = w.Label()
		return &own
	}
	if none, ok := errors.AsType[*redlock.NoQuorumError](err); ok && view.Rules != nil {
		own := *none
		own.Name = w.Label()
		return &own
	}
	return err
}

// redact replaces the names of a deadlock that the client may not know.
func redact(view access.View, err error) error {
	deadlock, ok := errors.AsType[*waitqueue.DeadlockError](err)
	if !ok || view.Rules == nil {
		return err
	}
	cycle := slices.Clone(deadlock.Cycle)
	for i := range cycle {
		cycle[i].Name = view.Name(cycle[i].Name)
	}
	return &waitqueue.DeadlockError{Cycle: cycle}
}

// heldHere is the answer to who waits for a lock that a client of this very
// daemon holds.
func (s *session) heldHere(w *waitqueue.Waiter, lease waitqueue.Lease) error {
	return &redlock.HeldError{
		Name:   s.view().Label(w.Names),
		Holder: s.host.holderOf(w.Requester, lease.Since()),
		Shared: w.Kind.Shared,
		Slots:  int(w.Kind.Slots),
		TTL:    max(lease.Validity(), time.Millisecond),
	}
}

// holderOf is who holds a lock since a BootTime, or has waited for it.
func (d *Host) holderOf(who *waitqueue.Requester, since time.Duration) redlock.Holder {
	return redlock.Holder{
		Host: d.hostname, PID: who.PID, UID: who.UID, User: who.User,
		Since: time.Now().Add(since - d.Clock()),
	}
}
