package redlock

import "time"

// turn is when one who waits has the nodes keep the lock for him. Between hosts there is
// no line, and he may never be the first: who wants several names may not meet an instant
// at which all are free, and who is far from the nodes is later each time.
//
// It is for a short time, and then he waits for more of others than before: a name of
// several is kept while he waits for a later one, and whoever holds that one may want this
// one next. (Who takes names one within the other in the order of the alphabet does not.)
// And one who is before him for long is not many who are before him in turn.
type turn struct {
	need   int           // how many must have been before him
	others int           // how many were
	last   string        // the last one's token; "": not known
	since  time.Duration // when the first of them was
	until  time.Duration // the lock is kept for him; 0: it is not
}

const (
	// keepAfter is how many others are before one who waits, until the lock is kept for
	// him. With as many contenders as a fleet has hosts that want one lock, hardly anybody
	// has so many before him by chance.
	keepAfter = 16
	// keepAfterMost: twice as many each time that it was kept in vain, and no more.
	keepAfterMost = 256
	// keptShare is which part of the time that those took it is kept for: one of them
	// had it for a sixteenth, and of a few names the longest-held is free by then.
	keptShare = 4
)

// left is how long the lock is to be kept for him still.
func (t *turn) left(now time.Duration) time.Duration {
	return max(t.until-now, 0)
}

// note counts who was before him; nil: no quorum voted. least is how long the lock is kept
// for him at least, most at most; 0: it is not kept. It is true where it is from now on: he
// is to tell the nodes.
func (t *turn) note(held *HeldError, now, least, most time.Duration) (begins bool) {
	if now < t.until {
		return false
	}
	if t.until > 0 { // in vain
		t.need, t.others, t.until = min(2*t.need, keepAfterMost), 0, 0
	}
	if held == nil || held.token != "" && held.token == t.last {
		return false
	}
	t.last = held.token
	if t.others++; t.others == 1 {
		t.since = now
	}
	if t.others < t.need || most == 0 {
		return false
	}
	t.until = now + min(max((now-t.since)/keptShare, least), most)
	return true
}

// waitsForTurn takes in who was before it. A single name is kept only for somebody whom
// the nodes tell when it is free: one who polls would come up to a quarter of a second
// later, and others who poll are sooner.
func (a *acquiring) waitsForTurn(held *HeldError) (begins bool) {
	most := time.Duration(0)
	if a.waiter.IsTold() || a.target.width() > 1 {
		most = a.r.TTL
	}
	return a.turn.note(held, a.q.clock(), a.q.options.NodeTimeout+2*a.q.window(), most)
}
