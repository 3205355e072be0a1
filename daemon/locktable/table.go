package locktable

import (
	"iter"
	"maps"
	"strings"
	"sync/atomic"
)

// Table has the leases of this host, by their ids. One mutex of its caller guards it, with all Clients
// and Leases.
type Table struct {
	limits Limits
	users  map[int]usage // by user id; it has no users that have nothing
	byID   map[string]*Lease
	passed map[string]*Lease // leases that were granted by a pass, by the id that the nodes show

	// Leases that a restart left without their connections, by their LOCKs. If a connection broke before
	// its client read the OK, the client repeats the LOCK with the same id= on another connection.
	unclaimed map[lockKey]*Lease
	Unclaimed atomic.Int64 // their number, for callers without the mutex; it is mostly 0
}

// NewTable makes an empty Table.
func NewTable() *Table {
	return &Table{users: map[int]usage{}, byID: map[string]*Lease{}, passed: map[string]*Lease{}, unclaimed: map[lockKey]*Lease{}}
}

// Due is what the caller must do after an event.
type Due struct {
	Effects
	Process *Client // with LeaveProcess: the process
}

// Apply applies an event to a lease. It returns what is due outside the Table. No other function
// changes the life of a lease.
func (t *Table) Apply(l *Lease, event Event) Due {
	var due Due
	l.Life, due.Effects = l.Life.After(event, l.reporter != nil || l.OfProcess)
	if due.Has(BeginRelease | DelayRelease | LeaveQueue | unregister) {
		t.ForgetUnclaimed(l) // while it knows all LOCKs that count on it
	}
	if event == NotGranted || due.Has(LeaveQueue) {
		t.uncharge(l)
	}
	if due.Has(RememberLoss) {
		t.count(l, usage{lost: 1})
	}
	if due.Has(uncountLoss) {
		t.count(l, usage{lost: -1})
	}
	if due.Has(leaveClient) {
		if l.reporter != nil {
			l.reporter.remove(l)
		}
		if l.OfProcess && !l.hasLeft {
			l.hasLeft = true
			l.holder.remove(l)
			due.Effects, due.Process = due.Effects|LeaveProcess, l.holder
		}
	}
	if due.Has(unregister) {
		grant := l.Waiter.backing.Grant()
		delete(t.byID, grant.ID())
		if grant.Passed() && t.passed[grant.TokenID()] == l {
			delete(t.passed, grant.TokenID())
		}
	}
	if due.Has(DelayRelease) {
		l.reporter = nil // nobody holds it
	}
	due.Effects &^= leaveClient | unregister | uncountLoss
	return due
}

// Grant registers a lease that was granted, by its id.
func (t *Table) Grant(l *Lease) Due {
	t.Register(l)
	if l.waits {
		l.waits = false
		t.count(l, usage{waiters: -1})
	}
	return t.Apply(l, WasGranted) // unless it was lost already
}

// Register registers a lease by its id.
func (t *Table) Register(l *Lease) {
	grant := l.Waiter.backing.Grant()
	if t.byID[grant.ID()] = l; grant.Passed() {
		t.passed[grant.TokenID()] = l
	}
}

// Name makes the client find a lease by its names. The caller must forget the lost leases with the same
// names (replaced). open is false if the client, a process, has ended meanwhile.
func (t *Table) Name(l *Lease) (replaced []*Lease, open bool) {
	if l.OfProcess && l.reporter != nil {
		l.reporter.report(l)
	}
	return l.holder.add(l)
}

// Remember keeps a lost lease, so that its client can ask about it. If the client or its user has too
// many, it returns the oldest one, which the caller must forget.
func (t *Table) Remember(l *Lease) (oldest *Lease) {
	if l.Life.Memory == Forgotten { // its client ended meanwhile
		return nil
	}
	return l.holder.remember(l, t.limits.Leases != 0 && t.users[l.UID].lost > t.limits.Leases)
}

