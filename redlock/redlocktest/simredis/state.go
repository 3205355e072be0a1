package simredis

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/redlockd/redlockd/redlock"
)

// State is the memory of a redis-server process. It has no network and never waits. The same calls
// at the same times return the same replies. Times are microseconds since 1970.
type State struct {
	name     string
	starts   int // how often the server was started
	RunID    string
	started  int64
	LastID   int64 // the last id of a connection
	commands int64 // executed since the start
	// ScriptCommands is the number of commands that scripts gave the node.
	ScriptCommands int
	// Changes is the number of commands that changed data.
	Changes  int
	Keys     map[string]entry
	Scripts  map[string]string             // the sources of loaded scripts, by SHA
	protos   map[string]*lua.FunctionProto // what runs for a loaded script
	variants map[Variant]bool              // planted mistakes
	planted  plantedScripts                // with them; nil: there are none
	Kill     func(clientID int64) int64    // ends a connection; returns how many it ended
	Clients  func() []*Client              // in the order of dialling
	subscriptions
	Durable       bool              // the node says that it is durable
	StrictKeys    bool              // scripts may use only the keys that their call declares, as in Dragonfly
	Denied        string            // the command that the user default must not run
	InfoOverrides map[string]string // what INFO shows instead of the true value

	replIDs      int // number of replication ids so far
	ReplID       string
	Replica      bool
	MasterReplID string // the replication id of the replica's master
}

// entry is the value of a key: a string, a hash, a sorted set, or a list. Lists are only used to
// cause WRONGTYPE.
type entry struct {
	Text   string
	Hash   *hash      // nil: not a hash
	Set    *SortedSet // nil: not a sorted set
	list   []string   // nil: not a list
	expiry int64      // milliseconds since 1970; 0: never
}

func (e entry) isString() bool { return e.Hash == nil && e.Set == nil && e.list == nil }

// Client is the server's view of a connection.
type Client struct {
	Id   int64
	name string
}

func NewState(name string, now int64) State {
	s := State{name: name, Keys: map[string]entry{}, InfoOverrides: map[string]string{}}
	s.Restart(now)
	return s
}

// Restart starts the server again as a master. It keeps its keys.
func (s *State) Restart(now int64) {
	s.starts++
	s.RunID = digest("%s %d", s.name, s.starts)
	s.Replica, s.ReplID = false, s.newReplID()
	s.started, s.LastID, s.commands = now, 0, 0
	s.Scripts, s.protos = map[string]string{}, map[string]*lua.FunctionProto{}
	s.subscribers = map[string][]int64{}
}

func (s *State) newReplID() string {
	s.replIDs++
	return digest("%s replication %d", s.name, s.replIDs)
}

// digest returns 40 hex digits that are the same in each run.
func digest(format string, args ...any) string {
	sum := sha1.Sum(fmt.Appendf(nil, format, args...))
	return hex.EncodeToString(sum[:])
}

func (s *State) Flush() {
	clear(s.Keys)
}

// Lookup returns the present value at key. As in Redis, a key exists until the end of the
// millisecond in which it expires. A replica does not delete expired keys; its master does.
func (s *State) Lookup(key string, now int64) (entry, bool) {
	e, ok := s.Keys[key]
	if ok && e.expiry != 0 && now/1000 > e.expiry {
		if !s.Replica {
			s.drop(key)
		}
		return entry{}, false
	}
	return e, ok
}

// put sets the value of a key.
func (s *State) put(key string, e entry) {
	s.Keys[key] = e
	s.Changes++
}

func (s *State) drop(key string) {
	delete(s.Keys, key)
	s.Changes++
}

// SortedKeys returns the keys that match pattern.
func (s *State) SortedKeys(pattern string, now int64) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		if _, ok := s.Lookup(key, now); ok && globMatch(pattern, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// globMatch supports * and ?. All other characters match themselves.
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

// Exec executes one command of a client. As in Redis, malformed commands do not count in the
// statistics.
func (s *State) Exec(c *Client, now int64, command redlock.Command) redlock.Reply {
	known := find(command)
	if known == nil {
		return unknownCommand(command)
	}
	if !known.takes(len(command)) {
		return Failed("ERR wrong number of arguments for '%s' command", known.errorName())
	}
	if err := s.mayWrite(); err != nil && known.flags&writes != 0 {
		return Refuse(err)
	}
	reply := known.run(call{State: s, client: c, now: now, args: command[known.words:]})
	s.commands++
	return reply
}

// Label returns the name under which a command counts.
func (s *State) Label(command redlock.Command) string {
	known := find(command)
	switch {
	case known == nil:
		return strings.ToUpper(command[0])
	case known.name == "EVALSHA" && len(command) > 1:
		if script, ok := ScriptsBySHA[command[1]]; ok {
			return script.Name
		}
	}
	return known.name
}

// Variant reports whether the mistake was planted.
func (s *State) Variant(v Variant) bool { return s.variants[v] }

// Plant makes the scripts make exactly these mistakes. It panics if the text that an edit replaces
// is not in the scripts: then the edit must follow the scripts.
func (s *State) Plant(variants ...Variant) {
	planted := soundScripts()
	s.variants = map[Variant]bool{}
	for _, v := range variants {
		if err := planted.plant(v); err != nil {
			panic("simredis: " + err.Error())
		}
		s.variants[v] = true
	}
	s.planted = planted
	clear(s.protos)
}

// PlantAs makes the same mistakes as another node.
func (s *State) PlantAs(other *State) {
	s.variants, s.planted = other.variants, other.planted
	clear(s.protos)
}
