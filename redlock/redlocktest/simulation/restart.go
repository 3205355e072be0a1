package simulation

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// TableBug is a deliberate mistake in how a simulated daemon keeps its table of leases.
type TableBug string

const (
	AdoptReleased      TableBug = "a lease is adopted although its release was recorded"
	RecordAttemptLate  TableBug = "an attempt is recorded after its first byte was sent"
	RecordPassLate     TableBug = "a pass is recorded after its grant"
	IgnorePasses       TableBug = "passes do not count towards the bound while other hosts wait"
	AdoptAsExclusive   TableBug = "a downgraded lease is recorded as exclusive"
	AbandonPassed      TableBug = "a token that was passed on is abandoned"
	RecordExchangeLate TableBug = "a new token of a lease is recorded after the nodes got it"
	ReleaseAtEnd       TableBug = "a lease is released when its holder ends, although min= has not passed"
	ForgetMin          TableBug = "min= is not recorded"
	KeepForever        TableBug = "a kept lease is extended after min= has passed"
)

// table holds the leases and attempts that a daemon leaves for the next one. The daemon writes a
// record before it sends anything to a node.
type table struct {
	h        *host
	starting chan struct{} // capacity 1; gets a value when an attempt or an exchange is about to begin

	mu    sync.Mutex // guards what follows; not held during any call
	rows  map[string]*row
	order []*row
	ended time.Duration // when a daemon was last killed
}

// row is an attempt, or the lease that came of it.
type row struct {
	redlock.Record
	at      time.Duration // when a daemon began or released it; if it is lost, when to release it
	lost    bool
	minHeld time.Duration  // min=: how long the lock stays taken after the grant
	kept    bool           // its holder has ended
	lease   *redlock.Lease // nil: an attempt, or a lease that has ended
	grant   *Grant
}

func newTable(h *host) *table {
	return &table{h: h, starting: make(chan struct{}, 1), rows: map[string]*row{}}
}

// recordAttempt implements Request.BeforeAttempt.
func (t *table) recordAttempt(r redlock.Record) {
	if r.Grant != "" && t.h.w.plan.Table == RecordPassLate {
		return
	}
	t.signal()
	if t.h.w.plan.Table == RecordAttemptLate {
		_, life := t.h.daemon()
		time.AfterFunc(nodeTimeout, func() {
			if q, now := t.h.daemon(); q != nil && now == life {
				t.add(r)
			}
		})
		return
	}
	t.add(r)
}

func (t *table) add(r redlock.Record) {
	now := t.h.w.record.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	id := r.ID()
	if t.rows[id] == nil {
		t.rows[id] = &row{Record: r, at: now}
		t.order = append(t.order, t.rows[id])
	}
}

// granted records a lease before its client gets it. It returns false if the daemon was killed
// first. Then no client gets the lease.
func (t *table) granted(l *redlock.Lease, q *Request) bool {
	if daemon, now := t.h.daemon(); daemon == nil || now != q.life {
		return false
	}
	if l.Passed() && t.h.w.plan.Table == RecordPassLate {
		return true
	}
	record := l.Record()
	t.add(record)
	t.change(l.ID(), func(e *row) { e.Record, e.lease = record, l })
	if t.h.w.plan.Table != ForgetMin {
		t.change(l.ID(), func(e *row) { e.minHeld = q.MinHeld })
	}
	return true
}

// recordGrant records the grant, after the client got the lease.
func (t *table) recordGrant(g *Grant) { t.change(g.ID, func(e *row) { e.grant = g }) }

// moved implements Options.DeadlineChanged.
func (t *table) moved(l *redlock.Lease) {
	record := l.Record()
	t.change(l.ID(), func(e *row) {
		if e.lease == l {
			shared := e.Shared || record.Shared && t.h.w.plan.Table != AdoptAsExclusive // e may be newer
			record.Token, record.Former = e.Token, e.Former
			e.Record = record
			e.Shared = shared
		}
	})
}

