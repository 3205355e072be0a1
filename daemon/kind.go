package daemon

import (
	"iter"
	"slices"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// kind is how a lock is wanted. The zero kind is by one alone.
type kind struct {
	shared bool
	slots  int16 // by so many at a time, each in a slot of his own; 0: it has none
}

// kindOf reads the options, and refuses what no node could keep.
func kindOf(call *server.Call) (kind, error) {
	k := kind{shared: call.Mode == ipc.Shared}
	if call.Slots > 1 { // one slot is what one alone has
		k.slots = int16(call.Slots) // at most ipc.MaxSlots
	}
	switch {
	case k.slots > 0 && k.shared:
		return k, badOption("slots=%d with mode=shared: readers are as many as there are; leave one of the two out", k.slots)
	case k.slots > 0 && len(call.Names) > 1:
		return k, badOption("slots=%d with %d names: a slot is one of one name; LOCK them one after the other", k.slots, len(call.Names))
	}
	return k, nil
}

// mode is the word for it in LIST and WHO.
func (k kind) mode() string {
	if k.shared {
		return ipc.Shared.String()
	}
	return ipc.Exclusive.String()
}

// alone: whoever has the lock has it to himself.
func (k kind) alone() bool { return k == kind{} }

// overlap tells whether they ask for a name in common.
func overlap(a, b *place) bool {
	return slices.ContainsFunc(a.names, func(name string) bool { return slices.Contains(b.names, name) })
}

// inWay are those before p in a line for which it waits, the first one first:
// all of them have to go, but of those who crowd only as many as make a slot
// free. Whoever is not in the line stands behind all.
func (p *place) inWay(line *lineup) iter.Seq2[*place, way] {
	return func(yield func(*place, way) bool) {
		crowded := p.isCrowded(line)
		for ahead := range line.all() {
			if ahead == p {
				return
			}
			if how, is := p.wayOf(ahead, crowded); is && !yield(ahead, how) {
				return
			}
		}
	}
}

// wayOf is how ahead, who stands before p, is in its way, if he is.
func (p *place) wayOf(ahead *place, crowded bool) (how way, is bool) {
	switch {
	case ahead.kind != p.kind, p.kind.alone():
		return conflict, true
	case crowded:
		return crowd, true
	}
	return 0, false
}

// way is how somebody is in the way of another.
type way uint8

const (
	conflict way = iota // they cannot both hold
	crowd               // too many want a slot as both do
)

// firstInWay is the first of those; nil: none.
func (p *place) firstInWay(line *lineup) (first *place) {
	if p.kind.shared { // thousands may stand before it who share as well
		if line != nil && line.firm != nil && line.firm.number < p.number {
			return line.firm
		}
		return nil
	}
	p.inWay(line)(func(ahead *place, _ way) bool {
		first = ahead
		return false
	})
	return first
}

// isCrowded tells whether all slots are taken, or wanted, by those before p.
func (p *place) isCrowded(line *lineup) bool {
	return p.kind.slots > 0 && p.crowd(line) >= int(p.kind.slots)
}

// crowd counts those before p who want a slot as p does: they are served before
// it, whether they hold one yet or not.
func (p *place) crowd(line *lineup) (n int) {
	for ahead := range line.all() {
		if ahead == p {
			break
		}
		if ahead.kind == p.kind {
			n++
		}
	}
	return n
}

// covers tells whether a place that stands behind another waits for all that the
// other one waits for.
func covers(behind, ahead *place) bool {
	if !behind.kind.alone() && behind.kind != ahead.kind {
		return false // what readers wait for is not all that a writer waits for
	}
	for _, name := range ahead.names {
		if !slices.Contains(behind.names, name) {
			return false
		}
	}
	return true
}
