package simredis

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/redlockd/redlockd/redlock"
)

// mostDescribed is how many holders of each lock are shown when many locks are described.
const mostDescribed = 10

// scan executes SCAN cursor MATCH pattern COUNT count. It returns keys in the order of their
// hashes, so that a key that exists during the whole scan is returned.
func (b *ballotCall) scan(cursor, pattern, count string) redlock.Reply {
	from, err := strconv.ParseUint(cursor, 10, 64)
	if err != nil {
		return Failed("ERR invalid cursor")
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 {
		return Refuse(errSyntax)
	}
	keys := b.SortedKeys(pattern, b.now)
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(cursorOf(a), cursorOf(b)) })
	keys = slices.DeleteFunc(keys, func(key string) bool { return cursorOf(key) < from })
	next := uint64(0)
	if len(keys) > n {
		next = cursorOf(keys[n])
		keys = slices.DeleteFunc(keys, func(key string) bool { return cursorOf(key) >= next })
	}
	return List(Text(strconv.FormatUint(next, 10)), texts(keys))
}

// cursorOf returns the position of a key in a scan, at least 1.
func cursorOf(key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return max(h.Sum64(), 1)
}

// describe shows the holders of a lock, whether a client waits for it, its writer intent and its
// reservation.
func (b *ballotCall) describe(key string) redlock.Reply {
	shown := b.showHolders(key, mostDescribed)
	if shown.Err != nil {
		return shown
	}
	return List(shown, Number(bool01(b.hasKey(key+wakeupKey))), b.textAt(key+writerIntent), b.textAt(key+ReservationKey))
}

// textAt returns the string at a key, or "".
func (b *ballotCall) textAt(key string) redlock.Reply {
	value, ok, err := b.value(key)
	if !ok || err != nil {
		return Text("")
	}
	return shownText(value)
}
