package redlocktest

import "github.com/redlockd/redlockd/redlock"

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
	if o.letter == 'h' && b.variant(HandOverFence) {
		return number(b.counters[o.record.field])
	}
	token := number(b.sign(o) * b.count(o.record))
	if lost { // what the old token had lapsed there
		return list(token)
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
	if b.keeping && b.isThere(o.key+keptFor) {
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
	return number(sign * most)
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
		if other := b.marked(o.key+writerOf, kindWriter); other != nil {
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
		shown = refuse(err)
	case !ok || value == token || IsKind(value) && !b.settle(key):
		return nil
	case IsKind(value):
		shown = b.holder(key, value)
	default:
		shown = list(shownText(value), b.left(key))
	}
	return &shown
}

// fence raises the counter, if the lock is still the attempt's.
func (b *ballotCall) fence(o operand) redlock.Reply {
	if refused := b.far(o.record.field, o.record.value); refused != nil {
		return *refused
	}
	if !b.has(o.key, o.token) && !b.variant(FenceBlindly) {
		return number(0)
	}
	b.raise(o.record.field, o.record.value)
	return number(1)
}

func (b *ballotCall) repair(o operand) redlock.Reply {
	if b.late {
		return refuse(errLate)
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
		return number(0)
	}
	b.raise(o.record.field, o.record.value)
	return number(1)
}

// mend sets the key where it is missing.
func (b *ballotCall) mend(o operand) *redlock.Reply {
	if o.letter == 'q' {
		return b.join(o, o.ttl)
	}
	return errorOf(b.store(o.key, o.token, true, o.ttl))
}
