package redlocktest

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// state is what a redis-server process knows. It knows nothing of networks and
// of waiting: the same calls at the same times give the same replies. Times are
// microseconds since 1970.
type state struct {
	name     string
	lives    int // how often it was started
	runID    string
	started  int64
	lastID   int64 // of a connection
	commands int64 // executed since it was started
	keys     map[string]entry
	scripts  map[string]bool            // loaded, by SHA
	variants map[Variant]bool           // mistakes that were planted
	kill     func(clientID int64) int64 // ends a connection; how many it ended
	tracking
	durable  bool              // says that it is
	denied   string            // what its user default may not do
	infoLies map[string]string // what INFO shows instead of the truth

	replIDs      int // how many it has made
	replID       string
	replica      bool
	masterReplID string // of a replica: its master's
}

// entry is what a key holds: a string, a hash, a sorted set, or a list, which is
// there for WRONGTYPE.
type entry struct {
	text   string
	hash   *hash            // not nil: a hash
	set    map[string]int64 // not nil: a sorted set, by member
	list   []string         // not nil: a list
	expiry int64            // milliseconds since 1970; 0: never
}

func (e entry) isString() bool { return e.hash == nil && e.set == nil && e.list == nil }

// client is what the server knows of a connection.
type client struct {
	id      int64
	name    string
	tracks  *trackingMode // nil: CLIENT TRACKING is off
	caching bool          // CLIENT CACHING YES was the command before
}

func newState(name string, now int64) state {
	s := state{name: name, keys: map[string]entry{}, infoLies: map[string]string{}}
	s.restart(now)
	return s
}

// restart begins a new life, a master's, with the keys of the one before.
func (s *state) restart(now int64) {
	s.lives++
	s.runID = digest("%s %d", s.name, s.lives)
	s.replica, s.replID = false, s.newReplID()
	s.started, s.lastID, s.commands = now, 0, 0
	s.scripts = map[string]bool{}
	s.readers = map[string][]int64{}
}

func (s *state) newReplID() string {
	s.replIDs++
	return digest("%s replication %d", s.name, s.replIDs)
}

// digest makes 40 digits that are the same in each run.
func digest(format string, args ...any) string {
	sum := sha1.Sum(fmt.Appendf(nil, format, args...))
	return hex.EncodeToString(sum[:])
}

func (s *state) flush() {
	clear(s.keys)
	s.flushed()
}

// lookup returns what is at key now. Redis lets a key live through the very
// millisecond of its expiry, and a replica leaves the deleting to its master.
func (s *state) lookup(key string, now int64) (entry, bool) {
	e, ok := s.keys[key]
	if ok && e.expiry != 0 && now/1000 > e.expiry {
		if !s.replica {
			s.drop(key)
		}
		return entry{}, false
	}
	return e, ok
}

// put and drop change what is at a key.
func (s *state) put(key string, e entry) {
	s.keys[key] = e
	s.changed(key)
}

func (s *state) drop(key string) {
	delete(s.keys, key)
	s.changed(key)
}

// sortedKeys returns the keys that match pattern.
func (s *state) sortedKeys(pattern string, now int64) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if _, ok := s.lookup(key, now); ok && globMatch(pattern, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// globMatch knows * and ?; the rest of a pattern stands for itself.
func globMatch(pattern, text string) bool {
	for pattern != "" {
		switch {
		case pattern[0] == '*':
			pattern = pattern[1:]
			for i := range len(text) + 1 {
				if globMatch(pattern, text[i:]) {
					return true
				}
			}
			return false
		case text == "" || pattern[0] != '?' && pattern[0] != text[0]:
			return false
		}
		pattern, text = pattern[1:], text[1:]
	}
	return text == ""
}

// exec executes one command of a client at a time. What is refused for its form
// is not counted, as in Redis.
func (s *state) exec(c *client, now int64, command redlock.Command) redlock.Reply {
	known := find(command)
	caches := c.caches(known)
	if known == nil {
		return unknownCommand(command)
	}
	if !known.takes(len(command)) {
		return failed("ERR wrong number of arguments for '%s' command", known.errorName())
	}
	if err := s.mayWrite(); err != nil && known.write {
		return refuse(err)
	}
	s.current = c
	reply := known.run(call{state: s, client: c, now: now, args: command[known.words:]})
	s.current = nil
	s.commands++
	if caches {
		return s.remember(c, known, command, reply)
	}
	return reply
}

// label is what a command is counted as.
func (s *state) label(command redlock.Command) string {
	known := find(command)
	switch {
	case known == nil:
		return strings.ToUpper(command[0])
	case known.name == "EVALSHA" && len(command) > 1:
		if script, ok := scriptsBySHA[command[1]]; ok {
			return script.name
		}
	}
	return known.name
}
