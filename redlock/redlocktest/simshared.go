package redlocktest

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// Beside a lock's key; what each of them is for, ballot.lua says.
const (
	membersOf = "\x00m"
	bell      = "\x00b"
	asked     = "\x00a"
	writerOf  = "\x00w"
	keptFor   = "\x00k"
)

const (
	kindPrefix = "redlockd:"
	kindShared = "redlockd:shared"
	kindWriter = "redlockd:writer"
	kindKept   = "redlockd:kept"
)

// IsKind reports whether a key's value says that several share the lock. Other values that
// begin like that are another client's.
func IsKind(value string) bool {
	slots, ok := strings.CutPrefix(value, kindPrefix+"slots=")
	return value == kindShared || ok && slots != "" && strings.Trim(slots, "0123456789") == ""
}

// member is one of those who share a lock.
type member struct {
	token string
	until int64 // milliseconds since 1970
}

// members returns those who share a lock, nil where nobody does.
func (c call) members(key string) (map[string]int64, error) {
	e, ok := c.lookup(key+membersOf, c.now)
	if ok && e.set == nil {
		return nil, errWrongType
	}
	return e.set, nil
}

// sortedMembers are in the order in which their time is over.
func (c call) sortedMembers(key string) []member {
	set, _ := c.members(key)
	sorted := make([]member, 0, len(set))
	for token, until := range set {
		sorted = append(sorted, member{token, until})
	}
	slices.SortFunc(sorted, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.until, b.until), strings.Compare(a.token, b.token))
	})
	return sorted
}

func (c call) isMember(key, token string) bool {
	set, _ := c.members(key)
	return set[token] > c.now/1000
}

// settle forgets the members whose time is over, and has the key last as long as
// the longest of the others: false where there are none, and none is the key.
func (c call) settle(key string) bool {
	set, err := c.members(key)
	if err != nil || c.mayWrite() != nil {
		return err != nil || len(set) > 0
	}
	c.forgetMembers(key, func(_ string, until int64) bool { return until <= c.now/1000 })
	sorted := c.sortedMembers(key)
	if len(sorted) == 0 {
		c.remove(key)
		return false
	}
	last := sorted[len(sorted)-1].until
	c.expireAt(key, last)
	c.expireAt(key+membersOf, last)
	return true
}

// forgetMembers deletes those who are over, and tells how many. A set without
// members is no key.
func (c call) forgetMembers(key string, over func(token string, until int64) bool) int64 {
	set, _ := c.members(key)
	had := len(set)
	for token, until := range set {
		if over(token, until) {
			delete(set, token)
		}
	}
	switch {
	case len(set) == had:
	case len(set) == 0:
		c.drop(key + membersOf)
	default:
		c.changed(key + membersOf)
	}
	return int64(had - len(set))
}

// expireAt is PEXPIREAT, to a time that is not over.
func (c call) expireAt(key string, at int64) {
	if e, ok := c.lookup(key, c.now); ok {
		e.expiry = at
		c.put(key, e)
	}
}

// addMember is ZADD, with GT where it must not shorten. The caller may write.
func (c call) addMember(key, token string, until int64, greater bool) error {
	set, err := c.members(key)
	if err != nil {
		return err
	}
	if set == nil {
		set = map[string]int64{}
		c.put(key+membersOf, entry{set: set})
	}
	if had := set[token]; until > had || !greater {
		set[token] = until
		c.changed(key + membersOf)
	}
	return nil
}

// holder shows by whom a lock is held that several may share.
func (c call) holder(key, kind string) redlock.Reply {
	shown := list(text(kind), c.left(key))
	if sorted := c.sortedMembers(key); len(sorted) > 0 {
		last := sorted[len(sorted)-1]
		shown.Array = append(shown.Array, shownText(last.token), number(last.until-c.now/1000))
	}
	return shown
}

// join adds a token again to those who share the lock: nil where it did.
func (b *ballotCall) join(o operand, ttl string) *redlock.Reply {
	if refused := b.obstacle(o); refused != nil {
		return refused
	}
	return b.enter(o.key, o, ttl)
}

