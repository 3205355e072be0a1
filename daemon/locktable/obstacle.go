package locktable

import (
	"errors"

	"github.com/redlockd/redlockd/redlock"
)

// Obstacle is what a waiter waits for. It is zero if nothing blocks the waiter.
type Obstacle struct {
	Name     string    // the name for which it waits, and which the Holder or the Waiter has
	Holder   *Waiter   // a holder of this host; or nil
	Grant    Grant     // of the Holder
	Kind     Kind      // how it holds the lock now
	Failure  error     // how the attempt of the first blocker failed on the nodes; or nil
	Waiter   *Waiter   // the first blocker, if it does not hold the lock either; or nil
	Blockage *Blockage // what the Waiter itself waits for on this host; nil: it is asking the nodes
}

// Blockage is one step of a queue: a waiter or holder that blocks another one.
type Blockage struct {
	Name      string
	Requester *Requester
	Held      bool // it holds the lock; false: it asked for it earlier
	Together  bool // it holds the lock together with others, as the refused request wants to
}

// Obstacle returns what w waits for.
func (q *Queue) Obstacle(w *Waiter) Obstacle {
	first, name := q.firstBlockerAndName(w)
	switch {
	case first == nil:
		return Obstacle{Failure: w.failure}
	case first.isGranted():
		return Obstacle{Name: name, Holder: first, Grant: first.backing.Grant(), Kind: first.mode()}
	case first.failure != nil && (covers(w, first) || !errors.Is(first.failure, redlock.ErrHeld)): // w would fail likewise
		return Obstacle{Failure: first.failure}
	}
	return Obstacle{Name: name, Waiter: first, Failure: first.failure, Blockage: q.blockageOf(first, w)}
}

// blockageOf returns what blocks first, for which w waits.
func (q *Queue) blockageOf(first, w *Waiter) *Blockage {
	by, name := q.firstBlockerAndName(first)
	if first.isReady || by == nil {
		return nil
	}
	held := by.isGranted()
	return &Blockage{
		Name: name, Requester: by.Requester, Held: held,
		Together: held && w.mode().Shared && by.mode() == w.mode() && Overlap(by, w),
	}
}
