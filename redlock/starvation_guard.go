package redlock

import "time"

// starvationGuard decides when a waiter gets a reservation: the nodes then refuse the lock
// to all others for a while. Without it a waiter might never be first, as there is no queue
// between hosts: one that wants several names may not meet an instant at which all are
// free, and one that is far from the nodes is always later.
//
// A reservation lasts for a short time; if it was in vain, more other holders are needed
// for the next one. (A name of several is reserved while the waiter waits for a later one,
// and the holder of that one may want this one next. That cannot happen among clients that
// take nested names in alphabetical order.) One holder that keeps the lock for long counts
// once.
type starvationGuard struct {
	need   int           // how many other holders the next reservation needs
	others int           // how many were seen since the last one
	last   string        // token of the last of them; "": not known
	since  time.Duration // when the first of them was seen
	until  time.Duration // when the reservation ends; 0: there is none
}

const (
	// keepAfter is how many other holders a waiter sees before it gets a reservation. With
	// as many contenders as a fleet has hosts that want one lock, few waiters see so many by
	// chance.
	keepAfter = 16
	// keepAfterMost bounds keepAfter, which doubles after each reservation in vain.
	keepAfterMost = 256
	// keptShare is the part of the time that those holders took for which the lock is
	// reserved: each held it for a sixteenth on average, and of a few names the longest-held
	// is free by then.
	keptShare = 4
)

// left returns how long the reservation lasts.
func (g *starvationGuard) left(now time.Duration) time.Duration {
	return max(g.until-now, 0)
}

// note counts a holder that refused the waiter; nil: no quorum voted. A reservation lasts
// between least and most; with most 0 there is none. note reports whether one begins: the
// next attempt tells the nodes.
func (g *starvationGuard) note(held *HeldError, now, least, most time.Duration) (begins bool) {
	if now < g.until {
		return false
	}
	if g.until > 0 { // it was in vain
		g.need, g.others, g.until = min(2*g.need, keepAfterMost), 0, 0
	}
	if held == nil || held.token != "" && held.token == g.last {
		return false
	}
	g.last = held.token
	if g.others++; g.others == 1 {
		g.since = now
	}
	if g.others < g.need || most == 0 {
		return false
	}
	g.until = now + min(max((now-g.since)/keptShare, least), most)
	return true
}

// countHolder records the holder that refused an attempt, and reports whether a
// reservation begins. A single name is reserved only for a waiter that the nodes notify: one
// that polls would come up to a quarter of a second late, and others that poll are sooner.
func (a *acquiring) countHolder(held *HeldError) (begins bool) {
	most := time.Duration(0)
	if a.waiter.IsTold() || a.target.width() > 1 {
		most = a.r.TTL
	}
	return a.guard.note(held, a.q.clock(), a.q.options.NodeTimeout+2*a.q.window(), most)
}
