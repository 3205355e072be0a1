package script

import (
	"strconv"
	"strings"
)

// beside is in all keys that are beside those of locks, and in no name: what is
// kept for those who share a lock or wait for it, and the counters of places.
const Separator = "\x00"

// What the nodes call the kinds of locks that several hold at once: see
// ballot.lua.
const (
	kindPrefix = "redlockd:"
	KindShared = kindPrefix + "shared"
	KindSlots  = kindPrefix + "slots="
	KindWriter = kindPrefix + "writer" // nobody's but one who waits
	kindKept   = kindPrefix + "kept"   // nor that
)

// isSharing: what else begins so is another client's value.
func IsSharing(value string) bool {
	return value == KindShared || IsWaiting(value) || SlotsOf(value) > 0
}

// isWaiting: who is shown so does not hold the lock, but is to have it next.
func IsWaiting(kind string) bool { return kind == KindWriter || kind == kindKept }

// slotsOf is how many places a semaphore of that kind has; 0: it is none.
func SlotsOf(kind string) int {
	slots, is := strings.CutPrefix(kind, KindSlots)
	if !is {
		return 0 // what is asked of each lock needs no error to be made
	}
	n, _ := strconv.Atoi(slots)
	return n
}
