package locktable

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// Grant is what the nodes granted: a redlock.Lease.
type Grant interface {
	ID() string      // what its client knows
	TokenID() string // what the nodes show; after a pass, it is the ID of an earlier client
	Passed() bool    // it was granted by a pass
	Err() error      // nil while it is held
	Since() time.Duration
	Validity() time.Duration
}

// Backing is what the caller has behind a Lease: its request to the nodes, and then what they granted.
type Backing interface {
	// Request may be called after the waiter has left, by the goroutine that hands a lock over.
	Request() redlock.Request
	// Undelivered is called after Request, by the same goroutine, if the waiter had left when
	// the attempt was begun.
	Undelivered()
	// Grant is called only after the grant.
	Grant() Grant
	// EndsByItself reports that the lease ends without its owner: nobody extends it
	// (hold=ttl), or it was lost. It is called only after the grant.
	EndsByItself() bool
}

// Lease is a lease of this host, from the arrival of its LOCK on. The Waiter is guarded by what guards
// the Queue, the rest by what guards the Table.
type Lease struct {
	Requester
	Waiter Waiter

	holder    *Client    // finds it by its names; RESUME changes it, unless it is a process
	reporter  *Client    // the connection that reports its loss; nil once that has ended
	furthers  *[]further // the LOCKs that count besides the first (reentrant=yes), in the order of arrival; nil: there are none
	Life      Life       // Apply changes it
	OfProcess bool       // holder is a process (hold=pid); does not change
	IsShared  bool       // it was taken exclusively, and is shared now (EXTEND mode=shared)
	hasLeft   bool       // a process no longer holds it
	isCharged bool       // its user's limit counts it: see Table.Charge
	waits     bool       // likewise, as a LOCK that may wait
}

// further is a LOCK that counts on a lease besides the first.
type further struct {
	id         string
	isAnswered bool // else it begins again after a restart, and counts then
}

// Init sets the fields that do not change. It copies names. The Requester must be set.
func (l *Lease) Init(names []string, kind Kind, patient bool, backing Backing) {
	l.Waiter.init(names, kind, patient, &l.Requester, backing)
}

// SetHolder sets the client that finds a lease by its names, and the connection that reports its loss
// (nil: none does), for a Lease that nobody else knows yet.
func (l *Lease) SetHolder(holder, reporter *Client) {
	l.holder, l.reporter, l.OfProcess = holder, reporter, holder.IsProcess
	l.Waiter.Owner = l.Owns()
}

// Holder returns the client that finds the lease by its names.
func (l *Lease) Holder() *Client { return l.holder }

// Reporter returns the connection that reports its loss, or nil.
func (l *Lease) Reporter() *Client { return l.reporter }

// Backing returns what Init got.
func (l *Lease) Backing() Backing { return l.Waiter.backing }

// HasClient reports whether a connection or a process has the lease.
func (l *Lease) HasClient() bool { return l.reporter != nil || l.OfProcess }

// isLost reports whether the lease, which was granted, was lost or released.
func (l *Lease) isLost() bool { return l.Waiter.backing.Grant().Err() != nil }

// Mode returns how the lease is held.
func (l *Lease) Mode() Kind {
	if l.IsShared {
		return Kind{Shared: true}
	}
	return l.Waiter.Kind
}

// Owns returns the present owner, for the search for deadlocks.
func (l *Lease) Owns() Owner {
	switch {
	case l.Life.State == Kept:
		return Owner{Client: l}
	case l.OfProcess:
		return Owner{Client: l.holder, Name: l.Owner}
	case l.reporter != nil:
		return Owner{Client: l.reporter, Name: l.Owner}
	}
	return Owner{Client: l, Name: l.Owner}
}

// MaxCount is how many LOCKs of one owner can count on one lease (reentrant=yes). No sound program
// needs so many.
const MaxCount = 1000

// ErrTooManyCounts refuses a LOCK beyond MaxCount.
var ErrTooManyCounts = fmt.Errorf("taken %d times by this owner, the maximum: is an UNLOCK missing?", MaxCount)

