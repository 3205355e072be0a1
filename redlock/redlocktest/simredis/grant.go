package simredis

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// grant executes an acquire of any kind. It returns a fencing token, or what blocks the acquire.
func (b *ballotCall) grant(o operand) redlock.Reply {
	lost := o.letter == 'h' && !b.holds(o.key, o.old)
	switch {
	case o.letter == 's' || len(b.otherNames) > 0:
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
	if lost { // the old token did not hold the key
		return List(token)
	}
	return token
}

// sign returns the sign of the fencing token: -1 if a client waits. A plain acquire does not report
// that.
func (b *ballotCall) sign(o operand) int64 {
	if o.letter != 'a' && b.hasKey(o.key+wakeupKey) {
		return -1
	}
	return 1
}

// take acquires a lock. Like the functions below, it returns nil on success.
func (b *ballotCall) take(o operand) *redlock.Reply {
	if refused := b.refusal(o.record); refused != nil {
		return refused
	}
	if b.reserving && b.hasKey(o.key+ReservationKey) {
		return b.takeReserved(o)
	}
	if stored := b.store(o.key, o.token, true, o.ttl); !stored.Nil {
		return errorOf(stored)
	}
	refused := b.blocker(o.key, o.token)
	if refused == nil && !b.holds(o.key, o.token) { // no reader holds it now
		return errorOf(b.store(o.key, o.token, false, o.ttl))
	}
	return refused
}

// takeReserved acquires a lock that may be reserved for a waiter.
func (b *ballotCall) takeReserved(o operand) *redlock.Reply {
	refused := b.blocker(o.key, o.token)
	if refused == nil {
		refused = b.reservedFor(o)
	}
	if refused == nil {
		refused = errorOf(b.store(o.key, o.token, true, o.ttl))
	}
	return refused
}

// errorOf returns the reply if it is an error, and nil otherwise.
func errorOf(reply redlock.Reply) *redlock.Reply {
	if reply.Err == nil {
		return nil
	}
	return &reply
}

// grantAll acquires one shared name, or several names of any kind, with the token of the last one.
// It acquires all or none.
func (b *ballotCall) grantAll(last operand) redlock.Reply {
	names := append(b.otherNames, last)
	b.otherNames = nil
	if b.refused = b.takeAll(names, last); b.refused != nil {
		return *b.refused
	}
	most, sign := int64(0), int64(1)
	for _, o := range names {
		most = max(most, b.count(o.record))
		if b.hasKey(o.key+wakeupKey) || b.hasKey(o.key+waitedKey) {
			sign = -1
		}
	}
	for _, o := range names {
		if refused := b.tooFarAhead(o.record.field, most); refused != nil {
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
			refused = b.blockerOf(o, last)
		}
		if refused != nil {
			return refused
		}
	}
	for _, o := range names {
		o.token, o.kind = last.token, last.kind
		if refused = b.reservedFor(o); refused != nil {
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

// takeOne acquires one of several keys that nothing blocks. It returns nil on success, else the
// error.
func (b *ballotCall) takeOne(key string, last operand) *redlock.Reply {
	if last.letter == 's' {
		return b.addHolder(key, last, last.ttl)
	}
	return errorOf(b.store(key, last.token, false, last.ttl))
}

// blockerOf returns what blocks a token from one of several keys; nil if nothing does.
func (b *ballotCall) blockerOf(o, last operand) *redlock.Reply {
	if last.letter != 's' {
		return b.blocker(o.key, last.token)
	}
	if !b.isMember(o.key, last.token) {
		if other := b.otherWaiter(o.key+writerIntent, KindWriter); other != nil {
			return other
		}
	}
	return b.obstacle(o)
}

// handOver replaces one token with another.
func (b *ballotCall) handOver(o operand) *redlock.Reply {
	if refused := b.refusal(o.record); refused != nil {
		return refused
	}
	switch {
	case !b.holds(o.key, o.old):
		if refused := b.blocker(o.key, o.token); refused != nil {
			return refused
		}
		if refused := b.reservedFor(o); refused != nil {
			return refused
		}
	case b.isForced(o.old):
		return b.releaseForced(o)
	}
	return errorOf(b.store(o.key, o.token, false, o.ttl))
}

// releaseForced releases a token that FORCE has noted and not deleted yet. The new token is refused.
func (b *ballotCall) releaseForced(o operand) *redlock.Reply {
	shown := List(shownText(o.old), b.left(o.key))
	if released := b.release(o.key, o.old); released.Err != nil {
		return &released
	}
	return &shown
}

// blocker returns what blocks a token from a key; nil if nothing does.
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
		shown = b.showHolder(key, value)
	}
	return &shown
}

// fence raises the counter if the attempt still holds the lock.
func (b *ballotCall) fence(o operand) redlock.Reply {
	if refused := b.tooFarAhead(o.record.field, o.record.value); refused != nil {
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
	if refused := b.tooFarAhead(o.record.field, o.record.value); refused != nil {
		return *refused
	}
	if !b.isForced(o.token) {
		if err := b.setMissing(o); err != nil && err.Err != nil {
			return *err
		}
	}
	if !b.has(o.key, o.token) {
		return Number(0)
	}
	b.raise(o.record.field, o.record.value)
	return Number(1)
}

// setMissing acquires the key again if it is missing.
func (b *ballotCall) setMissing(o operand) *redlock.Reply {
	if o.letter == 'q' {
		return b.repairShared(o, o.ttl)
	}
	return errorOf(b.store(o.key, o.token, true, o.ttl))
}

// These suffixes of a lock's key name its other keys. ballot.lua explains them.
const (
	MembersOf      = "\x00m"
	wakeupKey      = "\x00b"
	waitedKey      = "\x00a"
	writerIntent   = "\x00w"
	ReservationKey = "\x00k"
	retainedKey    = "\x00r"
)

const (
	kindPrefix   = "redlockd:"
	KindShared   = "redlockd:shared"
	KindWriter   = "redlockd:writer"
	KindReserved = "redlockd:kept"
	KindRetained = "redlockd:retained"
)

// IsKind reports whether a key's value says that a lock is shared. Other values with this prefix
// belong to foreign clients.
func IsKind(value string) bool {
	slots, ok := strings.CutPrefix(value, kindPrefix+"slots=")
	return value == KindShared || ok && slots != "" && strings.Trim(slots, "0123456789") == ""
}

// member is one holder of a shared lock.
type member struct {
	token string
	until int64 // milliseconds since 1970
}

// members returns the holders of a shared lock, or nil.
func (c call) members(key string) (map[string]int64, error) {
	e, ok := c.Lookup(key+MembersOf, c.now)
	if ok && e.Set == nil {
		return nil, errWrongType
	}
	return e.Set, nil
}

// sortedMembers returns the members in the order of their expiry.
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

// settle deletes the expired members, and sets the key's expiry to the latest expiry of the others.
// If no member is left, it deletes the key and returns false.
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

// forgetMembers deletes the members for which over returns true, and returns their number. A set
// without members does not exist.
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

// expireAt sets the expiry of a key, as PEXPIREAT does. at must not be past.
func (c call) expireAt(key string, at int64) {
	if e, ok := c.Lookup(key, c.now); ok {
		e.expiry = at
		c.put(key, e)
	}
}

// addMember adds a member, as ZADD does, or ZADD GT if greater is set. The caller has checked that
// the node accepts writes.
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

// holder returns the kind of a shared lock and the member that expires last.
func (c call) holder(key, kind string) redlock.Reply {
	shown := List(Text(kind), c.left(key))
	if sorted := c.sortedMembers(key); len(sorted) > 0 {
		last := sorted[len(sorted)-1]
		shown.Array = append(shown.Array, shownText(last.token), Number(last.until-c.now/1000))
	}
	return shown
}

// repairShared adds a token to a shared lock, for a repair.
func (b *ballotCall) repairShared(o operand, ttl string) *redlock.Reply {
	if refused := b.obstacle(o); refused != nil {
		return refused
	}
	return b.addHolder(o.key, o, ttl)
}

// obstacle returns what blocks a token from sharing the lock; nil if nothing does.
func (b *ballotCall) obstacle(o operand) *redlock.Reply {
	value, ok, err := b.value(o.key)
	var shown redlock.Reply
	switch {
	case err != nil:
		shown = Refuse(err)
		return &shown
	case ok && !IsKind(value):
		shown = b.showHolder(o.key, value)
		return &shown
	case !ok || !b.settle(o.key):
		return nil
	case value != o.kind && !b.Variant(MixKinds):
		shown = b.holder(o.key, value)
		return &shown
	case o.kind != KindShared:
		return b.slotHolder(o)
	}
	return nil
}

// addHolder adds a token. If the lock's key was deleted, it drops the members from before.
func (b *ballotCall) addHolder(key string, o operand, ttl string) *redlock.Reply {
	if _, ok, _ := b.value(key); !ok && b.mayWrite() == nil {
		b.remove(key + MembersOf)
	}
	if stored := b.store(key, o.kind, true, ttl); stored.Err != nil {
		return &stored
	}
	ms, _ := strconv.ParseInt(ttl, 10, 64) // store has parsed it
	if err := b.addMember(key, o.token, b.now/1000+ms, true); err != nil {
		failed := Refuse(err)
		return &failed
	}
	b.settle(key)
	return nil
}

// slotHolder returns nil if no other holder has the slot at the start of the token. Otherwise it
// returns the holder of that slot, the first expiry of all members, and a free slot.
func (b *ballotCall) slotHolder(o operand) *redlock.Reply {
	wanted := slotOf(o.token)
	slots, err := strconv.Atoi(o.kind[strings.LastIndexByte(o.kind, '=')+1:])
	if wanted == 0 || err != nil {
		shown := Refuse(simError("ballot: %q has no slot of %q", o.token, o.kind))
		return &shown
	}
	taken, refused := map[int]bool{}, (*redlock.Reply)(nil)
	if b.Variant(CountHolders) && len(b.sortedMembers(o.key)) < slots {
		return nil
	}
	sorted := b.sortedMembers(o.key)
	for _, m := range sorted {
		if slotOf(m.token) == wanted && m.token != o.token {
			shown := List(Text(o.kind), Number(sorted[0].until-b.now/1000), shownText(m.token), Number(m.until-b.now/1000), Number(0))
			refused = &shown
		}
		taken[slotOf(m.token)] = true
	}
	if refused != nil {
		refused.Array[4] = Number(int64(freeAfter(wanted, slots, taken)))
	}
	return refused
}

// freeAfter returns the first free slot after the wanted one, or 0.
func freeAfter(wanted, slots int, taken map[int]bool) int {
	for i := wanted; i < wanted+slots-1; i++ {
		if slot := i%slots + 1; !taken[slot] {
			return slot
		}
	}
	return 0
}

// slotOf returns the slot at the start of a semaphore's token, or 0.
func slotOf(token string) int {
	digits := token[:len(token)-len(strings.TrimLeft(token, "0123456789"))]
	slot, _ := strconv.Atoi(digits)
	return slot
}

// releaseShared releases a shared lock.
func (b *ballotCall) releaseShared(key, token string) redlock.Reply {
	if err := b.mayWrite(); err != nil {
		return Refuse(err)
	}
	if _, err := b.members(key); err != nil {
		return Refuse(err)
	}
	left := b.forgetMembers(key, func(other string, _ int64) bool { return other == token })
	if left > 0 {
		b.settle(key)
		b.notifyWaiters(key)
	}
	return Number(left)
}

// extendShared extends a token of a shared lock.
func (b *ballotCall) extendShared(key, token, ttl string) redlock.Reply {
	ms, err := strconv.ParseInt(ttl, 10, 64)
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
