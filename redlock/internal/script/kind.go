package script

import (
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

// SlotsOf returns the number of slots of a semaphore of that kind; 0: it is no semaphore.
func SlotsOf(kind string) int {
	slots, is := strings.CutPrefix(kind, KindSlots)
	if !is {
		return 0 // without an error, because this is called for each lock
	}
	n, _ := strconv.Atoi(slots)
	return n
}
