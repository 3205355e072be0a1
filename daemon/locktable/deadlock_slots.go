package locktable

import "iter"

// findStuckCycle is findCycle if a step of the cycle waits for a slot. Its cycle leads only through
// participants that can never continue.
func (q *Queue) findStuckCycle(w *Waiter, own *participant) []WaitsFor {
	s := q.newSearch(w, own)
	stuck := s.stuck()
	if !stuck[own] {
		return nil
	}
	s = q.newSearch(w, own)
	s.only = stuck
	path, _ := s.pathFrom(w)
	return path
}

// stuck returns the participants that can never continue if the joining one waits. It starts with
// all, and removes each one that no stuck participant blocks, until nothing changes.
func (s *search) stuck() map[*participant]bool {
	order := append(s.reachable(s.joining, nil), s.own)
	stuck := make(map[*participant]bool, len(order))
	for _, p := range order {
		stuck[p] = true
	}
	for again := true; again; {
		again = false
		for _, p := range order {
			if stuck[p] && !s.isStuck(p, stuck) {
				delete(stuck, p)
				again = true
			}
		}
	}
	return stuck
}

// reachable appends the participants that w waits for, directly or through others, except
// s.own. If there is no cycle, a participant comes after the ones that it waits for.
func (s *search) reachable(w *Waiter, order []*participant) []*participant {
	for _, name := range w.Names {
		for ahead := range s.newBlockers(w, name) {
			p := ahead.participant
			if p == s.own || p.lastSearch == s.number {
				continue
			}
			p.lastSearch = s.number
			for _, other := range p.waiters {
				if other.isBlocked() {
					order = s.reachable(other, order)
				}
			}
			order = append(order, p)
		}
	}
	return order
}

// isStuck reports whether a waiter of p stays blocked by participants that are stuck.
func (s *search) isStuck(p *participant, stuck map[*participant]bool) bool {
	for _, w := range p.waiters {
		if w.isBlocked() && s.staysBlocked(w, p, stuck) {
			return true
		}
	}
	return p == s.own && s.staysBlocked(s.joining, p, stuck)
}

// staysBlocked reports whether the stuck blockers of w, a waiter of p, are enough to block it.
func (s *search) staysBlocked(w *Waiter, p *participant, stuck map[*participant]bool) bool {
	for _, name := range w.Names {
		taken := int16(0)
		for ahead, reason := range s.stuckBlockers(w, name, stuck) {
			if ahead.participant == p {
				continue // its own lease, which was lost: see endsByItself
			}
			if taken++; reason == conflicting || taken == w.mode().Slots {
				return true
			}
		}
	}
	return false
}

// stuckBlockers yields the blockers of w in a queue that may still be stuck. A participant that was
// removed from stuck stays removed, so it skips the first waiters of the queue that are not stuck.
func (s *search) stuckBlockers(w *Waiter, name string, stuck map[*participant]bool) iter.Seq2[*Waiter, blockReason] {
	queue := s.q.names[name]
	full := w.slotsTaken(queue)
	return func(yield func(*Waiter, blockReason) bool) {
		p := s.progressOf(name)
		first := &p.free
		if w.mode().Shared {
			first, p.freeUnshared = &p.freeUnshared, max(p.freeUnshared, p.free)
		}
		allFree := true // so far
		for i, ahead := queue.next(*first, w); ahead != nil; i, ahead = queue.next(i+1, w) {
			reason, blocked := w.blockedBy(ahead, full)
			switch {
			case !stuck[ahead.participant], s.endsByItself(ahead), w.mode().Shared && !blocked:
				if allFree {
					*first = i + 1
				}
				continue
			case blocked && !yield(ahead, reason):
				return
			}
			allFree = false
		}
	}
}
