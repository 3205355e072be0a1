package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A violation is a broken promise.
type violation struct {
	name  string
	what  string
	holds []*hold // the history of the lock, in the order of its grants
}

func (v violation) String() string { return fmt.Sprintf("lock %q: %s", v.name, v.what) }

// check returns the violations in all holds of a lock: overlapping intervals that exclude each
// other, and histories that no lock with fencing tokens can produce.
func check(name string, holds []*hold, excused []excuse) []violation {
	found := checkFast(name, holds, excused)
	if what := linearize(holds, excusesOf(name, holds, excused)); what != "" {
		found = append(found, violation{name, what, holds})
	}
	return found
}

// checkFast is check without porcupine. It sorts holds by their grants.
func checkFast(name string, holds []*hold, excused []excuse) []violation {
	slices.SortFunc(holds, func(a, b *hold) int { return cmp.Compare(a.Granted, b.Granted) })
	var found []violation
	if what := overlap(holds, excusesOf(name, holds, excused)); what != "" {
		found = append(found, violation{name, what, holds})
	}
	if what := tokens(holds, excusesOf(name, holds, excused)); what != "" {
		found = append(found, violation{name, what, holds})
	}
	return found
}

// excuses are the excuses for one lock.
type excuses []excuse

func excusesOf(name string, holds []*hold, all []excuse) (of excuses) {
	for _, one := range all {
		if (one.Name == "" || one.Name == name) && slices.ContainsFunc(holds, one.covers) {
			of = append(of, one)
		}
	}
	return of
}

// pass reports whether a clock jump excuses a hold whose token is smaller than an earlier grant's.
// After the jump, the daemon may have passed on a lock that another host already had.
func (e excuses) pass(one *hold) bool {
	return slices.ContainsFunc(e, func(excuse excuse) bool { return excuse.Name == "" && excuse.covers(one) })
}

// covers reports whether the holder may have lost the lock in that interval.
func (e excuse) covers(one *hold) bool { return one.Asked <= e.To && one.end() > e.From }

// end returns the instant up to which no other client may hold the lock.
func (e excuses) end(one *hold) instant {
	end := one.end()
	for _, excuse := range e {
		if excuse.covers(one) {
			end = min(end, excuse.From)
		}
	}
	return end
}

// overlap finds two holds that exclude each other while both clients relied on them, or more
// holders of a semaphore than it has slots. Holds are in the order of their grants.
func overlap(holds []*hold, excused excuses) string {
	var open []*hold
	for _, one := range holds {
		open = slices.DeleteFunc(open, func(other *hold) bool { return excused.end(other) <= one.Granted })
		if excused.end(one) <= one.Granted {
			continue // it had ended before the answer was read
		}
		for _, other := range open {
			if excludes(one, other) {
				return fmt.Sprintf("two holders for %v: %s, and %s", min(excused.end(one), excused.end(other))-one.Granted, other, one)
			}
		}
		open = append(open, one)
		if one.Mode == slots && len(open) > slotsOf(one.Names[0]) {
			return fmt.Sprintf("%d holders of %d slots: %v", len(open), slotsOf(one.Names[0]), open)
		}
	}
	return ""
}

func excludes(a, b *hold) bool {
	switch {
	case a.Mode == shared && b.Mode == shared:
		return false
	case a.Mode == slots && b.Mode == slots:
		return a.Slot == b.Slot
	}
	return true
}

// tokens finds a fencing token that was granted twice, or that is not larger than an earlier
// grant's although it was requested later. Readers are ordered against writers only.
func tokens(holds []*hold, excused excuses) string {
	type key struct {
		slot  string
		fence uint64
	}
	seen := map[key]*hold{}
	all, writers := map[string]*series{}, map[string]*series{} // by slot
	for _, one := range holds {
		if one.Fence == 0 {
			continue
		}
		earlier := all[one.Slot]
		if one.Mode == shared {
			earlier = writers[one.Slot]
		} else {
			if other := seen[key{one.Slot, one.Fence}]; other != nil {
				return fmt.Sprintf("the same token twice: %s, and %s", other, one)
			}
			seen[key{one.Slot, one.Fence}] = one
			writers[one.Slot] = writers[one.Slot].add(one)
		}
		if other := earlier.largestBefore(one.Asked); other != nil && other.Fence >= one.Fence && !excused.pass(one) {
			return fmt.Sprintf("a token that does not grow: %s, and then %s", other, one)
		}
		all[one.Slot] = all[one.Slot].add(one)
	}
	return ""
}