// obstacle is what keeps a token from those who share the lock: nil where nothing
// does.
func (b *ballotCall) obstacle(o operand) *redlock.Reply {
	value, ok, err := b.value(o.key)
	var shown redlock.Reply
	switch {
	case err != nil:
		shown = refuse(err)
		return &shown
	case ok && !IsKind(value):
		shown = list(shownText(value), b.left(o.key))
		return &shown
	case !ok || !b.settle(o.key):
		return nil
	case value != o.kind && !b.variant(MixKinds):
		shown = b.holder(o.key, value)
		return &shown
	case o.kind != kindShared:
		return b.place(o)
	}
	return nil
}

// enter adds a token. Of those whose key somebody deleted nobody comes back.
func (b *ballotCall) enter(key string, o operand, ttl string) *redlock.Reply {
	if _, ok, _ := b.value(key); !ok && b.mayWrite() == nil {
		b.remove(key + membersOf)
	}
	if stored := b.store(key, o.kind, true, ttl); stored.Err != nil {
		return &stored
	}
	ms, _ := strconv.ParseInt(ttl, 10, 64) // store has seen it
	if err := b.addMember(key, o.token, b.now/1000+ms, true); err != nil {
		failed := refuse(err)
		return &failed
	}
	b.settle(key)
	return nil
}

// place is nil where nobody else has the place with which the token begins. Or
// else, who has it, when the first of all is over, and a place that is free.
func (b *ballotCall) place(o operand) *redlock.Reply {
	wanted := placeOf(o.token)
	slots, err := strconv.Atoi(o.kind[strings.LastIndexByte(o.kind, '=')+1:])
	if wanted == 0 || err != nil {
		shown := refuse(simError("ballot: %q is no place of %q", o.token, o.kind))
		return &shown
	}
	taken, refused := map[int]bool{}, (*redlock.Reply)(nil)
	if b.variant(CountPlaces) && len(b.sortedMembers(o.key)) < slots {
		return nil
	}
	sorted := b.sortedMembers(o.key)
	for _, m := range sorted {
		if placeOf(m.token) == wanted && m.token != o.token {
			shown := list(text(o.kind), number(sorted[0].until-b.now/1000), shownText(m.token), number(m.until-b.now/1000), number(0))
			refused = &shown
		}
		taken[placeOf(m.token)] = true
	}
	if refused != nil {
		refused.Array[4] = number(int64(freeAfter(wanted, slots, taken)))
	}
	return refused
}

// freeAfter is the first place after one that is not taken, 0 where all are.
func freeAfter(wanted, slots int, taken map[int]bool) int {
	for i := wanted; i < wanted+slots-1; i++ {
		if place := i%slots + 1; !taken[place] {
			return place
		}
	}
	return 0
}

// placeOf is the number with which a token of a semaphore begins, 0: none.
func placeOf(token string) int {
	digits := token[:len(token)-len(strings.TrimLeft(token, "0123456789"))]
	place, _ := strconv.Atoi(digits)
	return place
}

// leave is a release.
func (b *ballotCall) leave(key, token string) redlock.Reply {
	if err := b.mayWrite(); err != nil {
		return refuse(err)
	}
	if _, err := b.members(key); err != nil {
		return refuse(err)
	}
	left := b.forgetMembers(key, func(other string, _ int64) bool { return other == token })
	if left > 0 {
		b.settle(key)
		b.ring(key)
	}
	return number(left)
}

// stay is an extension.
func (b *ballotCall) stay(key, token string) redlock.Reply {
	ms, err := strconv.ParseInt(b.ttl, 10, 64)
	if err != nil {
		return refuse(errNotNumber)
	}
	if err := b.mayWrite(); err != nil {
		return refuse(err)
	}
	if err := b.addMember(key, token, b.now/1000+ms, !b.variant(ExtendShortens)); err != nil {
		return refuse(err)
	}
	b.settle(key)
	return number(1)
}
