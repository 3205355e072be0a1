package redlock

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock/internal/script"
)

// target is the lock of a lease or an attempt: one key or several, and its kind.
type target struct {
	key       string
	otherKeys []string // more keys, which are taken together with key
	kind      string   // the nodes' name for the kind of a shared lock; "": the lock is exclusive
	slot      int32    // the slot of a semaphore, from 1 on; 0: the lock is not one, or no slot is chosen yet
	prefix    int32    // length of the prefix of each key
}

// isAbout reports whether both targets have the same keys, in the same order.
func (t *target) isAbout(other *target) bool {
	return t.key == other.key && slices.Equal(t.otherKeys, other.otherKeys)
}

// width returns the number of keys.
func (t *target) width() int { return 1 + len(t.otherKeys) }

// name returns the name of the lock, or several separated by commas.
func (t *target) name() string {
	if len(t.otherKeys) == 0 {
		return t.key[t.prefix:]
	}
	return strings.Join(t.names(), ",")
}

func (t *target) names() []string {
	names := make([]string, 0, t.width())
	for i := range t.width() {
		names = append(names, t.keyAt(i)[t.prefix:])
	}
	return names
}

// keyAt returns the i-th key.
func (t *target) keyAt(i int) string {
	if i == 0 {
		return t.key
	}
	return t.otherKeys[i-1]
}

// counter returns the fencing counter of the i-th key. Each slot of a semaphore has its own.
func (t *target) counter(i int) script.CounterField {
	if t.slot > 0 {
		return script.CounterOf(t.key + script.Separator + strconv.Itoa(int(t.slot)))
	}
	return script.CounterOf(t.keyAt(i))
}

// member returns a token as the nodes store it: after a semaphore's slot, if there is one.
func (t *target) member(token string) string {
	if t.slot > 0 {
		return strconv.Itoa(int(t.slot)) + " " + token
	}
	return token
}

// splitMember is the reverse of member. The slot is 0 if there is none.
func splitMember(member string) (slot int, token string) {
	if len(member) > 0 && member[0] >= '1' && member[0] <= '9' {
		if digits, rest, ok := strings.Cut(member, " "); ok && strings.Trim(digits, "0123456789") == "" { // Atoi's error is an allocation
			if slot, err := strconv.Atoi(digits); err == nil {
				return slot, rest
			}
		}
	}
	return 0, member
}

// appendAcquire appends the operations that acquire the lock. o has their arguments, except for the
// opcodes, the keys and the counters.
func (t *target) appendAcquire(ops []script.Operation, o script.Operation) []script.Operation {
	o.Op, o.Kind = script.Acquire, t.kind
	if t.kind != "" {
		o.Op = script.Join
	}
	first := len(ops)
	ops = t.appendForKeys(ops, o)
	for i := first; i < len(ops)-1; i++ {
		ops[i].Op = script.AcquireAlso
	}
	return ops
}

// appendForKeys appends the operation o for each key.
func (t *target) appendForKeys(ops []script.Operation, o script.Operation) []script.Operation {
	for i := range t.width() {
		o.Key = t.keyAt(i)
		if o.Op.Counts() {
			o.Counter = t.counter(i)
		}
		ops = append(ops, o)
	}
	return ops
}

// repairOps returns the operations that set the keys again.
func (t *target) repairOps(o script.Operation) []script.Operation {
	o.Op, o.Kind = script.Repair, t.kind
	if t.kind != "" {
		o.Op = script.RepairShared
	}
	return t.appendForKeys(make([]script.Operation, 0, t.width()), o)
}

// sorted returns the indexes of the keys in their order.
func (t *target) sorted() []int {
	order := make([]int, t.width())
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(t.keyAt(a), t.keyAt(b)) })
	return order
}

// keys returns all keys.
func (t *target) keys() []string {
	keys := make([]string, t.width())
	for i := range keys {
		keys[i] = t.keyAt(i)
	}
	return keys
}
