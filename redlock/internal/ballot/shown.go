package ballot

import (
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Endless is the TTL of a key without expiry, which no Redlock client sets.
const Endless time.Duration = 1<<63 - 1

// ShowsMany tells whether a node said only that many clients share the lock.
func (b *Ballot) ShowsMany() bool {
	return slices.ContainsFunc(b.Answers, func(a Answer) bool {
		return a.Shown != nil && len(a.Shown.Array) == 2 && script.IsSharing(a.Shown.Array[0].Str)
	})
}

// Barred tells whether keys without an expiry are on so many nodes that no client can get
// the lock, whatever their values are, until someone deletes them. (A contest ends.)
func (b *Ballot) Barred() bool {
	nodes := 0
	for i := range b.Answers {
		if slices.ContainsFunc(Shown(b.Answers[i].Shown), func(s Showing) bool { return s.Kind == "" && s.TTL == Endless }) {
			nodes++
		}
	}
	return nodes > len(b.Answers)-b.Quorum
}

// KindShown returns the kind of a shared lock that more than half of the refusing nodes
// show; "": they show none.
func (b *Ballot) KindShown() string {
	nodes := map[string]int{}
	for i := range b.Answers {
		kind := b.Answers[i].kind()
		if kind == "" {
			continue
		}
		if nodes[kind]++; 2*nodes[kind] > b.Refused {
			return kind
		}
	}
	return ""
}

// kind returns the kind of a shared lock that the node shows; "": one client holds it, or
// none.
func (a *Answer) kind() string {
	if a.Shown == nil || len(a.Shown.Array) < 4 || !script.IsSharing(a.Shown.Array[0].Str) {
		return ""
	}
	return a.Shown.Array[0].Str
}

// Showing is a token that one node shows.
type Showing struct {
	Token string
	Kind  string // "": an exclusive lock
	TTL   time.Duration
}

// Shown reads {value, pttl}, what a node answers about a key that is set; or, if
// several share it, {kind, pttl, token, pttl…}.
func Shown(reply *redis.Reply) []Showing {
	if reply == nil || len(reply.Array) < 2 {
		return nil
	}
	items := reply.Array
	if kind := items[0].Str; script.IsSharing(kind) && len(items) > 2 {
		all := []Showing{}
		for i := 2; i+1 < len(items); i += 2 {
			all = append(all, Showing{items[i].Str, kind, lasting(items[i+1].Int)})
		}
		return all
	}
	return []Showing{{Token: items[0].Str, TTL: lasting(items[1].Int)}}
}

// lasting is how long a key lasts. One without expiry (a foreign SET), or with one
// in centuries, is shown with the longest time there is, and one in its last
// millisecond with a whole one: 0 would mean nobody.
func lasting(ms int64) time.Duration {
	if ms < 0 || ms > int64(Endless/time.Millisecond) {
		return Endless
	}
	return time.Duration(max(ms, 1)) * time.Millisecond
}

// Soonest returns when the first place of a semaphore may be free, as the nodes say that
// have no free one.
func (b *Ballot) Soonest() (ttl time.Duration) {
	answers := b.Answers
	for i := range answers {
		if answers[i].kind() == "" {
			continue
		}
		if first := lasting(answers[i].Shown.Array[1].Int); ttl == 0 || first < ttl {
			ttl = first
		}
	}
	return ttl
}

// Unheard returns how many nodes have not said who holds the lock.
func (b *Ballot) Unheard() int { return len(b.Answers) - b.Granted - b.Refused }

// FreePlace returns the slot of a semaphore that most nodes report as free if the
// requested one is not; 0: there is none.
func (b *Ballot) FreePlace() (slot int) {
	answers := b.Answers
	said := map[int]int{}
	for i := range answers {
		if shown := answers[i].Shown; shown != nil && len(shown.Array) == 5 {
			free := int(shown.Array[4].Int)
			if said[free]++; free > 0 && said[free] > said[slot] {
				slot = free
			}
		}
	}
	return slot
}
