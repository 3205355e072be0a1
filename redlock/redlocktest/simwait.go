package redlocktest

import "github.com/redlockd/redlockd/redlock"

// intend: who was refused waits. Who waits for those who share in another way leaves
// his mark.
func (b *ballotCall) intend(key, mark, ttl string) redlock.Reply {
	switch refused := b.refused; {
	case refused == nil:
		if b.unmark(key, mark) && b.wanted != "" { // others may join
			b.remove(key + bell)
		}
	case refused.Err == nil:
		b.store(key+bell, "1", true, ttl)
		if by := refused.Array[0].Str; isKind(by) && by != b.wanted && by != kindWriter {
			b.mark(key, mark, ttl)
		}
	}
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

func (b *ballotCall) mark(key, mark, ttl string) {
	if set := b.store(key+writerOf, mark, true, ttl); set.Nil && b.holds(key+writerOf, mark) {
		b.lengthen(key+writerOf, ttl, true)
	}
}

// intendAlready: somebody waits for those who share the lock, if they do.
func (b *ballotCall) intendAlready(key, mark, ttl string) redlock.Reply {
	if value, ok, err := b.value(key); err == nil && ok && value == kindShared {
		b.mark(key, mark, ttl)
	}
	return number(1)
}

// unmark tells whether the mark was there, and is not any more.
func (b *ballotCall) unmark(key, mark string) bool {
	if !b.holds(key+writerOf, mark) || b.mayWrite() != nil {
		return false
	}
	b.drop(key + writerOf)
	return true
}

// done: whose mark this is waits no more, and nobody waits for him.
func (b *ballotCall) done(key, mark string) redlock.Reply {
	if b.unmark(key, mark) {
		b.remove(key + bell)
	}
	return number(1)
}

// waiting shows somebody else who waits for those who share the lock, or is to have
// it next; nil: nobody does.
func (b *ballotCall) waiting(key, own string) *redlock.Reply {
	mark, ok, err := b.value(key + writerOf)
	if !ok || err != nil || mark == own {
		return nil
	}
	left := b.left(key + writerOf)
	shown := list(text(kindWriter), left, text(mark), left)
	return &shown
}
