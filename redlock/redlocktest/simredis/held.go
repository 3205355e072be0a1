package simredis

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/redlockd/redlockd/redlock"
)

// extend lengthens a token's expiry, as PEXPIRE … GT does. A key that never expires has
// the greatest expiry of all.
func (b *ballotCall) extend(key, token string) redlock.Reply {
	if b.holds(key, token) {
		return b.lengthen(key, b.ttl, !b.Variant(ExtendShortens))
	}
	if value, ok, _ := b.value(key); ok && IsKind(value) && b.isMember(key, token) {
		return b.stay(key, token)
	}
	if b.Variant(ExtendSets) {
		b.store(key, token, true, b.ttl)
		return Number(bool01(b.holds(key, token)))
	}
	return Number(-bool01(b.isForced(token)))
}

// lengthen sets the expiry of an existing key, as PEXPIRE does, with GT or without.
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
		return b.leave(key, token)
	case !b.isThere(key) || !b.holds(key, token) && !b.Variant(ReleaseBlindly):
		return Number(0)
	}
	if err := b.mayWrite(); err != nil {
		return Refuse(err)
	}
	b.remove(key)
	b.ring(key)
	return Number(1)
}

// Few is how many holders of a shared lock are shown to a client that does not ask for
// all.
const Few = 100

func (b *ballotCall) who(key string, all bool) redlock.Reply {
	value, ok, err := b.value(key)
	switch {
	case err != nil:
		return Refuse(err)
	case !ok || IsKind(value) && !b.settle(key):
		return b.whoIsNext(key)
	}
	shown := List(shownText(value), b.left(key))
	if IsKind(value) {
		members := b.sortedMembers(key)
		if !all && len(members) > Few {
			return shown
		}
		for _, m := range members {
			shown.Array = append(shown.Array, shownText(m.token), Number(m.until-b.now/1000))
		}
	}
	return shown
}

// shownText returns at most as much of a foreign value as the scripts show.
func shownText(value string) redlock.Reply { return Text(value[:min(len(value), 4096)]) }

// whoIsNext returns the reservation of a lock that nobody holds; an empty list if there is
// none.
func (b *ballotCall) whoIsNext(key string) redlock.Reply {
	if next := b.marked(key+KeptFor, KindKept); next != nil {
		return *next
	}
	return List()
}

// force notes that the token is forced away, and deletes the lock if the token holds it.
func (b *ballotCall) force(key, token, ttl string) redlock.Reply {
	if noted := b.store(forcedKey(token), "1", false, ttl); noted.Err != nil {
		return noted
	}
	if b.Variant(ForceBlindly) {
		return del(b.with(key))
	}
	return b.release(key, token)
}

func (b *ballotCall) isForced(token string) bool { return b.isThere(forcedKey(token)) }

func forcedKey(token string) string {
	sum := sha1.Sum([]byte(token))
	return "redlockd:forced:" + hex.EncodeToString(sum[:])
}

// has reports whether the token holds the lock, alone or together with others.
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

// holds reports whether key is the string token now.
func (c call) holds(key, token string) bool {
	value, ok, err := c.value(key)
	return err == nil && ok && value == token
}

func (c call) isThere(key string) bool {
	_, ok := c.Lookup(key, c.now)
	return ok
}

// left returns the time to live of key, as PTTL does.
func (c call) left(key string) redlock.Reply { return pttl(c.with(key)) }