// SetFurthers sets the LOCKs that count besides the first, and are answered, by their ids, before
// Table.Restore.
func (l *Lease) SetFurthers(ids []string) {
	for _, id := range ids {
		l.putFurthers(append(l.all(), further{id, true}))
	}
}

// AnsweredFurthers returns the ids of the LOCKs that count besides the first, and are answered.
func (l *Lease) AnsweredFurthers() (ids []string) {
	for _, f := range l.all() {
		if f.isAnswered {
			ids = append(ids, f.id)
		}
	}
	return ids
}

// Answer notes that a LOCK with the id that counts besides the first is about to be answered.
func (l *Lease) Answer(id string) {
	if i := slices.Index(l.all(), further{id, false}); i >= 0 {
		l.all()[i].isAnswered = true
	}
}

// all returns the LOCKs that count besides the first.
func (l *Lease) all() []further {
	if l.furthers == nil {
		return nil
	}
	return *l.furthers
}

func (l *Lease) putFurthers(all []further) {
	if l.furthers = nil; len(all) > 0 {
		l.furthers = &all
	}
}

// Count returns how many UNLOCKs it takes to end the lease.
func (l *Lease) Count() int { return 1 + len(l.all()) }

// Counts reports whether the LOCK with the id counts: it was neither cancelled nor undone by an UNLOCK.
func (l *Lease) Counts(id string) bool {
	return id != "" && (id == l.ID || l.indexOf(id) >= 0)
}

// indexOf returns the index of the first LOCK with the id that counts besides the first; -1: there is none.
func (l *Lease) indexOf(id string) int {
	return slices.IndexFunc(l.all(), func(f further) bool { return f.id == id })
}

// CountUp counts a further LOCK of the same names and kind on l, unless the limit of the lease's user is
// reached, which is not w's user if root has resumed it. isRepeated means that its id is counted already.
// isAllowed means that it was allowed before a restart. already is the error for a LOCK that does not
// count.
func (t *Table) CountUp(l *Lease, w *Waiter, id string, reentrant, isAllowed bool, already error) (isRepeated bool, err error) {
	switch {
	case l.Life.State == Kept, l.Life.State == Releasing, l.Life.State == Gone:
		return false, redlock.ErrReleased
	case !slices.Equal(w.Names, l.Waiter.Names):
		return false, fmt.Errorf("%w, within %s", already, l.Waiter.Label())
	case l.Counts(id):
		return true, nil
	case !reentrant:
		return false, already
	case w.Kind != l.Mode():
		return false, fmt.Errorf("%w, in another mode or with another number of slots: a lease does not change", already)
	case l.Count() >= MaxCount:
		return false, ErrTooManyCounts
	}
	if err := t.checkFurther(l); err != nil && !isAllowed {
		return false, err
	}
	t.setFurthers(l, append(l.all(), further{id: id}))
	return false, nil
}

// CountDown undoes the last LOCK, for an UNLOCK, and returns how many are left. None is left if the
// client that counted is gone and has not resumed the lease.
func (t *Table) CountDown(l *Lease) (left int) {
	n := len(l.all())
	if n == 0 || !l.HasClient() {
		return 0
	}
	t.setFurthers(l, l.all()[:n-1])
	return n
}

// WithdrawCount undoes a further LOCK that stops waiting. It returns false if the lock has been
// granted: then the LOCK counts.
func (t *Table) WithdrawCount(l *Lease, id string) bool {
	if l.Life.State != Acquiring {
		return false
	}
	if i := l.indexOf(id); i >= 0 {
		t.setFurthers(l, slices.Concat(l.all()[:i], l.all()[i+1:]))
	}
	return true
}

// Errors of a lease that a client cannot have.
var (
	ErrTaken  = errors.New("the client holds or wants one of the names")
	ErrClosed = errors.New("the client has ended")
	ErrEnded  = errors.New("the lease has ended")
)
