package ballot

import (
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Endless is the TTL of a key without expiry, which no Redlock client sets.
const Endless time.Duration = 1<<63 - 1

// ShowsMany reports whether a node showed only that many clients share the lock.
func (b *Ballot) ShowsMany() bool {
	return slices.ContainsFunc(b.Answers, func(a Answer) bool {
		return a.Shown != nil && len(a.Shown.Array) == 2 && script.IsSharing(a.Shown.Array[0].Str)
	})
}

// IsBlockedForever reports whether so many nodes have a key without expiry that no client can get
// the lock until someone deletes these keys, whatever their values are. (A contest, in contrast,
// ends.)
func (b *Ballot) IsBlockedForever() bool {
	nodes := quorum.Set(0)
	for i := range b.Answers {
		if slices.ContainsFunc(Shown(b.Answers[i].Shown), func(s Showing) bool { return s.Kind == "" && s.TTL == Endless }) {
			nodes |= quorum.Of(i)
		}
	}
	return b.Quorum.Blocks(nodes)
}

// KindShown returns the kind of a shared lock that more than half of the refusing nodes show; "":
// no such kind.
func (b *Ballot) KindShown() string {
	nodes := map[string]int{}
	for i := range b.Answers {
		kind := b.Answers[i].kind()
		if kind == "" {
			continue
		}
		if nodes[kind]++; 2*nodes[kind] > b.Refused.Len() {
			return kind
		}
	}
	return ""
}

// kind returns the kind of a shared lock that the node shows; "": one client or no client holds
// it.
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

// Shown reads a node's answer about a key that is set: {value, pttl}. If several clients share
// the lock, it is {kind, pttl, token, pttl…}.
func Shown(reply *redis.Reply) []Showing {
	if reply == nil || len(reply.Array) < 2 {
		return nil
	}
	items := reply.Array
	if kind := items[0].Str; script.IsSharing(kind) && len(items) > 2 {
		all := []Showing{}
		for i := 2; i+1 < len(items); i += 2 {
			if items[i+1].Int != 0 { // otherwise it has expired
				all = append(all, Showing{items[i].Str, kind, keyTTL(items[i+1].Int)})
			}
		}
		return all
	}
	return []Showing{{Token: items[0].Str, TTL: keyTTL(items[1].Int)}}
}

// AddPages adds each node's page of holders to what the node has shown; nil: it failed. If others may
// follow on a node, more is true, and the next pages begin after the given token. All nodes that have more
// to show have shown everything up to it.
func AddPages(shown, pages []*redis.Reply) (after string, more bool) {
	for _, page := range pages {
		if page == nil || len(page.Array) < 2+2*script.Few {
			continue
		}
		if last := page.Array[len(page.Array)-2].Str; !more || script.CompareHolders(page.Array[0].Str, last, after) < 0 {
			after, more = last, true
		}
	}
	for node, page := range pages {
		switch all := shown[node]; {
		case page == nil:
			shown[node] = nil
		case all == nil:
		case all.Array == nil:
			shown[node] = page
		case len(page.Array) > 2 && page.Array[0].Str == all.Array[0].Str:
			all.Array = append(all.Array, page.Array[2:]...)
		}
		if all := shown[node]; more && all != nil && len(all.Array) > 2 { // the next page has those after it again
			n := 2
			for n < len(all.Array) && script.CompareHolders(all.Array[0].Str, all.Array[n].Str, after) <= 0 {
				n += 2
			}
			all.Array = all.Array[:n]
		}
	}
	return after, more
}

// keyTTL returns how long a key lasts. For a key without expiry (a foreign SET), or one that
// expires in centuries, it is Endless. For a key in its last millisecond it is a whole one,
// because 0 would mean that no client holds it.
func keyTTL(ms int64) time.Duration {
	if ms < 0 || ms > int64(Endless/time.Millisecond) {
		return Endless
	}
	return time.Duration(max(ms, 1)) * time.Millisecond
}

// SoonestFreeSlot returns when the first slot of a semaphore may be free, according to the nodes
// without a free one.
func (b *Ballot) SoonestFreeSlot() (ttl time.Duration) {
	answers := b.Answers
	for i := range answers {
		if answers[i].kind() == "" {
			continue
		}
		if first := keyTTL(answers[i].Shown.Array[1].Int); ttl == 0 || first < ttl {
			ttl = first
		}
	}
	return ttl
}

// SilentNodes returns the nodes that have not shown a holder.
func (b *Ballot) SilentNodes() quorum.Set {
	return quorum.First(len(b.Answers)) &^ (b.Granted | b.Refused)
}

// FreeSlot returns the slot of a semaphore that most nodes report as free if the requested one
// is not; 0: there is none.
func (b *Ballot) FreeSlot() (slot int) {
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
