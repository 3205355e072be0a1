package daemon

import (
	"errors"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/redlock"
)

// view is what one caller may see of others' locks.
type view struct {
	rules *config.Access // nil: everything
	who   caller
}

func (s *session) view() view { return view{s.d.access.Load(), s.caller} }

// shows are those of a place's names that LIST tells the caller, nil if none: what
// its own user holds or waits for, and what it may inspect.
func (v view) shows(p *waitqueue.Waiter) []string {
	if v.rules == nil || v.who.uid != unknownUser && v.who.uid == p.Requester.UID {
		return p.Names
	}
	return v.only(p.Names, func(name string) bool { return ruleFor(v.rules, v.who, config.RightInspect, name) != nil })
}

// knows: who may do anything with a lock learns by that who has it.
func (v view) knows(name string) bool {
	return v.rules == nil || slices.ContainsFunc(config.AllRights, func(right string) bool {
		return ruleFor(v.rules, v.who, right, name) != nil
	})
}

func (view) only(names []string, keep func(string) bool) (kept []string) {
	for _, name := range names {
		if keep(name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// counts are how many leases that are held, and waiters, of this daemon LIST would show.
func (v view) counts(d *daemon) (leases, waiters int) {
	for _, h := range d.leases.all() {
		if h.lease.Err() == nil && v.shows(&h.waiter) != nil {
			leases++
		}
	}
	for _, p := range d.queue.Waiting() {
		if v.shows(p) != nil {
			waiters++
		}
	}
	return leases, waiters
}

// hiddenLock is what an error calls a lock that is none of the caller's business.
const hiddenLock = "another lock"

// label names a place of somebody else for an error.
func (v view) label(p *waitqueue.Waiter) string {
	known := v.only(p.Names, v.knows)
	if known == nil {
		return hiddenLock
	}
	return strings.Join(known, ",")
}

// name names one of somebody else's locks for an error.
func (v view) name(of string) string {
	if v.knows(of) {
		return of
	}
	return hiddenLock
}

// met is what another place has met on the nodes, as if p had: that one's list of
// names is not told.
func (v view) met(err error, p *waitqueue.Waiter) error {
	if held, ok := errors.AsType[*redlock.HeldError](err); ok && v.rules != nil {
		own := *held
		own.Name = p.Label()
		return &own
	}
	if none, ok := errors.AsType[*redlock.NoQuorumError](err); ok && v.rules != nil {
		own := *none
		own.Name = p.Label()
		return &own
	}
	return err
}

// veil takes the names out of a deadlock that the caller may not know.
func (v view) veil(err error) error {
	deadlock, ok := errors.AsType[*waitqueue.DeadlockError](err)
	if !ok || v.rules == nil {
		return err
	}
	cycle := slices.Clone(deadlock.Cycle)
	for i := range cycle {
		cycle[i].Name = v.name(cycle[i].Name)
	}
	return &waitqueue.DeadlockError{Cycle: cycle}
}