// movedBack implements Options.DeadlinesMovedBack.
func (t *table) movedBack() {
	t.mu.Lock()
	var all []*redlock.Lease
	for _, e := range t.order {
		if e.lease != nil {
			all = append(all, e.lease)
		}
	}
	t.mu.Unlock()
	for _, l := range all {
		t.moved(l)
	}
}

// released records that a lease is about to be released.
func (t *table) released(g *Grant) {
	now := t.h.w.record.now()
	t.change(g.ID, func(e *row) {
		if e.at = now; t.h.w.plan.Table != AdoptReleased {
			e.lease = nil
		}
	})
}

// keep undoes released, for the mistake RecordPassLate.
func (t *table) keep(l *redlock.Lease, g *Grant) {
	t.change(g.ID, func(e *row) { e.lease = l })
}

// lost records that a lease is lost. The daemon releases it at its deadline, not before.
func (t *table) lost(id string) {
	t.change(id, func(e *row) { e.lease, e.lost, e.at = nil, true, t.h.instant(e.Deadline) })
}

func (t *table) change(id string, how func(*row)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.rows[id]; e != nil {
		how(e)
	}
}

// tableTTL is how long a node may hold a token that a daemon sent or released.
const tableTTL = simulatedMaxTTL + simulatedMaxTTL/50 + 2*nodeTimeout

// end records that the daemon is killed. Rows do not age until the next daemon starts, because only
// a running daemon forgets them.
func (t *table) end() {
	now := t.h.w.record.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = now
}

// read returns the rows to adopt and the rows to abandon. They stay in the table for the daemon
// after this one. A row is neither if its lock was passed on: the lease of a later row has its
// token.
func (t *table) read() (held, under []*row) {
	now := t.h.w.record.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	tokens := map[string]bool{}
	for _, e := range t.order {
		if e.lease != nil {
			held = append(held, e)
		}
		if e.lease != nil || e.lost && now < e.at {
			tokens[e.Token] = t.h.w.plan.Table != AbandonPassed
			tokens[cmp.Or(e.Former, e.Token)] = tokens[e.Token]
		}
	}
	for _, e := range t.order {
		if passed := tokens[e.Token] && !e.lost; e.lease == nil && !passed && t.ended < e.at+tableTTL {
			e.at = max(e.at, now)
			under = append(under, e)
		}
	}
	return held, under
}

// restore makes a new daemon continue from the table.
func (t *table) restore(q *redlock.Quorum) {
	held, under := t.read()
	records := make([]redlock.Record, len(held))
	for i, e := range held {
		if records[i] = e.Record; e.grant != nil {
			records[i].Holder = e.grant.holder()
		}
	}
	a := q.Adopt(records, func(i int, l *redlock.Lease) {
		t.lost(l.ID())
		held[i].grant.lost(l)
	})
	for i, l := range a.Leases {
		if err := a.Errs[i]; err != nil {
			if t.h.w.plan.Table != AdoptReleased {
				panic(err) // a bug of the simulation
			}
			t.h.w.record.refused(held[i].grant, err)
			continue
		}
		t.change(l.ID(), func(e *row) {
			if e.lease != nil { // it may have been lost meanwhile
				e.lease = l
			}
		})
		t.h.w.record.adopted(held[i].grant, l)
	}
	for _, e := range under {
		abandon(q, e, t.h.w.record.now())
	}
}

// abandon releases an attempt in progress at once, and a lost lease at its deadline.
func abandon(q *redlock.Quorum, e *row, now time.Duration) {
	release := func() {
		if err := q.Abandon(e.Record); err != nil {
			panic(err) // a bug of the simulation
		}
	}
	if e.lost && now < e.at {
		time.AfterFunc(e.at-now, release)
		return
	}
	release()
}

// refused records that a lease cannot be adopted, because another lease has its token.
func (r *recorder) refused(g *Grant, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.violate("adoption", r.now(), "lease %d of %s cannot be adopted: %v", g.N, g.Lock, err)
}

