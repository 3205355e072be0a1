package locktable

import (
	"iter"
	"maps"
	"slices"
)

// Client is a client that can hold leases: a connection, or a process that holds the leases of several
// connections (hold=pid). It finds them, and LOCKs under way, by their names. The zero value is a
// connection without leases.
type Client struct {
	Of        any  // what the caller has behind it
	IsProcess bool // does not change
	isClosed  bool // it accepts no more leases
	leases    map[nameKey]*Lease
	lost      []*Lease            // lost leases that are remembered, the oldest first
	requests  map[nameKey]*Lease  // LOCKs under way
	reports   map[*Lease]struct{} // leases of processes whose loss this connection reports
}

// maxRemembered bounds the lost leases that one client remembers.
const maxRemembered = 1000

// nameKey is one name of a lock. A lock of several names has as many keys.
type nameKey struct {
	uid         int // the user of the LOCK if a process holds the lease, because it can also hold leases of root; else 0
	owner, name string
}

// nameKey returns the key of one of the lease's names. On a connection all leases count as its
// user's, even a lease of another user that root has resumed.
func (l *Lease) nameKey(name string) nameKey {
	if !l.OfProcess {
		return nameKey{owner: l.Owner, name: name}
	}
	return nameKey{l.UID, l.Owner, name}
}

// Find returns the lease with a name of an owner, or nil. uid is the user if the client is a process.
func (c *Client) Find(uid int, owner, name string) *Lease {
	if !c.IsProcess {
		uid = 0
	}
	return c.leases[nameKey{uid, owner, name}]
}

// Begin adds a new LOCK, unless earlier LOCKs (firsts) have some of its names: under way, or granted,
// even if the lease was lost since. Names of leases in ended count as free.
func (c *Client) Begin(l *Lease, ended map[*Lease]bool) (firsts []*Lease) {
	for _, name := range l.Waiter.Names {
		first := c.requests[l.nameKey(name)]
		if first == nil {
			first = c.leases[l.nameKey(name)]
		}
		if first != nil && !ended[first] {
			firsts = append(firsts, first)
		}
	}
	if firsts != nil {
		return firsts
	}
	if c.requests == nil {
		c.requests = map[nameKey]*Lease{}
	}
	for _, name := range l.Waiter.Names {
		c.requests[l.nameKey(name)] = l
	}
	return nil
}

// End removes a LOCK that has ended.
func (c *Client) End(l *Lease) {
	for _, name := range l.Waiter.Names {
		if at := l.nameKey(name); c.requests[at] == l {
			delete(c.requests, at)
		}
	}
}

// HoldsOtherwise reports whether the connection holds a name of a new LOCK by itself and the LOCK is
// for a process, or the reverse: the LOCK would wait for its own connection.
func (c *Client) HoldsOtherwise(l *Lease) bool {
	if !l.OfProcess && len(c.reports) == 0 {
		return false
	}
	others := maps.Keys(c.reports)
	if l.OfProcess {
		others = maps.Values(c.leases)
	}
	for other := range others {
		if other.Owner == l.Owner && !other.isLost() && Overlap(&other.Waiter, &l.Waiter) {
			return true
		}
	}
	return false
}

// add makes the client find l by its names. It returns the lost leases that it found by these names
// before, or that are being released: the caller must forget them. If l was lost before its LOCK was
// answered, and a later LOCK has one of the names, add does nothing, and returns l. open is false if the
// client has ended.
func (c *Client) add(l *Lease) (replaced []*Lease, open bool) {
	if c.isClosed {
		return nil, false
	}
	if c.leases == nil {
		c.leases = map[nameKey]*Lease{}
	}
	for _, name := range l.Waiter.Names {
		if other := c.leases[l.nameKey(name)]; other != nil && l.isLost() && !other.isLost() {
			return []*Lease{l}, true
		}
	}
	for _, name := range l.Waiter.Names {
		at := l.nameKey(name)
		if old := c.leases[at]; old != nil {
			replaced = append(replaced, old)
		}
		c.leases[at] = l
	}
	return replaced, true
}

// remove removes a lease, except from names that find another lease by now.
func (c *Client) remove(l *Lease) {
	for _, name := range l.Waiter.Names {
		if at := l.nameKey(name); c.leases[at] == l {
			delete(c.leases, at)
		}
	}
	if i := slices.Index(c.lost, l); i >= 0 {
		c.lost = slices.Delete(c.lost, i, i+1)
	}
	delete(c.reports, l)
}

// report makes the connection report the loss of a process's lease.
func (c *Client) report(l *Lease) {
	if c.reports == nil {
		c.reports = map[*Lease]struct{}{}
	}
	c.reports[l] = struct{}{}
}

// remember keeps a lost lease, so that CHECK can report the loss. If this client or the user
// has too many, it returns the oldest one, which the caller must forget.
func (c *Client) remember(l *Lease, tooMany bool) (oldest *Lease) {
	c.lost = append(c.lost, l)
	if tooMany || len(c.lost) > maxRemembered {
		oldest = c.lost[0]
		c.lost = slices.Delete(c.lost, 0, 1)
	}
	return oldest
}

// takeOver adds a lease that another client has, as add does.
func (c *Client) takeOver(l *Lease) (replaced []*Lease, err error) {
	for _, name := range l.Waiter.Names {
		at := l.nameKey(name)
		other := c.leases[at]
		if other == l {
			return nil, nil // another LOCK that counts on it was faster
		}
		if c.requests[at] != nil || other != nil && !other.isLost() {
			return nil, ErrTaken
		}
	}
	replaced, open := c.add(l)
	if !open {
		return nil, ErrClosed
	}
	return replaced, nil
}

// All yields the leases, each once.
func (c *Client) All() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for at, l := range c.leases {
			if at.name == l.Waiter.Names[0] && !yield(l) { // a lease of several names counts once
				return
			}
		}
	}
}

// Reports yields the leases of processes whose loss this connection reports.
func (c *Client) Reports() iter.Seq[*Lease] { return maps.Keys(c.reports) }

// HoldsLeases reports whether the client holds leases or waits for some.
func (c *Client) HoldsLeases() bool {
	return len(c.leases)+len(c.requests)+len(c.reports) > 0
}

// Remembers returns how many lost leases the client can ask about.
func (c *Client) Remembers() int { return len(c.lost) }

// close ends the client, and returns the leases that it had.
func (c *Client) close() []*Lease {
	all := slices.Collect(c.All())
	c.isClosed, c.leases, c.lost = true, nil, nil
	return all
}
