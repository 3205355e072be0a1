package script

import (
	"strconv"
	"strings"
)

// Separator is in every key that belongs to a lock besides its own, and in no name: the
// keys of readers, waiters and slots.
const Separator = "\x00"

// ReservationSuffix follows the name and the separator in the key of a reservation.
const ReservationSuffix = "k"

// The values on the nodes for kinds of locks that several clients hold at once: see
// ballot.lua.
const (
	kindPrefix = "redlockd:"
	KindShared = kindPrefix + "shared"
	KindSlots  = kindPrefix + "slots="
	KindWriter = kindPrefix + "writer" // shown for a writer that waits
	kindKept   = kindPrefix + "kept"   // shown for a waiter with a reservation
	// KindRetained is shown for a host that may no longer need the lock (RETAIN).
	KindRetained = kindPrefix + "retained"
)

// IsSharing tells whether a value is a kind. Other values that begin so are a foreign
// client's.
func IsSharing(value string) bool {
	return value == KindShared || value == KindRetained || IsWaiting(value) || SlotsOf(value) > 0
}

// IsWaiting tells whether a kind is shown for a waiter that gets the lock next.
func IsWaiting(kind string) bool { return kind == KindWriter || kind == kindKept }

// SlotsOf returns how many places a semaphore of that kind has; 0: it is none.
func SlotsOf(kind string) int {
	slots, is := strings.CutPrefix(kind, KindSlots)
	if !is {
		return 0 // what is asked of each lock needs no error to be made
	}
	n, _ := strconv.Atoi(slots)
	return n
}