// adopted records that a daemon continues a lease of the previous one. While no daemon ran, nothing
// could report LOST.
func (r *recorder) adopted(g *Grant, l *redlock.Lease) {
	over := l.Err() != nil
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, later := range r.report.Grants {
		if later.TokenID == g.TokenID && later.Fence > l.Fence() {
			r.report.violate("adoption", r.now(), "lease %d of %s is adopted with the fencing token %d although its lock was passed on to lease %d", g.N, g.Lock, l.Fence(), later.N)
			break
		}
	}
	if g.Noted && !l.Shared() {
		r.report.violate("adoption", r.now(), "lease %d of %s is adopted as exclusive although it was downgraded at %s", g.N, g.Lock, instant(g.Shares))
	}
	r.checkAdoptedToken(g, l)
	g.lease, g.LostWhileDown = l, g.LostWhileDown || over
	r.add(g.line("adopted", ""))
	r.report.Faults["adoption"]++
}

// afterRestart waits for a running daemon, and returns the lease as that daemon has it. It returns
// nil if the daemon has no such lease.
func (h *host) afterRestart(l *redlock.Lease, g *Grant, life int) (*redlock.Lease, *redlock.Quorum, int) {
	for {
		q, now := h.daemon()
		switch {
		case q != nil && now == life:
			return l, q, life
		case h.table == nil:
			return nil, nil, 0
		case q != nil:
			var adopted *redlock.Lease
			h.table.change(g.ID, func(e *row) { adopted = e.lease })
			return adopted, q, now
		}
		time.Sleep(restartPoll)
	}
}

const restartPoll = 7*time.Millisecond + 13

// startRestarts kills daemons, and starts new ones that continue from their tables.
func (w *world) startRestarts() {
	if !w.plan.Restarts {
		return
	}
	for i, h := range w.hosts {
		random := w.plan.stream(streamRestart + i)
		w.clients.Go(func() {
			for w.work.Err() == nil {
				time.Sleep(below(random, 2*time.Second))
				if oneIn(random, 2) {
					h.table.awaitAttempt()
					time.Sleep(below(random, 4*time.Millisecond))
				}
				h.restart(random)
			}
		})
	}
}

// signal tells awaitAttempt that an attempt or an exchange is about to begin.
func (t *table) signal() {
	select {
	case t.starting <- struct{}{}:
	default: // an earlier signal is still there
	}
}

// awaitAttempt waits, for a limited time, until an attempt or an exchange begins. So daemons are
// killed in the middle of one.
func (t *table) awaitAttempt() {
	select {
	case <-t.starting: // an earlier attempt
	default:
	}
	select {
	case <-t.starting:
	case <-time.After(300*time.Millisecond + 3):
	}
}

// restart kills a daemon as kill -9 does, and starts a new one later.
func (h *host) restart(random *rand.Rand) {
	links := make([]any, len(h.links))
	for i, l := range h.links {
		links[i] = l
	}
	h.w.faults.faultCount(links, 1)
	h.w.record.count("daemon restart")
	h.w.record.event(Event{Actor: h.name, What: "killed"})
	h.end()
	time.Sleep(below(random, pick(random, 20*time.Millisecond, 400*time.Millisecond, 1500*time.Millisecond)))
	h.start()
	h.w.record.event(Event{Actor: h.name, What: "started"})
	h.w.faults.faultCount(links, -1)
}

// tokenChanges implements Options.TokenChanges. A daemon cannot record the token of a lease that
// Acquire has not returned yet.
func (h *host) tokenChanges(l *redlock.Lease, to redlock.Record) bool {
	if !h.w.record.exchanges(l, to) {
		return false
	}
	if t := h.table; t != nil {
		t.exchanges(l.ID(), to)
	}
	return true
}

// exchanges records a new token before a node gets it.
func (t *table) exchanges(id string, to redlock.Record) {
	note := func(e *row) { e.Token, e.Former = to.Token, to.Former }
	t.signal()
	if t.h.w.plan.Table != RecordExchangeLate {
		t.change(id, note)
		return
	}
	_, life := t.h.daemon()
	time.AfterFunc(nodeTimeout, func() {
		if q, now := t.h.daemon(); q != nil && now == life {
			t.change(id, note)
		}
	})
}