// A series is grants in order; for each it has the largest token up to there.
type series struct {
	byGrant, largest []*hold
}

func (s *series) add(one *hold) *series {
	if s == nil {
		s = &series{}
	}
	largest := one
	if n := len(s.largest); n > 0 && s.largest[n-1].Fence > one.Fence {
		largest = s.largest[n-1]
	}
	s.byGrant, s.largest = append(s.byGrant, one), append(s.largest, largest)
	return s
}

// largestBefore returns the grant with the largest token before the instant.
func (s *series) largestBefore(at instant) *hold {
	if s == nil {
		return nil
	}
	before, _ := slices.BinarySearchFunc(s.byGrant, at, func(other *hold, at instant) int { return cmp.Compare(other.Granted, at) })
	if before == 0 {
		return nil
	}
	return s.largest[before-1]
}

func (h *hold) String() string {
	return fmt.Sprintf("%s token %d slot %q (asked %v, granted %v, until %v, ended %v: %s)", h.Mode, h.Fence, h.Slot, h.Asked, h.Granted, h.Until, h.Ended, h.Reason)
}

// --- a lock with a fencing token, for porcupine

type lockState struct {
	holder int    // number of its grant, from 1; 0: it is free
	fence  uint64 // of the last grant that has one
}

type lockInput struct {
	acquire bool
	grant   int    // the number of the grant that begins or ends
	fence   uint64 // of that grant; 0: its client has no fencing tokens
}

// lockModel is the sequential specification of an exclusive lock: it is taken only if it is free,
// with a larger token than before, and released by its holder.
var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(lockState), input.(lockInput)
		if !in.acquire {
			return s.holder == in.grant, lockState{fence: s.fence}
		}
		return s.holder == 0 && (in.fence == 0 || in.fence > s.fence), lockState{holder: in.grant, fence: max(s.fence, in.fence)}
	},
	Equal: func(a, b any) bool { return a == b },
}

// linearizeTimeout bounds the search for one lock. A longer search is reported, because an
// unfinished check must not count as passed.
const linearizeTimeout = 2 * time.Minute

// linearizeGrants is how many grants porcupine gets at a time: its time and memory grow with the
// square. A lock's history without some of its grants is still a valid history, so this causes no
// false violation. The next part begins in the middle of this one.
const linearizeGrants = 200

// linearize lets porcupine look for an order in which the lock could have been taken and released.
// It checks exclusive grants only. Holds are in the order of their grants.
func linearize(holds []*hold, excused excuses) string {
	if slices.ContainsFunc(holds, func(one *hold) bool { return one.Mode != exclusive }) {
		return ""
	}
	for start := 0; ; start += linearizeGrants / 2 {
		end := min(start+linearizeGrants, len(holds))
		if what := linearizePart(holds[start:end], excused); what != "" || end == len(holds) {
			return what
		}
	}
}

func linearizePart(holds []*hold, excused excuses) string {
	var operations []porcupine.Operation
	for i, one := range holds {
		free := excused.end(one)
		if free <= one.Granted {
			// It ended before the client knew of it: it took effect at some time, and its end is
			// unknown.
			continue
		}
		operations = append(operations,
			porcupine.Operation{ClientId: i, Input: lockInput{acquire: true, grant: i + 1, fence: one.Fence}, Call: int64(one.Asked), Return: int64(one.Granted)},
			porcupine.Operation{ClientId: i, Input: lockInput{grant: i + 1}, Call: int64(free), Return: int64(never)})
	}
	if len(operations) == 0 {
		return ""
	}
	switch porcupine.CheckOperationsTimeout(lockModel, operations, linearizeTimeout) {
	case porcupine.Illegal:
		return fmt.Sprintf("porcupine: no order of these %d grants is that of a lock", len(operations)/2)
	case porcupine.Unknown:
		return fmt.Sprintf("porcupine: not decided within %v for %d grants", linearizeTimeout, len(operations)/2)
	}
	return ""
}
