package session

import (
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/redlock"
)

// onNodes returns the lease of a holder that the nodes show, or nil: see locktable.Table.OnNodes.
func (d *Host) onNodes(holding *redlock.Holding) *heldLease {
	d.mu.Lock()
	defer d.mu.Unlock()
	return leaseOf(d.table.OnNodes(holding.ID()))
}

// leaseByID returns a lease, or nil.
func (d *Host) leaseByID(id string) *heldLease {
	d.mu.Lock()
	defer d.mu.Unlock()
	return leaseOf(d.table.ByID(id))
}

func (d *Host) allLeases() []*heldLease {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*heldLease, 0, d.table.Len())
	for l := range d.table.All() {
		all = append(all, leaseOf(l))
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

// forgetReplaced forgets lost leases whose names find another lease now.
func (d *Host) forgetReplaced(replaced []*locktable.Lease) {
	for _, l := range replaced {
		d.forget(leaseOf(l))
	}
}