// remove deletes keys, as DEL does, on a node that accepts writes.
func (c call) remove(keys ...string) {
	for _, key := range keys {
		if c.isThere(key) {
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

// intend records that a refused client waits: it sets the wake-up key. If others share the
// lock in another way, it also sets the writer intent.
func (b *ballotCall) intend(o operand) redlock.Reply {
	switch refused := b.refused; {
	case refused == nil:
		b.comesIn(o)
	case refused.Err == nil:
		b.store(o.key+bell, "1", true, bellTTL(refused, o.ttl))
		value, _, _ := b.value(o.key)
		if by := refused.Array[0].Str; IsKind(by) && by != b.wanted && IsKind(value) && value != b.wanted {
			b.mark(o.key+writerOf, o.token, o.ttl)
		}
	}
	return Number(1)
}

// bellTTL returns the ttl of a wake-up key. A client that was refused for a reservation or
// a writer intent may wait for a lock that nobody holds. No release deletes its wake-up
// key, so the key ends with the reservation or intent.
func bellTTL(refused *redlock.Reply, ttl string) string {
	by, left := refused.Array[0].Str, refused.Array[1].Int
	ms, err := strconv.ParseInt(ttl, 10, 64)
	if by != KindKept && by != KindWriter || left < 0 || err != nil {
		return ttl
	}
	return strconv.FormatInt(max(min(ms, left), 1), 10)
}

// comesIn ends the wait of a client that got the lock. If it shares the lock, it wakes the
// waiters that may join.
func (b *ballotCall) comesIn(o operand) {
	marks := []string{o.key + writerOf}
	if b.keeping {
		marks = append(marks, o.key+KeptFor)
	}
	for _, where := range marks {
		if b.unmark(where, o.token) && b.wanted != "" {
			b.remove(o.key + bell)
		}
	}
}

// keep reserves the lock for a refused waiter, unless it is reserved for another. Of
// several names, it reserves those up to the first that cannot be acquired.
func (b *ballotCall) keep(o operand) redlock.Reply {
	if refused := b.refused; !b.chain || refused == nil || refused.Err != nil || refused.Array[0].Str == KindWriter {
		return Number(1)
	}
	b.chain = b.mark(o.key+KeptFor, o.token, o.ttl)
	if b.chain {
		ms, _ := strconv.ParseInt(o.ttl, 10, 64) // mark has parsed it
		if until := b.now/1000 + ms; !b.keeping || until > b.keeps {
			b.keeps = until
		}
		b.writes = append(b.writes, "keeps", strconv.FormatInt(b.keeps, 10))
	}
	b.keeping = true
	value, ok, err := b.value(o.key)
	b.chain = b.chain && (!ok && err == nil || value == b.wanted && b.wanted != "")
	return Number(1)
}

// ring wakes the waiters of a released lock: it deletes the wake-up key. A short-lived key
// then records that a client waited.
func (b *ballotCall) ring(key string) {
	if b.isThere(key + bell) {
		b.remove(key + bell)
		b.store(key+asked, "1", false, "250")
	}
}

// mark sets a writer intent or a reservation, and reports whether this waiter has it now.
func (b *ballotCall) mark(where, mark, ttl string) bool {
	set := b.store(where, mark, true, ttl)
	if !set.Nil {
		return set.Err == nil
	}
	if !b.holds(where, mark) {
		return false
	}
	b.lengthen(where, ttl, true)
	return true
}

// intendAlready sets the writer intent if readers share the lock.
func (b *ballotCall) intendAlready(key, mark, ttl string) redlock.Reply {
	if value, ok, err := b.value(key); err == nil && ok && value == KindShared {
		b.mark(key+writerOf, mark, ttl)
	}
	return Number(1)
}

// unmark deletes this waiter's writer intent or reservation, and reports whether it did.
func (b *ballotCall) unmark(where, mark string) bool {
	if !b.holds(where, mark) || b.mayWrite() != nil {
		return false
	}
	b.drop(where)
	return true
}

// done ends a wait: it deletes the waiter's writer intent and reservation, and wakes the
// clients that waited for them.
func (b *ballotCall) done(key, mark string) redlock.Reply {
	for _, where := range []string{key + writerOf, key + KeptFor} {
		if b.unmark(where, mark) {
			b.remove(key + bell)
		}
	}
	return Number(1)
}

// marked returns the writer intent or reservation of a waiter other than the caller; nil
// if there is none.
func (b *ballotCall) marked(where, kind string) *redlock.Reply {
	mark, ok, err := b.value(where)
	if !ok || err != nil || mark == b.ownMark {
		return nil
	}
	left := b.left(where)
	shown := List(Text(kind), left, shownText(mark), left)
	return &shown
}

// kept returns another waiter's reservation of a lock that the token does not hold
// already; nil if there is none.
func (b *ballotCall) kept(o operand) *redlock.Reply {
	switch {
	case !b.keeping, o.kind == "" && b.holds(o.key, o.token), o.kind != "" && b.isMember(o.key, o.token):
		return nil
	}
	return b.marked(o.key+KeptFor, KindKept)
}
