package daemon

import (
	"errors"
	"slices"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/redlock"
)

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
