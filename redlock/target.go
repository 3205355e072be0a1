package redlock

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock/internal/script"
)

// target is what a lease is of: one key or several, and how many can hold it.
type target struct {
	key    string
	also   []string // more keys: all or none
	kind   string   // "": one holds it. Or else, what the nodes call those who share it
	slot   int32    // of a semaphore: the place, from 1 on
	prefix int32    // how much of a key is not the name
}

// isAbout tells whether it has the same keys, in the same order.
func (t *target) isAbout(other *target) bool {
	return t.key == other.key && slices.Equal(t.also, other.also)
}

// width is how many keys it has.
func (t *target) width() int { return 1 + len(t.also) }

// name is what the target is called: its names, between commas.
func (t *target) name() string {
	if len(t.also) == 0 {
		return t.key[t.prefix:]
	}
	return strings.Join(t.names(), ",")
}

func (t *target) names() []string {
	names := make([]string, 0, t.width())
	for i := range t.width() {
		names = append(names, t.at(i)[t.prefix:])
	}
	return names
}

// at is the i-th key.
func (t *target) at(i int) string {
	if i == 0 {
		return t.key
	}
	return t.also[i-1]
}

// counter is the fencing counter of the i-th key: each place has its own.
func (t *target) counter(i int) script.CounterField {
	if t.slot > 0 {
		return script.CounterOf(t.key + script.Separator + strconv.Itoa(int(t.slot)))
	}
	return script.CounterOf(t.at(i))
}

// member is how a token is kept on the nodes: the place goes before it.
func (t *target) member(token string) string {
	if t.slot > 0 {
		return strconv.Itoa(int(t.slot)) + " " + token
	}
	return token
}

// splitMember is the reverse of member. A token of an ordinary lock has no place.
func splitMember(member string) (slot int, token string) {
	if len(member) > 0 && member[0] >= '1' && member[0] <= '9' {
		if place, rest, ok := strings.Cut(member, " "); ok && strings.Trim(place, "0123456789") == "" { // Atoi's error is an allocation
			if slot, err := strconv.Atoi(place); err == nil {
				return slot, rest
			}
		}
	}
	return 0, member
}

// taking are the operations that take it; o says all but the letters, the keys
// and the counters.
func (t *target) taking(ops []script.Operation, o script.Operation) []script.Operation {
	o.Op, o.Kind = script.Acquire, t.kind
	if t.kind != "" {
		o.Op = script.Join
	}
	first := len(ops)
	ops = t.each(ops, o)
	for i := first; i < len(ops)-1; i++ {
		ops[i].Op = script.AcquireAlso
	}
	return ops
}

// each appends an operation for each key.
func (t *target) each(ops []script.Operation, o script.Operation) []script.Operation {
	for i := range t.width() {
		o.Key = t.at(i)
		if o.Op.Counts() {
			o.Counter = t.counter(i)
		}
		ops = append(ops, o)
	}
	return ops
}

// repairing are those that set it again.
func (t *target) repairing(o script.Operation) []script.Operation {
	o.Op, o.Kind = script.Repair, t.kind
	if t.kind != "" {
		o.Op = script.RepairShared
	}
	return t.each(make([]script.Operation, 0, t.width()), o)
}

// keys are all keys.
func (t *target) keys() []string {
	keys := make([]string, t.width())
	for i := range keys {
		keys[i] = t.at(i)
	}
	return keys
}
