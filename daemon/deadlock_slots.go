package daemon

import "iter"

// cycleOfStuck is the cycle that p would close where some wait for slots: it
// leads past those only who can never go on. It needs mu.
func (q *queue) cycleOfStuck(p *place, mine *party) []waitsFor {
	s := q.newSearch(p, mine)
	stuck := s.stuck()
	if !stuck[mine] {
		return nil
	}
	s = q.newSearch(p, mine)
	s.among = stuck
	way, _ := s.from(p)
	return way
}

// stuck are the parties that can never go on, if the asker waits: what is left
// when all have gone on that wait for nobody, or for parties that have gone on.
func (s *search) stuck() map[*party]bool {
	order := append(s.reach(s.asker, nil), s.mine)
	stuck := make(map[*party]bool, len(order))
	for _, party := range order {
		stuck[party] = true
	}
	for again := true; again; {
		again = false
		for _, party := range order {
			if stuck[party] && !s.isStuck(party, stuck) {
				delete(stuck, party)
				again = true
			}
		}
	}
	return stuck
}

// reach appends the parties that w waits for, by whatever ways, but the asker's:
// each behind those that it waits for, as far as that can be.
func (s *search) reach(w *place, order []*party) []*party {
	for _, name := range w.names {
		for ahead := range s.unseen(w, name) {
			party := ahead.party
			if party == s.mine || party.searched == s.n {
				continue
			}
			party.searched = s.n
			for _, other := range party.places {
				if other.waits() {
					order = s.reach(other, order)
				}
			}
			order = append(order, party)
		}
	}
	return order
}

// isStuck tells whether one of the party's places waits for parties that are.
func (s *search) isStuck(p *party, stuck map[*party]bool) bool {
	for _, w := range p.places {
		if w.waits() && s.staysBehind(w, p, stuck) {
			return true
		}
	}
	return p == s.mine && s.staysBehind(s.asker, p, stuck)
}

// staysBehind tells whether those in the way of w, a place of p's, stay there.
func (s *search) staysBehind(w *place, p *party, stuck map[*party]bool) bool {
	for _, name := range w.names {
		taken := int16(0)
		for ahead, how := range s.notGone(w, name, stuck) {
			if ahead.party == p {
				continue // it is p's own, lost: see endsByItself
			}
			if taken++; how == conflict || taken == w.kind.slots {
				return true
			}
		}
	}
	return false
}

// notGone are those in w's way in a line who are stuck, as far as is known. Who is not
// will not be: the first ones of whom that is known are not looked at again.
func (s *search) notGone(w *place, name string, stuck map[*party]bool) iter.Seq2[*place, way] {
	line := s.q.lines[name]
	crowded := w.isCrowded(line)
	return func(yield func(*place, way) bool) {
		seen := s.seenOf(name)
		first := &seen.gone
		if w.kind.shared {
			first, seen.moved = &seen.moved, max(seen.moved, seen.gone)
		}
		all := true // so far are not stuck
		for i, ahead := line.next(*first, w); ahead != nil; i, ahead = line.next(i+1, w) {
			how, is := w.wayOf(ahead, crowded)
			switch {
			case !stuck[ahead.party], s.endsByItself(ahead), w.kind.shared && !is:
				if all {
					*first = i + 1
				}
				continue
			case is && !yield(ahead, how):
				return
			}
			all = false
		}
	}
}
