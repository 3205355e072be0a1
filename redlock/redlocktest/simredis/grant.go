package simredis

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// grant is an acquire of any kind: a fencing token, or what keeps it from it.
func (b *ballotCall) grant(o operand) redlock.Reply {
	lost := o.letter == 'h' && !b.holds(o.key, o.old)
	switch {
	case o.letter == 's' || len(b.others) > 0:
		return b.grantAll(o)
	case o.letter == 'h':
		b.refused = b.handOver(o)
	default:
		b.refused = b.take(o)
	}
	if b.refused != nil {
		return *b.refused
	}
	if o.letter == 'h' && b.Variant(HandOverFence) {
		return Number(b.counters[o.record.field])
	}
	token := Number(b.sign(o) * b.count(o.record))
	if lost { // what the old token had lapsed there
		return List(token)
	}
	return token
}

// sign is that of the fencing token: -1 where somebody is waiting. A plain
// acquire does not say.
func (b *ballotCall) sign(o operand) int64 {
	if o.letter != 'a' && b.isThere(o.key+bell) {
		return -1
	}
	return 1
}

// take takes a lock, here and below: nil where it did.
func (b *ballotCall) take(o operand) *redlock.Reply {
	if refused := b.refusal(o.record); refused != nil {
		return refused
	}
	if b.keeping && b.isThere(o.key+KeptFor) {
		return b.takeKept(o)
	}
	if stored := b.store(o.key, o.token, true, b.ttl); !stored.Nil {
		return errorOf(stored)
	}
	refused := b.blocker(o.key, o.token)
	if refused == nil && !b.holds(o.key, o.token) { // nobody shares it any more
		return errorOf(b.store(o.key, o.token, false, b.ttl))
	}
	return refused
}

// takeKept takes a lock that may be kept for somebody.
func (b *ballotCall) takeKept(o operand) *redlock.Reply {
	refused := b.blocker(o.key, o.token)
	if refused == nil {
		refused = b.kept(o)
	}
	if refused == nil {
		refused = errorOf(b.store(o.key, o.token, true, b.ttl))
	}
	return refused
}

// errorOf is a reply that is an error; nil: it is none.
func errorOf(reply redlock.Reply) *redlock.Reply {
	if reply.Err == nil {
		return nil
	}
	return &reply
}

// grantAll takes one name that is shared, or several of whatever kind, or none, with
// the token of the last one.
func (b *ballotCall) grantAll(last operand) redlock.Reply {
	names := append(b.others, last)
	b.others = nil
	if b.refused = b.takeAll(names, last); b.refused != nil {
		return *b.refused
	}
	most, sign := int64(0), int64(1)
	for _, o := range names {
		most = max(most, b.count(o.record))
		if b.isThere(o.key+bell) || b.isThere(o.key+asked) {
			sign = -1
		}
	}
	for _, o := range names {
		if refused := b.far(o.record.field, most); refused != nil {
			return *refused
		}
	}
	for _, o := range names {
		b.raise(o.record.field, most)
	}
	return Number(sign * most)
}

func (b *ballotCall) takeAll(names []operand, last operand) (refused *redlock.Reply) {
	for _, o := range names {
		o.token, o.kind = last.token, last.kind
		if refused = b.refusal(o.record); refused == nil {
			refused = b.inTheWay(o, last)
		}
		if refused != nil {
			return refused
		}
	}
	for _, o := range names {
		o.token, o.kind = last.token, last.kind
		if refused = b.kept(o); refused != nil {
			return refused
		}
	}
	for _, o := range names {
		if err := b.takeOne(o.key, last); refused == nil {
			refused = err
		}
	}
	return refused
}

// takeOne takes one of several keys that nothing keeps a token from: nil, or why not.
func (b *ballotCall) takeOne(key string, last operand) *redlock.Reply {
	if last.letter == 's' {
		return b.enter(key, last, b.ttl)
	}
	return errorOf(b.store(key, last.token, false, b.ttl))
}

// inTheWay is what keeps a token from one of several keys: nil where nothing does.
func (b *ballotCall) inTheWay(o, last operand) *redlock.Reply {
	if last.letter != 's' {
		return b.blocker(o.key, last.token)
	}
	if !b.isMember(o.key, last.token) {
		if other := b.marked(o.key+writerOf, KindWriter); other != nil {
			return other
		}
	}
	return b.obstacle(o)
}

// handOver swaps one token for another.
func (b *ballotCall) handOver(o operand) *redlock.Reply {
	if refused := b.refusal(o.record); refused != nil {
		return refused
	}
	if !b.holds(o.key, o.old) {
		if refused := b.blocker(o.key, o.token); refused != nil {
			return refused
		}
		if refused := b.kept(o); refused != nil {
			return refused
		}
	}
	return errorOf(b.store(o.key, o.token, false, b.ttl))
}

// blocker is what keeps a token from a key: nil where nothing does.
func (b *ballotCall) blocker(key, token string) *redlock.Reply {
	value, ok, err := b.value(key)
	var shown redlock.Reply
	switch {
	case err != nil:
		shown = Refuse(err)
	case !ok || value == token || IsKind(value) && !b.settle(key):
		return nil
	case IsKind(value):
		shown = b.holder(key, value)
	default:
		shown = List(shownText(value), b.left(key))
	}
	return &shown
}

// fence raises the counter, if the lock is still the attempt's.
func (b *ballotCall) fence(o operand) redlock.Reply {
	if refused := b.far(o.record.field, o.record.value); refused != nil {
		return *refused
	}
	if !b.has(o.key, o.token) && !b.Variant(FenceBlindly) {
		return Number(0)
	}
	b.raise(o.record.field, o.record.value)
	return Number(1)
}

