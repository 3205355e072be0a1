package daemon

import (
	"slices"
	"sync"
)

// desk is where leases go by their names: a connection has one, and so does a
// process whose life holds leases (hold=pid), from whichever connections they
// were taken.
type desk struct {
	mu       sync.Mutex // guards what follows
	closed   bool       // nothing is held here any more
	holdings map[ident]*holding
	lost     []*holding     // those of the holdings that are remembered, the oldest first
	asks     map[ident]*ask // LOCKs under way
}

// maxRemembered bounds the lost leases that a desk can be asked about.
const maxRemembered = 1000

// ident is what one name of a lock goes by at a desk: several names of one lock
// are as many idents.
type ident struct {
	uid         int // who asked, where it goes by a process: that can hold leases of its user, and of root
	owner, name string
}

// ident: on a connection all is its user's, also what root has resumed that another took.
func (h *holding) ident(name string) ident {
	if h.process == nil {
		return ident{owner: h.Owner, name: name}
	}
	return ident{h.UID, h.Owner, name}
}

// enter makes a LOCK known that has come, unless one of its names goes by a LOCK
// that is known already: those are the firsts then. The names of firsts that are
// known to be over count as free (over).
func (k *desk) enter(a *ask, over map[*holding]bool) (firsts []*ask) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range a.names() {
		if first := k.firstOf(a.ident(name)); first != nil && !over[first.holding] {
			firsts = append(firsts, first)
		}
	}
	if firsts != nil {
		return firsts
	}
	if k.asks == nil {
		k.asks = map[ident]*ask{}
	}
	for _, name := range a.names() {
		k.asks[a.ident(name)] = a
	}
	return nil
}

// firstOf is the LOCK that the name goes by, under way, so that its end can be
// waited for, or granted, be it that it was lost since. It needs mu.
func (k *desk) firstOf(at ident) *ask {
	if first := k.asks[at]; first != nil {
		if first.done == nil {
			first.done = make(chan struct{})
		}
		return first
	}
	if h := k.holdings[at]; h != nil {
		return grantedBefore(h)
	}
	return nil
}

// answered takes out a LOCK that has come to its end.
func (k *desk) answered(a *ask) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range a.names() {
		if at := a.ident(name); k.asks[at] == a {
			delete(k.asks, at)
		}
	}
	if a.done != nil {
		close(a.done)
	}
}

// add makes h what goes by its names. What went by one of them before was lost:
// a new LOCK by the same owner ends its memory, which is the caller's to do. It is
// false if the desk is closed.
func (k *desk) add(h *holding) (before []*holding, open bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.put(h)
}

// put needs mu.
func (k *desk) put(h *holding) (before []*holding, open bool) {
	if k.closed {
		return nil, false
	}
	if k.holdings == nil {
		k.holdings = map[ident]*holding{}
	}
	for _, name := range h.names() {
		at := h.ident(name)
		if old := k.holdings[at]; old != nil {
			before = append(before, old)
		}
		k.holdings[at] = h
	}
	return before, true
}

func (k *desk) get(at ident) *holding {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holdings[at]
}

// remove forgets a holding where it is still the one that goes by a name.
func (k *desk) remove(h *holding) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range h.names() {
		if at := h.ident(name); k.holdings[at] == h {
			delete(k.holdings, at)
		}
	}
	if i := slices.Index(k.lost, h); i >= 0 {
		k.lost = slices.Delete(k.lost, i, i+1)
	}
}

// remember keeps a lost holding for whoever asks. Where there are too many, here or
// of its user, the oldest is to be forgotten.
func (k *desk) remember(h *holding, tooMany bool) (oldest *holding) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = append(k.lost, h)
	if tooMany || len(k.lost) > maxRemembered {
		oldest = k.lost[0]
		k.lost = slices.Delete(k.lost, 0, 1)
	}
	return oldest
}

// all are the holdings, each once.
func (k *desk) all() []*holding {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.each()
}

// close takes all that is held here.
func (k *desk) close() []*holding {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.each()
	k.closed, k.holdings, k.lost = true, nil, nil
	return all
}

// each needs mu.
func (k *desk) each() []*holding {
	all := make([]*holding, 0, len(k.holdings))
	for at, h := range k.holdings {
		if at.name == h.names()[0] { // once is enough for several names
			all = append(all, h)
		}
	}
	return all
}

func (k *desk) inUse() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.holdings) > 0 || len(k.asks) > 0
}
