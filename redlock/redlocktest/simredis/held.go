package simredis

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/redlockd/redlockd/redlock"
)

// extend lengthens a token's expiry, as PEXPIRE … GT does. A key without an expiry stays so.
func (b *ballotCall) extend(key, token, ttl string) redlock.Reply {
	if b.holds(key, token) {
		return b.lengthen(key, ttl, !b.Variant(ExtendShortens))
	}
	if value, ok, _ := b.value(key); ok && IsKind(value) && b.isMember(key, token) {
		return b.extendShared(key, token, ttl)
	}
	if b.Variant(ExtendSets) {
		b.store(key, token, true, ttl)
		return Number(bool01(b.holds(key, token)))
	}
	return Number(-bool01(b.isForced(token)))
}

// downgrade extends a token. If the token holds the lock exclusively, the lock becomes shared, with
// this token as its first holder.
func (b *ballotCall) downgrade(key, token, ttl string) redlock.Reply {
	if !b.holds(key, token) {
		return b.extend(key, token, ttl)
	}
	ms, err := strconv.ParseInt(ttl, 10, 64)
	if err != nil {
		return Refuse(errNotNumber)
	}
	if err := b.mayWrite(); err != nil {
		return Refuse(err)
	}
	rest := strconv.FormatInt(max(ms, b.left(key).Int), 10)
	b.remove(key)
	b.addHolder(key, operand{token: token, kind: KindShared}, rest)
	b.notifyWaiters(key)
	return Number(1)
}

// exchange extends a token that holds the lock exclusively. If the old token holds the lock,
// exchange replaces it first, unless FORCE has noted one of the two.
func (b *ballotCall) exchange(o operand) redlock.Reply {
	forced := (b.isForced(o.old) || b.isForced(o.token)) && !b.Variant(ExchangeForced)
	switch {
	case b.holds(o.key, o.token):
	case forced || !b.holds(o.key, o.old):
		return Number(-bool01(forced))
	default:
		if err := b.mayWrite(); err != nil {
			return Refuse(err)
		}
		e := b.Keys[o.key]
		e.Text = o.token
		b.put(o.key, e)
	}
	return b.lengthen(o.key, o.ttl, !b.Variant(ExtendShortens))
}

// confirm extends a token that holds the lock exclusively, and raises the counter. It refuses a
// token that FORCE has noted. It returns 2 if another client waits for the lock.
func (b *ballotCall) confirm(o operand) redlock.Reply {
	if refused := b.tooFarAhead(o.record.field, o.record.value); refused != nil {
		return *refused
	}
	if b.isForced(o.token) && !b.Variant(ConfirmForced) {
		return Number(-1)
	}
	if !b.holds(o.key, o.token) {
		return Number(0)
	}
	extended := b.lengthen(o.key, o.ttl, !b.Variant(ExtendShortens))
	if extended.Err != nil {
		return extended
	}
	b.raise(o.record.field, o.record.value)
	return Number(1 + bool01(b.hasKey(o.key+wakeupKey)))
}

// retain confirms a token. Unless a client waits, it notes that the lock is retained, for clients
// that are refused.
func (b *ballotCall) retain(o operand) redlock.Reply {
	reply := b.confirm(o)
	if reply.Err == nil && reply.Int == 1 {
		if noted := b.store(o.key+retainedKey, o.token, false, retainedFor); noted.Err != nil {
			return noted
		}
	}
	return reply
}

// retainedFor is how long that note lasts, in milliseconds.
const retainedFor = "75"

// showHolder shows the holder of an exclusive lock to a refused client.
func (b *ballotCall) showHolder(key, value string) redlock.Reply {
	if token, ok, _ := b.value(key + retainedKey); ok && token == value {
		return List(Text(KindRetained), b.left(key), Text(value), b.left(key))
	}
	return List(shownText(value), b.left(key))
}

// lengthen sets the expiry of an existing key, as PEXPIRE does, or PEXPIRE GT if greater is set.
func (b *ballotCall) lengthen(key, ttl string, greater bool) redlock.Reply {
	ms, err := strconv.ParseInt(ttl, 10, 64)
	if err != nil {
		return Refuse(errNotNumber)
	}
	if err := b.mayWrite(); err != nil {
		return Refuse(err)
	}
	e, expiry := b.Keys[key], b.now/1000+ms
	if e.expiry != 0 && (expiry > e.expiry || !greater) {
		e.expiry = expiry
		b.put(key, e)
	}
	return Number(1)
}

