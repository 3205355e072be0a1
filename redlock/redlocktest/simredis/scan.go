package simredis

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// scan executes SCAN cursor [MATCH pattern] [COUNT count]. It returns keys in the order of their
// hashes, so that a key that exists during the whole scan is returned.
func scan(c call) redlock.Reply {
	from, err := strconv.ParseUint(c.args[0], 10, 64)
	if err != nil {
		return Failed("ERR invalid cursor")
	}
	pattern, count := "*", int64(10)
	for options := c.args[1:]; len(options) > 0; options = options[2:] {
		switch {
		case len(options) == 1:
			return Refuse(errSyntax)
		case strings.EqualFold(options[0], "MATCH"):
			pattern = options[1]
		case strings.EqualFold(options[0], "COUNT"):
			n, ok := parseInt(options[1])
			if !ok {
				return Refuse(errNotNumber)
			}
			if count = n; count < 1 {
				return Refuse(errSyntax)
			}
		default:
			return Refuse(errSyntax)
		}
	}
	keys := c.SortedKeys(pattern, c.now)
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(cursorOf(a), cursorOf(b)) })
	keys = slices.DeleteFunc(keys, func(key string) bool { return cursorOf(key) < from })
	next := uint64(0)
	if int64(len(keys)) > count {
		next = cursorOf(keys[count])
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
