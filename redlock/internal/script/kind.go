package script

import (
	"cmp"
	"strconv"
	"strings"
)

// Separator is in each key of a lock except its own, and in no name: in the keys of readers,
// waiters and slots.
const Separator = "\x00"

// TurnSuffix follows the name and the separator in a key that exists while clients wait for the
// lock.
const TurnSuffix = "t"

// These are the values on the nodes for kinds of locks that several clients hold at the same
// time: see ballot.lua.
const (
	kindPrefix = "redlockd:"
	KindShared = kindPrefix + "shared"
	KindSlots  = kindPrefix + "slots="
	KindWriter = kindPrefix + "writer" // shown for a waiter that readers may not overtake
	kindTurn   = kindPrefix + "turn"   // shown for a waiter whose turn it is
)

// IsSharing reports whether a value is a kind. Other values with the same beginning are a foreign
// client's.
func IsSharing(value string) bool {
	return value == KindShared || IsWaiting(value) || SlotsOf(value) > 0
}

// IsWaiting reports whether a kind is shown for a waiter that gets the lock next.
func IsWaiting(kind string) bool { return kind == KindWriter || kind == kindTurn }

// Few is how many holders of a shared lock WHO shows at once: see admin.lua.
const Few = 100

// CompareHolders compares tokens that share a lock as the nodes order them: by their places if it is a
// semaphore, otherwise as texts.
func CompareHolders(kind, a, b string) int {
	if SlotsOf(kind) == 0 {
		return strings.Compare(a, b)
	}
	return cmp.Or(cmp.Compare(PlaceOf(a), PlaceOf(b)), strings.Compare(a, b))
}

// PlaceOf returns the place with which the token of a semaphore begins; 0: it has none.
func PlaceOf(token string) int {
	digits, _, _ := strings.Cut(token, " ")
	place, _ := strconv.Atoi(digits)
	return place
}

// SlotsOf returns the number of slots of a semaphore of that kind; 0: it is no semaphore.
func SlotsOf(kind string) int {
	slots, is := strings.CutPrefix(kind, KindSlots)
	if !is {
		return 0 // without an error, because this is called for each lock
	}
	n, _ := strconv.Atoi(slots)
	return n
}
