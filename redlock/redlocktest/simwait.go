package redlocktest

import "github.com/redlockd/redlockd/redlock"

// intend: who was refused waits. A writer that waits for readers leaves his mark.
func (b *ballotCall) intend(key, mark, ttl string) redlock.Reply {
	switch refused := b.refused; {
	case refused == nil:
		b.unmark(key, mark)
	case refused.Err == nil:
		b.store(key+bell, "1", true, ttl)
		if len(refused.Array) > 0 && refused.Array[0].Str == kindShared {
			b.mark(key, mark, ttl)
		}
	}
	return number(1)
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

// waitingWriter shows the writer that waits for those who share the lock; nil: none.
func (b *ballotCall) waitingWriter(key string) *redlock.Reply {
	mark, ok, err := b.value(key + writerOf)
	if !ok || err != nil {
		return nil
	}
	left := b.left(key + writerOf)
	shown := list(text(kindWriter), left, text(mark), left)
	return &shown
}
