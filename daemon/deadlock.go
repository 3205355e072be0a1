package daemon

import (
	"iter"
	"slices"

	"github.com/redlockd/redlockd/ipc"
)

// owner is who can hold and wait: one owner= on one connection, or of one process.
type owner struct {
	of   any // *session, or *process with hold=pid
	name string
}

// party is an owner that waits for others of this host, or is waited for, with
// its places that do. Whom nobody stands behind, and who stands behind nobody,
// as with every lock that is wanted by one at a time, has none. It is guarded by
// the queue's mu.
type party struct {
	places   []*place
	searched int // number of the last search that came by
}

// joinParty makes p known as one that waits or is waited for. It needs mu.
func (q *queue) joinParty(p *place) {
	if p.party != nil {
		return
	}
	if p.party = q.parties[p.owner]; p.party == nil {
		p.party = &party{}
		q.parties[p.owner] = p.party
	}
	p.party.places = append(p.party.places, p)
}

// leaveParty needs mu.
func (q *queue) leaveParty(p *place) {
	if p.party == nil {
		return
	}
	others := slices.DeleteFunc(p.party.places, func(other *place) bool { return other == p })
	if p.party.places = others; len(others) == 0 {
		delete(q.parties, p.owner)
	}
	p.party = nil
}

// mayWait lets p, which is not in its lines yet, wait for those in them, unless
// one of them waits for p's owner. As a way from one to another is made by
// nothing but a place that joins, behind those that are there, the one that would
// close a cycle is always the one that joins. It needs mu.
//
// Who waits for a slot waits for any one of those who crowd: that is a deadlock
// where so many of them wait for p's owner, by whatever ways, that no slot comes
// free. What is not found is what this host does not know: cycles through owners
// of other hosts, or through what is kept from an owner by the nodes; and what a
// program waits for that is no lock.
func (q *queue) mayWait(p *place) error {
	for _, name := range p.names {
		for ahead := range q.lines[name].backward() {
			q.joinParty(ahead)
			if ahead.waits() {
				break // it has seen to those before it
			}
		}
	}
	if cycle := q.cycle(p); cycle != nil {
		return &deadlockError{cycle}
	}
	q.joinParty(p)
	return nil
}

// cycle is what p would close: from p on, each waits for the owner of the next;
// nil: none. It needs mu.
func (q *queue) cycle(p *place) []waitsFor {
	mine := q.parties[p.owner]
	if mine == nil {
		return nil // nobody waits for it
	}
	way, found := q.newSearch(p, mine).from(p)
	if found && slices.ContainsFunc(way, func(step waitsFor) bool { return step.how == crowd }) {
		way = q.cycleOfStuck(p, mine)
	}
	slices.Reverse(way)
	return way
}

// waitsFor is one step of a cycle.
type waitsFor struct {
	waiter, ahead *asker
	name          string // of the lock
	held          bool   // by ahead; or else it asked earlier
	how           way
}

// search looks, depth first, for a way back to the owner of the asker.
type search struct {
	q     *queue
	n     int // of this search
	asker *place
	mine  *party
	among map[*party]bool // nobody else is looked at; nil: all are
	seen  map[string]*seen
}

// seen is how far a line was looked through.
type seen struct {
	all, firm   int // so many of the first were in somebody's way; firm: but for those who share
	gone, moved int // so many of the first are not stuck; moved: likewise
}

// seenOf is for the line of one name.
func (s *search) seenOf(name string) *seen {
	if s.seen == nil {
		s.seen = map[string]*seen{}
	}
	if s.seen[name] == nil {
		s.seen[name] = &seen{}
	}
	return s.seen[name]
}

// unseen are those in w's way in a line who have not been in anybody's in this search:
// what is found behind them does not depend on who waits for them.
func (s *search) unseen(w *place, name string) iter.Seq2[*place, way] {
	line := s.q.lines[name]
	crowded := w.isCrowded(line)
	if w.kind.slots > 0 && !crowded {
		return w.inWay(line)
	}
	return func(yield func(*place, way) bool) {
		seen := s.seenOf(name)
		next := &seen.all
		if w.kind.shared {
			next, seen.firm = &seen.firm, max(seen.firm, seen.all)
		}
		for i, ahead := line.next(*next, w); ahead != nil; i, ahead = line.next(*next, w) {
			*next = i + 1 // who is found behind ahead goes on with the next one
			if how, is := w.wayOf(ahead, crowded); is && !yield(ahead, how) {
				return
			}
		}
	}
}

// newSearch needs mu.
func (q *queue) newSearch(asker *place, mine *party) *search {
	q.searches++
	return &search{q: q, n: q.searches, asker: asker, mine: mine}
}

// from searches on from one that waits. The way that it returns begins with its
// last step.
func (s *search) from(w *place) (way []waitsFor, found bool) {
	for _, name := range w.names {
		for ahead, how := range s.unseen(w, name) {
			if way, found = s.past(w, ahead); found {
				return append(way, waitsFor{w.who, ahead.who, name, ahead.holding != nil, how}), true
			}
		}
	}
	return nil, false
}

// past searches on from the owner of ahead, for which w waits.
func (s *search) past(w, ahead *place) (way []waitsFor, found bool) {
	party := ahead.party
	switch {
	case s.endsByItself(ahead):
		return nil, false
	case party == s.mine:
		return nil, true
	case party.searched == s.n, s.among != nil && !s.among[party]:
		return nil, false
	}
	party.searched = s.n
	for _, other := range party.places {
		if !other.waits() || other == ahead && covers(w, ahead) {
			continue
		}
		if way, found = s.from(other); found {
			return way, true
		}
	}
	return nil, false
}

// endsByItself: nothing but the time is waited for. That is so of a lease with
// hold=ttl, which nobody extends; and of one that was lost, which nobody can give back. What
// the asker's owner has of what the asker asks for is one that was lost.
func (s *search) endsByItself(ahead *place) bool {
	h := ahead.holding
	return h != nil && (h.hold == ipc.HoldTTL || h.lease.Err() != nil) || ahead.party == s.mine && overlap(ahead, s.asker)
}

// waits tells whether the place stands behind others, to wait for them. Whom the
// nodes keep waiting waits for nobody of this host. It needs mu.
func (p *place) waits() bool { return p.patient && !p.called }
