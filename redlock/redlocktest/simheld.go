package redlocktest

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/redlockd/redlockd/redlock"
)

// extend is PEXPIRE … GT: a key that never expires has the greatest of all
// expiries.
func (b *ballotCall) extend(key, token string) redlock.Reply {
	if b.holds(key, token) {
		return b.lengthen(key, b.ttl, !b.variant(ExtendShortens))
	}
	if value, ok, _ := b.value(key); ok && IsKind(value) && b.isMember(key, token) {
		return b.stay(key, token)
	}
	if b.variant(ExtendSets) {
		b.store(key, token, true, b.ttl)
		return number(bool01(b.holds(key, token)))
	}
	return number(-bool01(b.isForced(token)))
}

// lengthen is PEXPIRE of a key that there is, with GT or without.
func (b *ballotCall) lengthen(key, ttl string, greater bool) redlock.Reply {
	ms, err := strconv.ParseInt(ttl, 10, 64)
	if err != nil {
		return refuse(errNotNumber)
	}
	if err := b.mayWrite(); err != nil {
		return refuse(err)
	}
	e, expiry := b.keys[key], b.now/1000+ms
	if e.expiry != 0 && (expiry > e.expiry || !greater) {
		e.expiry = expiry
		b.put(key, e)
	}
	return number(1)
}

func (b *ballotCall) release(key, token string) redlock.Reply {
	value, ok, err := b.value(key)
	switch {
	case err == nil && ok && IsKind(value) && !b.variant(ReleaseBlindly):
		return b.leave(key, token)
	case !b.isThere(key) || !b.holds(key, token) && !b.variant(ReleaseBlindly):
		return number(0)
	}
	if err := b.mayWrite(); err != nil {
		return refuse(err)
	}
	b.remove(key)
	b.ring(key)
	return number(1)
}

// few is how many of those who share a lock are shown to whoever does not want all.
const few = 100

func (b *ballotCall) who(key string, all bool) redlock.Reply {
	value, ok, err := b.value(key)
	switch {
	case err != nil:
		return refuse(err)
	case !ok || IsKind(value) && !b.settle(key):
		return b.whoIsNext(key)
	}
	shown := list(shownText(value), b.left(key))
	if IsKind(value) {
		members := b.sortedMembers(key)
		if !all && len(members) > few {
			return shown
		}
		for _, m := range members {
			shown.Array = append(shown.Array, shownText(m.token), number(m.until-b.now/1000))
		}
	}
	return shown
}

// shownText shows no more of what somebody else wrote than the scripts do.
func shownText(value string) redlock.Reply { return text(value[:min(len(value), 4096)]) }

// whoIsNext is for whom a lock is kept that nobody holds; an empty list: for nobody.
func (b *ballotCall) whoIsNext(key string) redlock.Reply {
	if next := b.marked(key+keptFor, kindKept); next != nil {
		return *next
	}
	return list()
}

// force deletes the lock if it is the token's, and notes that.
func (b *ballotCall) force(key, token, ttl string) redlock.Reply {
	if noted := b.store(forcedKey(token), "1", false, ttl); noted.Err != nil {
		return noted
	}
	if b.variant(ForceBlindly) {
		return del(b.with(key))
	}
	return b.release(key, token)
}

func (b *ballotCall) isForced(token string) bool { return b.isThere(forcedKey(token)) }

func forcedKey(token string) string {
	sum := sha1.Sum([]byte(token))
	return "redlockd:forced:" + hex.EncodeToString(sum[:])
}

// has tells whether the lock is the token's, alone or together with others.
func (b *ballotCall) has(key, token string) bool {
	value, ok, err := b.value(key)
	return err == nil && ok && (value == token || IsKind(value) && b.isMember(key, token))
}

// value returns the string at key; ok tells that there is one.
func (c call) value(key string) (value string, ok bool, err error) {
	e, ok := c.lookup(key, c.now)
	if ok && !e.isString() {
		return "", false, errWrongType
	}
	return e.text, ok, nil
}

// holds tells whether key is the string token now.
func (c call) holds(key, token string) bool {
	value, ok, err := c.value(key)
	return err == nil && ok && value == token
}

func (c call) isThere(key string) bool {
	_, ok := c.lookup(key, c.now)
	return ok
}

// left is PTTL.
func (c call) left(key string) redlock.Reply { return pttl(c.with(key)) }

// remove is DEL, on a node that may write.
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