func (b *ballotCall) release(key, token string) redlock.Reply {
	value, ok, err := b.value(key)
	switch {
	case err == nil && ok && IsKind(value) && !b.Variant(ReleaseBlindly):
		return b.releaseShared(key, token)
	case !b.hasKey(key) || !b.holds(key, token) && !b.Variant(ReleaseBlindly):
		return Number(0)
	}
	if err := b.mayWrite(); err != nil {
		return Refuse(err)
	}
	b.remove(key)
	b.notifyWaiters(key)
	return Number(1)
}

// Few is how many holders of a shared lock are shown to a client that does not ask for all.
const Few = 100

func (b *ballotCall) showHolders(key string, most int) redlock.Reply {
	value, ok, err := b.value(key)
	switch {
	case err != nil:
		return Refuse(err)
	case !ok || IsKind(value) && !b.settle(key):
		return b.showReservation(key)
	}
	shown := List(shownText(value), b.left(key))
	if IsKind(value) {
		members := b.sortedMembers(key)
		if len(members) > most {
			return shown
		}
		for _, m := range members {
			shown.Array = append(shown.Array, shownText(m.token), Number(m.until-b.now/1000))
		}
	}
	return shown
}

// shownText returns a value, cut to what the scripts show of it.
func shownText(value string) redlock.Reply { return Text(value[:min(len(value), 4096)]) }

// showReservation returns the reservation of a lock that nobody holds, or an empty list.
func (b *ballotCall) showReservation(key string) redlock.Reply {
	if next := b.otherWaiter(key+ReservationKey, KindReserved); next != nil {
		return *next
	}
	return List()
}

// noteForced notes a FORCE of the token, and reports whether it holds the lock.
func (b *ballotCall) noteForced(key, token, ttl string) redlock.Reply {
	if noted := b.store(ForcedKey(token), "1", false, ttl); noted.Err != nil {
		return noted
	}
	return Number(bool01(b.has(key, token)))
}

// force notes a FORCE of the token, and deletes the lock if the token holds it.
func (b *ballotCall) force(key, token, ttl string) redlock.Reply {
	if noted := b.store(ForcedKey(token), "1", false, ttl); noted.Err != nil {
		return noted
	}
	if b.Variant(ForceBlindly) {
		return del(b.with(key))
	}
	return b.release(key, token)
}

func (b *ballotCall) isForced(token string) bool { return b.hasKey(ForcedKey(token)) }

// ForcedKey is the key of the note of a FORCE.
func ForcedKey(token string) string {
	sum := sha1.Sum([]byte(token))
	return "redlockd:forced:" + hex.EncodeToString(sum[:])
}

// has reports whether the token holds the lock, exclusively or shared.
func (b *ballotCall) has(key, token string) bool {
	value, ok, err := b.value(key)
	return err == nil && ok && (value == token || IsKind(value) && b.isMember(key, token))
}

// value returns the string at key. ok reports whether there is one.
func (c call) value(key string) (value string, ok bool, err error) {
	e, ok := c.Lookup(key, c.now)
	if ok && !e.isString() {
		return "", false, errWrongType
	}
	return e.Text, ok, nil
}

// holds reports whether the value of key is the token.
func (c call) holds(key, token string) bool {
	value, ok, err := c.value(key)
	return err == nil && ok && value == token
}

func (c call) hasKey(key string) bool {
	_, ok := c.Lookup(key, c.now)
	return ok
}

// left returns the time to live of key, as PTTL does.
func (c call) left(key string) redlock.Reply { return pttl(c.with(key)) }

// remove deletes keys, as DEL does, on a node that accepts writes.
func (c call) remove(keys ...string) {
	for _, key := range keys {
		if c.hasKey(key) {
			c.drop(key)
		}
	}
}

func (c call) with(args ...string) call {
	c.args = args
	return c
}

