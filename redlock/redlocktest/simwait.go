package redlocktest

import (
	"strconv"

	"github.com/redlockd/redlockd/redlock"
)

// intend: who was refused waits. Who waits for those who share in another way leaves
// his mark.
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
	return number(1)
}

// bellTTL: nobody may give back what was only kept for somebody.
func bellTTL(refused *redlock.Reply, ttl string) string {
	by, left := refused.Array[0].Str, refused.Array[1].Int
	ms, err := strconv.ParseInt(ttl, 10, 64)
	if by != kindKept && by != kindWriter || left < 0 || err != nil {
		return ttl
	}
	return strconv.FormatInt(max(min(ms, left), 1), 10)
}

// comesIn: who waited waits no more, and others may join him.
func (b *ballotCall) comesIn(o operand) {
	marks := []string{o.key + writerOf}
	if b.keeping {
		marks = append(marks, o.key+keptFor)
	}
	for _, where := range marks {
		if b.unmark(where, o.token) && b.wanted != "" {
			b.remove(o.key + bell)
		}
	}
}

// keep has the lock be kept for who was refused, if it is for nobody; of several names,
// up to the first that is not to be had.
func (b *ballotCall) keep(o operand) redlock.Reply {
	if refused := b.refused; !b.chain || refused == nil || refused.Err != nil || refused.Array[0].Str == kindWriter {
		return number(1)
	}
	b.chain = b.mark(o.key+keptFor, o.token, o.ttl)
	if b.chain {
		ms, _ := strconv.ParseInt(o.ttl, 10, 64) // mark has seen it
		if until := b.now/1000 + ms; !b.keeping || until > b.keeps {
			b.keeps = until
		}
		b.writes = append(b.writes, "keeps", strconv.FormatInt(b.keeps, 10))
	}
	b.keeping = true
	value, ok, err := b.value(o.key)
	b.chain = b.chain && (!ok && err == nil || value == b.wanted && b.wanted != "")
	return number(1)
}

// ring: the lock is given back, and who waits is told. For a moment it is known that
// somebody did.
func (b *ballotCall) ring(key string) {
	if b.isThere(key + bell) {
		b.remove(key + bell)
		b.store(key+asked, "1", false, "250")
	}
}

// mark tells whether the mark is his now.
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

// intendAlready: somebody waits for those who share the lock, if they do.
func (b *ballotCall) intendAlready(key, mark, ttl string) redlock.Reply {
	if value, ok, err := b.value(key); err == nil && ok && value == kindShared {
		b.mark(key+writerOf, mark, ttl)
	}
	return number(1)
}

// unmark tells whether the mark was there, and is not any more.
func (b *ballotCall) unmark(where, mark string) bool {
	if !b.holds(where, mark) || b.mayWrite() != nil {
		return false
	}
	b.drop(where)
	return true
}

// done: whose mark this is waits no more, and nobody waits for him.
func (b *ballotCall) done(key, mark string) redlock.Reply {
	for _, where := range []string{key + writerOf, key + keptFor} {
		if b.unmark(where, mark) {
			b.remove(key + bell)
		}
	}
	return number(1)
}

// marked shows somebody else than who asks whose mark is there; nil: nobody's is.
func (b *ballotCall) marked(where, kind string) *redlock.Reply {
	mark, ok, err := b.value(where)
	if !ok || err != nil || mark == b.ownMark {
		return nil
	}
	left := b.left(where)
	shown := list(text(kind), left, shownText(mark), left)
	return &shown
}

// kept shows for whom else a lock is kept that the token does not hold already; nil:
// for nobody.
func (b *ballotCall) kept(o operand) *redlock.Reply {
	switch {
	case !b.keeping, o.kind == "" && b.holds(o.key, o.token), o.kind != "" && b.isMember(o.key, o.token):
		return nil
	}
	return b.marked(o.key+keptFor, kindKept)
}
