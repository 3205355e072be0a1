package locktable

import (
	"errors"
	"fmt"
)

// ErrLimit is the error of a request that exceeds a limit of the config.
var ErrLimit = errors.New("a limit of the config is reached")

// Limits bounds what each user has in the Table. 0 is no bound.
type Limits struct {
	Leases  int // a LOCK counts from the request on, so that no waiter is refused in the end; also bounds lost leases
	Waiters int // LOCKs that may wait
}

// usage is what one user has.
type usage struct {
	leases  int // the sum of charge of all leases and LOCKs under way
	waiters int // LOCKs under way that may wait
	lost    int // lost leases that clients can still ask about
}

// charge returns how many leases l counts as: each name costs as much as a lease, and so does each
// further LOCK, because the daemon remembers its id= as long as the lease.
func (l *Lease) charge() int { return len(l.Waiter.Names) + len(l.all()) }

// SetLimits replaces the limits. Leases and LOCKs above a new one stay.
func (t *Table) SetLimits(limits Limits) { t.limits = limits }

// CountsNothing reports whether no user has anything.
func (t *Table) CountsNothing() bool { return len(t.users) == 0 }

// Charge counts a new LOCK, until its end or the end of its lease, unless it is above a limit. If it
// does not wait, only Leases bounds it. isAllowed means that it was allowed before a restart.
func (t *Table) Charge(l *Lease, isAllowed bool) error {
	u, names := t.users[l.UID], len(l.Waiter.Names)
	switch {
	case isAllowed:
	case l.Waiter.Patient && IsAtBound(u.waiters, t.limits.Waiters): // before leases, which also count waiters
		return OverLimit("waiters_per_user", t.limits.Waiters)
	case IsAtBound(u.leases+names-1, t.limits.Leases):
		err := OverLimit("leases_per_user", t.limits.Leases)
		if u.waiters > 0 { // otherwise a user with few leases would not understand it
			err = fmt.Errorf("%w, of which %d only wait for a lock", err, u.waiters)
		}
		if names > 1 {
			err = fmt.Errorf("%w, and this would be %d more: each name counts", err, names)
		}
		return err
	}
	t.chargeLease(l)
	if l.waits = l.Waiter.Patient; l.waits {
		t.count(l, usage{waiters: 1})
	}
	return nil
}

func (t *Table) chargeLease(l *Lease) {
	l.isCharged = true
	t.count(l, usage{leases: l.charge()})
}

// checkFurther returns why the user of l may not have one more further LOCK, or nil.
func (t *Table) checkFurther(l *Lease) error {
	if IsAtBound(t.users[l.UID].leases, t.limits.Leases) {
		return OverLimit("leases_per_user", t.limits.Leases)
	}
	return nil
}

// setFurthers replaces the further LOCKs that count.
func (t *Table) setFurthers(l *Lease, all []further) {
	if l.isCharged {
		t.count(l, usage{leases: len(all) - len(l.all())})
	}
	l.putFurthers(all)
}

// uncharge ends what Charge counted, and undoes the further LOCKs.
func (t *Table) uncharge(l *Lease) {
	var counted usage
	if l.isCharged {
		counted.leases = -l.charge()
	}
	if l.waits {
		counted.waiters = -1
	}
	t.count(l, counted)
	l.isCharged, l.waits, l.furthers = false, false, nil
}

// count adds to what the user of l has.
func (t *Table) count(l *Lease, more usage) {
	u := t.users[l.UID]
	u = usage{u.leases + more.leases, u.waiters + more.waiters, u.lost + more.lost}
	if t.users[l.UID] = u; u == (usage{}) {
		delete(t.users, l.UID)
	}
}

// IsAtBound reports whether n is at the bound; 0 is no bound.
func IsAtBound(n, bound int) bool { return bound != 0 && n >= bound }

// OverLimit returns the error of a limit, by its name in the config. It matches ErrLimit.
func OverLimit(name string, bound int) error {
	return fmt.Errorf("%w: %s = %d", ErrLimit, name, bound)
}