func bool01(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// wait records that a refused client waits: it sets the wake-up key. If the lock is shared in
// another way, it also sets the writer intent.
func (b *ballotCall) wait(o operand) redlock.Reply {
	switch refused := b.refused; {
	case refused == nil:
		b.endGrantedWait(o)
	case refused.Err == nil:
		b.store(o.key+wakeupKey, "1", true, wakeupTTL(refused, o.ttl))
		value, _, _ := b.value(o.key)
		if by := refused.Array[0].Str; IsKind(by) && by != b.wanted && IsKind(value) && value != b.wanted {
			b.setWaiter(o.key+writerIntent, o.token, o.ttl)
		}
	}
	return Number(1)
}

// wakeupTTL returns the ttl of a wake-up key. A client that is refused because of a reservation or
// a writer intent may wait for a lock that nobody holds. No release deletes its wake-up key, so
// that key expires with the reservation or the intent.
func wakeupTTL(refused *redlock.Reply, ttl string) string {
	by, left := refused.Array[0].Str, refused.Array[1].Int
	ms, err := strconv.ParseInt(ttl, 10, 64)
	if by != KindReserved && by != KindWriter || left < 0 || err != nil {
		return ttl
	}
	return strconv.FormatInt(max(min(ms, left), 1), 10)
}

// endGrantedWait ends the wait of a client that acquired the lock. If the client shares the lock,
// this wakes the waiters that may join.
func (b *ballotCall) endGrantedWait(o operand) {
	keys := []string{o.key + writerIntent}
	if b.reserving {
		keys = append(keys, o.key+ReservationKey)
	}
	for _, where := range keys {
		if b.clearWaiter(where, o.token) && b.wanted != "" {
			b.remove(o.key + wakeupKey)
		}
	}
}

// reserve reserves the lock for a refused waiter, unless it is reserved for another one. Of several
// names, it reserves those up to the first that cannot be acquired.
func (b *ballotCall) reserve(o operand) redlock.Reply {
	if refused := b.refused; !b.free || refused == nil || refused.Err != nil || refused.Array[0].Str == KindWriter {
		return Number(1)
	}
	b.free = b.setWaiter(o.key+ReservationKey, o.token, o.ttl)
	if b.free {
		ms, _ := strconv.ParseInt(o.ttl, 10, 64) // setWaiter has parsed it
		if until := b.now/1000 + ms; !b.reserving || until > b.reservedUntil {
			b.reservedUntil = until
		}
		b.writes = append(b.writes, "keeps", strconv.FormatInt(b.reservedUntil, 10))
	}
	b.reserving = true
	value, ok, err := b.value(o.key)
	b.free = b.free && (!ok && err == nil || value == b.wanted && b.wanted != "")
	return Number(1)
}

// notifyWaiters wakes the waiters of a released lock: it deletes the wake-up key. A short-lived key
// then records that a client waited.
func (b *ballotCall) notifyWaiters(key string) {
	if b.hasKey(key + wakeupKey) {
		b.remove(key + wakeupKey)
		b.store(key+waitedKey, "1", false, "250")
	}
}

// setWaiter sets a writer intent or a reservation, and reports whether it belongs to this waiter
// now.
func (b *ballotCall) setWaiter(where, waiter, ttl string) bool {
	set := b.store(where, waiter, true, ttl)
	if !set.Nil {
		return set.Err == nil
	}
	if !b.holds(where, waiter) {
		return false
	}
	b.lengthen(where, ttl, true)
	return true
}

// intendWrite sets the writer intent if readers share the lock.
func (b *ballotCall) intendWrite(key, waiter, ttl string) redlock.Reply {
	if value, ok, err := b.value(key); err == nil && ok && value == KindShared {
		b.setWaiter(key+writerIntent, waiter, ttl)
	}
	return Number(1)
}

// clearWaiter deletes this waiter's writer intent or reservation. It reports whether there was one.
func (b *ballotCall) clearWaiter(where, waiter string) bool {
	if !b.holds(where, waiter) || b.mayWrite() != nil {
		return false
	}
	b.drop(where)
	return true
}

// endWait ends a wait: it deletes the waiter's writer intent and reservation, and wakes the clients
// that these blocked.
func (b *ballotCall) endWait(key, waiter string) redlock.Reply {
	for _, where := range []string{key + writerIntent, key + ReservationKey} {
		if b.clearWaiter(where, waiter) {
			b.remove(key + wakeupKey)
		}
	}
	return Number(1)
}

// otherWaiter returns the writer intent or reservation of another waiter, or nil.
func (b *ballotCall) otherWaiter(where, kind string) *redlock.Reply {
	waiter, ok, err := b.value(where)
	if !ok || err != nil || waiter == b.ownWaiter {
		return nil
	}
	left := b.left(where)
	shown := List(Text(kind), left, shownText(waiter), left)
	return &shown
}

// reservedFor returns another waiter's reservation of a lock that the token does not hold, or nil.
func (b *ballotCall) reservedFor(o operand) *redlock.Reply {
	switch {
	case !b.reserving, o.kind == "" && b.holds(o.key, o.token), o.kind != "" && b.isMember(o.key, o.token):
		return nil
	}
	return b.otherWaiter(o.key+ReservationKey, KindReserved)
}