// Resume moves a lease to a connection, with the LOCKs that count on it, unless that has it. The caller
// must forget the lost leases with the same names (replaced).
func (t *Table) Resume(l *Lease, to *Client) (replaced []*Lease, moved bool, err error) {
	if l.holder == to {
		return nil, false, nil
	}
	if replaced, err = to.takeOver(l); err != nil {
		return nil, false, err
	}
	if !l.Life.MayBeResumed() {
		to.remove(l)
		return replaced, false, ErrEnded
	}
	l.holder.remove(l)
	l.reporter, l.holder = to, to
	t.ForgetUnclaimed(l)
	return replaced, true, nil
}

// MoveReport makes a connection, and no other, report the loss of a process's lease.
func (t *Table) MoveReport(l *Lease, to *Client) error {
	if !l.Life.MayBeResumed() {
		return ErrEnded
	}
	if l.reporter != nil {
		l.reporter.remove(l)
	}
	l.reporter = to
	to.report(l)
	return nil
}

// Disconnect ends a connection. It returns its own leases, except those that another connection has
// resumed. Leases that it reports are still held by their processes.
func (t *Table) Disconnect(c *Client) (own []*Lease) {
	for _, l := range c.close() {
		if l.reporter == c {
			l.reporter = nil
			own = append(own, l)
		}
	}
	for l := range c.reports {
		if l.reporter == c {
			l.reporter = nil
		}
	}
	return own
}

// EndProcess ends a process, and returns its leases.
func (t *Table) EndProcess(c *Client) []*Lease { return c.close() }

// ByID returns a lease, or nil.
func (t *Table) ByID(id string) *Lease { return t.byID[id] }

// OnNodes returns the lease of a holder that the nodes show, or nil. Do not use it for ids that a
// client sent: after a pass, the nodes still show the id of the previous client, which knows it.
func (t *Table) OnNodes(id string) *Lease {
	if l := t.passed[id]; l != nil {
		return l
	}
	return t.byID[id]
}

// All yields the leases.
func (t *Table) All() iter.Seq[*Lease] { return maps.Values(t.byID) }

// Len returns the number of leases.
func (t *Table) Len() int { return len(t.byID) }

// lockKey identifies a repeated LOCK: the same user sends the same LOCK. A user may send the
// same id= for other names.
type lockKey struct {
	uid              int
	owner, id, names string
}

// lockKey returns the key of a LOCK of l with an id. Its names are joined by newlines, because they may
// contain commas.
func (l *Lease) lockKey(id string) lockKey {
	return lockKey{l.UID, l.Owner, id, strings.Join(l.Waiter.Names, "\n")}
}

// lockKeys returns the keys of all LOCKs that count on l.
func (l *Lease) lockKeys() (all []lockKey) {
	for _, f := range append([]further{{id: l.ID}}, l.all()...) {
		if f.id != "" {
			all = append(all, l.lockKey(f.id))
		}
	}
	return all
}

// addUnclaimed adds a lease that a restart left without its connection.
func (t *Table) addUnclaimed(l *Lease) {
	for _, by := range l.lockKeys() {
		t.unclaimed[by] = l
	}
	t.Unclaimed.Store(int64(len(t.unclaimed)))
}

// FindUnclaimed returns the lease that a LOCK got before the restart, or nil.
func (t *Table) FindUnclaimed(request *Lease) *Lease { return t.unclaimed[request.lockKey(request.ID)] }

// TakeUnclaimed removes the lease l that FindUnclaimed returned, and reports whether the repeated LOCK
// gets it: no other repeat was faster, the lease has not ended, and no connection has it.
func (t *Table) TakeUnclaimed(request, l *Lease) bool {
	return t.removeUnclaimed(request.lockKey(request.ID)) == l &&
		l.reporter == nil && !l.isLost() && l.Mode() == request.Waiter.Kind
}

// ForgetUnclaimed removes a lease that no connection can claim any more.
func (t *Table) ForgetUnclaimed(l *Lease) {
	if t.Unclaimed.Load() == 0 {
		return
	}
	for _, by := range l.lockKeys() {
		t.removeUnclaimed(by)
	}
}

func (t *Table) removeUnclaimed(by lockKey) *Lease {
	l := t.unclaimed[by]
	delete(t.unclaimed, by)
	t.Unclaimed.Store(int64(len(t.unclaimed)))
	return l
}
