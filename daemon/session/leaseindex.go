package session

import (
	"fmt"
	"slices"

	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// leaseIndex finds leases and LOCKs under way by their names. Each connection has one, and so has
// each process that holds leases (hold=pid), for the LOCKs of all connections. The Host's mu guards it.
type leaseIndex struct {
	closed   bool // it accepts no more leases
	leases   map[indexKey]*heldLease
	lost     []*heldLease              // lost leases that are remembered, the oldest first
	requests map[indexKey]*lockRequest // LOCKs under way
}

// maxRemembered bounds the lost leases that one index remembers.
const maxRemembered = 1000

// indexKey is one name of a lock in an index. A lock of several names has as many keys.
type indexKey struct {
	uid         int // the user of the LOCK if a process holds the lease, because it can also hold leases of root; else 0
	owner, name string
}

// indexKey returns the key of one of the lease's names. On a connection all leases count as its
// user's, even a lease of another user that root has resumed.
func (h *heldLease) indexKey(name string) indexKey {
	if h.process == nil {
		return indexKey{owner: h.Owner, name: name}
	}
	return indexKey{h.UID, h.Owner, name}
}

// addRequest adds a new LOCK, unless earlier LOCKs (firsts) have some of its names, which it
// returns. Names of leases in ended count as free.
func (k *leaseIndex) addRequest(a *lockRequest, ended map[*heldLease]bool) (firsts []*lockRequest) {
	for _, name := range a.waiter.Names {
		if first := k.firstOf(a.indexKey(name)); first != nil && !ended[first.heldLease] {
			firsts = append(firsts, first)
		}
	}
	if firsts != nil {
		return firsts
	}
	if k.requests == nil {
		k.requests = map[indexKey]*lockRequest{}
	}
	for _, name := range a.waiter.Names {
		k.requests[a.indexKey(name)] = a
	}
	return nil
}

// firstOf returns the LOCK that holds or wants the name: a request under way, with a done channel,
// or one that was granted, even if its lease was lost since.
func (k *leaseIndex) firstOf(at indexKey) *lockRequest {
	if first := k.requests[at]; first != nil {
		if first.done == nil {
			first.done = make(chan struct{})
		}
		return first
	}
	if h := k.leases[at]; h != nil {
		completed := &lockRequest{heldLease: h, done: make(chan struct{})}
		close(completed.done)
		return completed
	}
	return nil
}

// removeRequest removes a LOCK that has ended.
func (k *leaseIndex) removeRequest(a *lockRequest) {
	for _, name := range a.waiter.Names {
		if at := a.indexKey(name); k.requests[at] == a {
			delete(k.requests, at)
		}
	}
	if a.done != nil {
		close(a.done)
	}
}

// add makes the index find h by its names. It returns the lost leases that it found by these names
// before: the caller must forget them. open is false if the index is closed.
func (k *leaseIndex) add(h *heldLease) (replaced []*heldLease, open bool) {
	if k.closed {
		return nil, false
	}
	if k.leases == nil {
		k.leases = map[indexKey]*heldLease{}
	}
	for _, name := range h.waiter.Names {
		at := h.indexKey(name)
		if old := k.leases[at]; old != nil {
			replaced = append(replaced, old)
		}
		k.leases[at] = h
	}
	return replaced, true
}

// remove removes a lease, except from names that find another lease by now.
func (k *leaseIndex) remove(h *heldLease) {
	for _, name := range h.waiter.Names {
		if at := h.indexKey(name); k.leases[at] == h {
			delete(k.leases, at)
		}
	}
	if i := slices.Index(k.lost, h); i >= 0 {
		k.lost = slices.Delete(k.lost, i, i+1)
	}
}

// remember keeps a lost lease, so that CHECK can report the loss. If this index or the user
// has too many, it returns the oldest one, which the caller must forget.
func (k *leaseIndex) remember(h *heldLease, tooMany bool) (oldest *heldLease) {
	k.lost = append(k.lost, h)
	if tooMany || len(k.lost) > maxRemembered {
		oldest = k.lost[0]
		k.lost = slices.Delete(k.lost, 0, 1)
	}
	return oldest
}

// all returns the leases, each once.
func (k *leaseIndex) all() []*heldLease {
	all := make([]*heldLease, 0, len(k.leases))
	for at, h := range k.leases {
		if at.name == h.waiter.Names[0] { // a lease of several names counts once
			all = append(all, h)
		}
	}
	return all
}

// close closes the index, and returns the leases that it had.
func (k *leaseIndex) close() []*heldLease {
	all := k.all()
	k.closed, k.leases, k.lost = true, nil, nil
	return all
}

func (k *leaseIndex) inUse() bool {
	return len(k.leases) > 0 || len(k.requests) > 0
}

// takeOver adds a lease that another index has, as add does.
func (k *leaseIndex) takeOver(h *heldLease) (replaced []*heldLease, err error) {
	for _, name := range h.waiter.Names {
		at := h.indexKey(name)
		other := k.leases[at]
		if other == h {
			return nil, nil // another LOCK that counts on it was faster
		}
		if k.requests[at] != nil || other != nil && other.lease.Err() == nil {
			return nil, fmt.Errorf("%s: %w", h.waiter.Label(), errOwnerHolds)
		}
	}
	replaced, open := k.add(h)
	if !open {
		return nil, server.ErrGone
	}
	return replaced, nil
}

// addToIndexLocked adds a lease to its index. The caller must forget the lost leases with the same
// names (replaced). open is false if the lease's process has ended meanwhile: then the caller must
// call processEnded.
func (h *heldLease) addToIndexLocked() (replaced []*heldLease, open bool) {
	if h.process != nil {
		h.session.addProcessLeaseLocked(h)
	}
	return h.index.add(h)
}

// leaveIndexLocked removes a lease from its index and from its session. It returns the process that
// the lease no longer uses: the caller must release it.
func (h *heldLease) leaveIndexLocked() (unused *heldProcess) {
	if h.session != nil {
		h.session.removeLeaseLocked(h)
	}
	if h.process == nil || h.freed {
		return nil
	}
	h.freed = true
	h.index.remove(h)
	return h.process
}

// leaseRegistry finds leases by their ids, from any connection. The Host's mu guards it.
type leaseRegistry struct {
	byID   map[string]*heldLease
	passed map[string]*heldLease // leases that were granted by a pass, by the id that the nodes show
}

func newLeaseRegistry() leaseRegistry {
	return leaseRegistry{byID: map[string]*heldLease{}, passed: map[string]*heldLease{}}
}

func (r *leaseRegistry) add(h *heldLease) {
	r.byID[h.lease.ID()] = h
	if h.lease.Passed() {
		r.passed[h.lease.TokenID()] = h
	}
}

// onNodes returns the lease of a holder that the nodes show, or nil. Do not use it for ids that a
// client sent: after a pass, the nodes still show the id of the previous client, which knows it.
func (d *Host) onNodes(holding *redlock.Holding) *heldLease {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.leases.passed[holding.ID()]; h != nil {
		return h
	}
	return d.leases.byID[holding.ID()]
}

// leaseByID returns a lease, or nil.
func (d *Host) leaseByID(id string) *heldLease {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leases.byID[id]
}

func (d *Host) allLeases() []*heldLease {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*heldLease, 0, len(d.leases.byID))
	for _, h := range d.leases.byID {
		all = append(all, h)
	}
	return all
}

// Held counts the leases that are not lost.
func (d *Host) Held() (n int) {
	for _, h := range d.allLeases() {
		if h.lease.Err() == nil {
			n++
		}
	}
	return n
}