func (b *ballotCall) repair(o operand) redlock.Reply {
	if b.late {
		return Refuse(errLate)
	}
	if refused := b.far(o.record.field, o.record.value); refused != nil {
		return *refused
	}
	if !b.isForced(o.token) {
		if err := b.mend(o); err != nil && err.Err != nil {
			return *err
		}
	}
	if !b.has(o.key, o.token) {
		return Number(0)
	}
	b.raise(o.record.field, o.record.value)
	return Number(1)
}

// mend sets the key where it is missing.
func (b *ballotCall) mend(o operand) *redlock.Reply {
	if o.letter == 'q' {
		return b.join(o, o.ttl)
	}
	return errorOf(b.store(o.key, o.token, true, o.ttl))
}

// Beside a lock's key; what each of them is for, ballot.lua says.
const (
	MembersOf = "\x00m"
	bell      = "\x00b"
	asked     = "\x00a"
	writerOf  = "\x00w"
	KeptFor   = "\x00k"
)

const (
	kindPrefix = "redlockd:"
	KindShared = "redlockd:shared"
	KindWriter = "redlockd:writer"
	KindKept   = "redlockd:kept"
)

// IsKind reports whether a key's value says that several share the lock. Other values that
// begin like that are another client's.
func IsKind(value string) bool {
	slots, ok := strings.CutPrefix(value, kindPrefix+"slots=")
	return value == KindShared || ok && slots != "" && strings.Trim(slots, "0123456789") == ""
}

// member is one of those who share a lock.
type member struct {
	token string
	until int64 // milliseconds since 1970
}

// members returns those who share a lock, nil where nobody does.
func (c call) members(key string) (map[string]int64, error) {
	e, ok := c.Lookup(key+MembersOf, c.now)
	if ok && e.Set == nil {
		return nil, errWrongType
	}
	return e.Set, nil
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
	c.expireAt(key+MembersOf, last)
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
		c.drop(key + MembersOf)
	default:
		c.changed(key + MembersOf)
	}
	return int64(had - len(set))
}

// expireAt is PEXPIREAT, to a time that is not over.
func (c call) expireAt(key string, at int64) {
	if e, ok := c.Lookup(key, c.now); ok {
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
		c.put(key+MembersOf, entry{Set: set})
	}
	if had := set[token]; until > had || !greater {
		set[token] = until
		c.changed(key + MembersOf)
	}
	return nil
}

// holder shows by whom a lock is held that several may share.
func (c call) holder(key, kind string) redlock.Reply {
	shown := List(Text(kind), c.left(key))
	if sorted := c.sortedMembers(key); len(sorted) > 0 {
		last := sorted[len(sorted)-1]
		shown.Array = append(shown.Array, shownText(last.token), Number(last.until-c.now/1000))
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
		shown = Refuse(err)
		return &shown
	case ok && !IsKind(value):
		shown = List(shownText(value), b.left(o.key))
		return &shown
	case !ok || !b.settle(o.key):
		return nil
	case value != o.kind && !b.Variant(MixKinds):
		shown = b.holder(o.key, value)
		return &shown
	case o.kind != KindShared:
		return b.place(o)
	}
	return nil
}

// enter adds a token. Of those whose key somebody deleted nobody comes back.
func (b *ballotCall) enter(key string, o operand, ttl string) *redlock.Reply {
	if _, ok, _ := b.value(key); !ok && b.mayWrite() == nil {
		b.remove(key + MembersOf)
	}
	if stored := b.store(key, o.kind, true, ttl); stored.Err != nil {
		return &stored
	}
	ms, _ := strconv.ParseInt(ttl, 10, 64) // store has seen it
	if err := b.addMember(key, o.token, b.now/1000+ms, true); err != nil {
		failed := Refuse(err)
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
		shown := Refuse(simError("ballot: %q is no place of %q", o.token, o.kind))
		return &shown
	}
	taken, refused := map[int]bool{}, (*redlock.Reply)(nil)
	if b.Variant(CountPlaces) && len(b.sortedMembers(o.key)) < slots {
		return nil
	}
	sorted := b.sortedMembers(o.key)
	for _, m := range sorted {
		if placeOf(m.token) == wanted && m.token != o.token {
			shown := List(Text(o.kind), Number(sorted[0].until-b.now/1000), shownText(m.token), Number(m.until-b.now/1000), Number(0))
			refused = &shown
		}
		taken[placeOf(m.token)] = true
	}
	if refused != nil {
		refused.Array[4] = Number(int64(freeAfter(wanted, slots, taken)))
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
		return Refuse(err)
	}
	if _, err := b.members(key); err != nil {
		return Refuse(err)
	}
	left := b.forgetMembers(key, func(other string, _ int64) bool { return other == token })
	if left > 0 {
		b.settle(key)
		b.ring(key)
	}
	return Number(left)
}

// stay is an extension.
func (b *ballotCall) stay(key, token string) redlock.Reply {
	ms, err := strconv.ParseInt(b.ttl, 10, 64)
	if err != nil {
		return Refuse(errNotNumber)
	}
	if err := b.mayWrite(); err != nil {
		return Refuse(err)
	}
	if err := b.addMember(key, token, b.now/1000+ms, !b.Variant(ExtendShortens)); err != nil {
		return Refuse(err)
	}
	b.settle(key)
	return Number(1)
}