// checkAdoptedToken checks that a daemon adopts a lease with the token that the nodes have. The
// caller holds mu.
func (r *recorder) checkAdoptedToken(g *Grant, l *redlock.Lease) {
	if now := l.Record().Token; r.onNodes.done[g.NewTokenID] && idOf(now) != g.NewTokenID {
		r.report.violate("adoption", r.now(), "lease %d of %s is adopted with a token that nodes have exchanged", g.N, g.Lock)
	}
}

// longestMin is the longest min= of a client. After all faults, no lock is still kept for it.
const longestMin = 1200 * time.Millisecond

// minHeld returns the min= of a request, or 0. The daemon must extend a lease with min=.
func (c *simClient) minHeld(r *redlock.Request) time.Duration {
	if !c.w.plan.Mins || !r.Keep || !oneIn(c.random, 3) {
		return 0
	}
	minHeld := between(c.random, 50*time.Millisecond, longestMin)
	if r.Max != 0 {
		minHeld = min(minHeld, r.Max)
	}
	return minHeld
}

// keepTaken ends the use of a lease whose min= has not passed. The daemon releases the lease after
// that. It returns false if the lease must be released now.
func (c *simClient) keepTaken(lease *redlock.Lease, g *Grant, life int) bool {
	minHeld := g.MinHeld
	if t := c.host.table; t != nil && life != g.life {
		minHeld = t.minOf(g)
	}
	if c.host.minLeft(lease, minHeld) <= 0 || c.w.plan.Table == ReleaseAtEnd || lease.Err() != nil {
		return false
	}
	if t := c.host.table; t != nil {
		t.change(g.ID, func(e *row) { e.kept = true })
	}
	g.keeps()
	c.host.releaseKept(lease, g, minHeld, life)
	return true
}

// minOf returns the min= of a lease as the table has it.
func (t *table) minOf(g *Grant) (minHeld time.Duration) {
	t.change(g.ID, func(e *row) { minHeld = e.minHeld })
	return minHeld
}

// minLeft returns how long a lease must still stay taken.
func (h *host) minLeft(l *redlock.Lease, minHeld time.Duration) time.Duration {
	return minHeld - (h.clock() - l.Since())
}

// releaseKept releases a kept lease when its min= has passed, if its daemon still runs.
func (h *host) releaseKept(l *redlock.Lease, g *Grant, minHeld time.Duration, life int) {
	if h.w.plan.Table == KeepForever {
		return
	}
	time.AfterFunc(max(h.minLeft(l, minHeld), 0), func() {
		switch q, now := h.daemon(); {
		case q == nil || now != life:
		case h.minLeft(l, minHeld) > 0: // the host's clock is slow
			h.releaseKept(l, g, minHeld, life)
		case l.Err() == nil:
			h.w.record.count("kept and released")
			g.event("min passed", "")
			if h.table != nil {
				h.table.released(g)
			}
			_, _ = l.BeginRelease() // lookAtNodes checks what remains of it
		}
	})
}

// resumeKept makes a new daemon release the kept leases of the previous one in time.
func (t *table) resumeKept(life int) {
	t.mu.Lock()
	var kept []row
	for _, e := range t.order {
		if e.kept && e.lease != nil {
			kept = append(kept, *e)
		}
	}
	t.mu.Unlock()
	for _, e := range kept {
		t.h.w.record.count("kept across a restart")
		t.h.releaseKept(e.lease, e.grant, e.minHeld, life)
	}
}

// keeps records that the holder has ended, and that the lock stays taken until min= has passed.
func (g *Grant) keeps() {
	r := g.record
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampleLocked()
	g.Releasing, g.Kept = r.now(), g.Since+g.MinHeld
	r.report.Faults["kept"]++
	r.add(g.line("kept", "until "+instant(g.Kept)))
}
