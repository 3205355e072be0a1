package simulation

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// TableBug is a deliberate mistake in how a simulated daemon keeps its table of
// leases.
type TableBug string

const (
	AdoptReleased TableBug = "a lease is adopted whose release was noted"
	NoteLate      TableBug = "an attempt is noted after its first byte"
)

// table is the record of leases and attempts that a daemon leaves for the next one. A
// daemon writes a record before it sends the bytes.
type table struct {
	h     *host
	begun chan struct{} // of capacity 1: an attempt is about to begin

	mu    sync.Mutex // guards what follows; nothing else is called under it
	rows  map[string]*row
	order []*row
	ended time.Duration // when the last daemon was killed
}

// row is an attempt, and later perhaps a lease.
type row struct {
	redlock.Record
	at    time.Duration // when any daemon began or released it; if lost, when it is to be released
	lost  bool
	lease *redlock.Lease // nil: it is an attempt, or ended
	grant *Grant
}

func newTable(h *host) *table {
	return &table{h: h, begun: make(chan struct{}, 1), rows: map[string]*row{}}
}

// note implements Request.Noting.
func (t *table) note(r redlock.Record) {
	select {
	case t.begun <- struct{}{}:
	default: // another attempt is about to begin, too
	}
	if t.h.w.plan.Table == NoteLate {
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
	id := idOf(r.Token)
	if t.rows[id] == nil {
		t.rows[id] = &row{Record: r, at: now}
		t.order = append(t.order, t.rows[id])
	}
}

// granted records a lease before its client gets it. It returns false if the daemon was
// killed before: then no client got it.
func (t *table) granted(l *redlock.Lease, life int) bool {
	if q, now := t.h.daemon(); q == nil || now != life {
		return false
	}
	record := l.Record()
	t.add(record)
	t.change(l.ID(), func(e *row) { e.Record, e.lease = record, l })
	return true
}

// told records the grant of a lease.
func (t *table) told(g *Grant) { t.change(g.ID, func(e *row) { e.grant = g }) }

// moved implements Options.Moved.
func (t *table) moved(l *redlock.Lease) {
	record := l.Record()
	t.change(l.ID(), func(e *row) {
		if e.lease == l {
			e.Record = record
		}
	})
}

// aged implements Options.Aged.
func (t *table) aged() {
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

// tableKeeps is how long a node may hold what a daemon began or released.
const tableKeeps = simulatedMaxTTL + simulatedMaxTTL/50 + 2*nodeTimeout

// end records that the daemon is killed. The table does not age until the next daemon
// starts: only a running daemon forgets.
func (t *table) end() {
	now := t.h.w.record.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = now
}

// read returns the rows to adopt and the rows to abandon. They stay for the daemon after
// this one, for as long again.
func (t *table) read() (held, under []*row) {
	now := t.h.w.record.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.order {
		switch {
		case e.lease != nil:
			held = append(held, e)
		case t.ended < e.at+tableKeeps:
			e.at = max(e.at, now)
			under = append(under, e)
		}
	}
	return held, under
}

// goOn makes a new daemon continue with what the previous one had.
func (t *table) goOn(q *redlock.Quorum) {
	held, under := t.read()
	records := make([]redlock.Record, len(held))
	for i, e := range held {
		records[i] = e.Record
	}
	a := q.Adopt(records, func(i int, l *redlock.Lease) {
		t.lost(l.ID())
		held[i].grant.lost(l)
	})
	for i, l := range a.Leases {
		if a.Errs[i] != nil {
			panic(a.Errs[i]) // a bug of the simulation
		}
		t.change(l.ID(), func(e *row) {
			if e.lease != nil { // it may be lost by now
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

// adopted records that a daemon continues with a lease of the previous one. While there
// was no daemon, nothing could report LOST.
func (r *chronicle) adopted(g *Grant, l *redlock.Lease) {
	over := l.Err() != nil
	r.mu.Lock()
	defer r.mu.Unlock()
	g.lease, g.Away = l, g.Away || over
	r.add(g.line("adopted", ""))
	r.report.Faults["adoption"]++
}

// goesOn waits for a running daemon, and returns the lease as that daemon has it. It
// returns nil if the daemon has no such lease.
func (h *host) goesOn(l *redlock.Lease, g *Grant, life int) (*redlock.Lease, *redlock.Quorum, int) {
	for {
		q, now := h.daemon()
		switch {
		case q != nil && now == life:
			return l, q, life
		case h.table == nil:
			return nil, nil, 0
		case q != nil:
			h.table.change(g.ID, func(e *row) { l = e.lease })
			return l, q, now
		}
		time.Sleep(startLooks)
	}
}

const startLooks = 7*time.Millisecond + 13

// startRestarts kills daemons and starts new ones, which continue with what the previous
// ones had.
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

// awaitAttempt waits until an attempt begins, so that daemons are killed in the middle of
// one. The wait is limited.
func (t *table) awaitAttempt() {
	select {
	case <-t.begun: // an earlier attempt
	default:
	}
	select {
	case <-t.begun:
	case <-time.After(300*time.Millisecond + 3):
	}
}

// restart kills a daemon as kill -9 does, and starts a new one a while later.
func (h *host) restart(random *rand.Rand) {
	links := make([]any, len(h.links))
	for i, l := range h.links {
		links[i] = l
	}
	h.w.faults.trouble(links, 1)
	h.w.record.count("daemon restart")
	h.w.record.event(Event{Actor: h.name, What: "killed"})
	h.end()
	time.Sleep(below(random, pick(random, 20*time.Millisecond, 400*time.Millisecond, 1500*time.Millisecond)))
	h.start()
	h.w.record.event(Event{Actor: h.name, What: "started"})
	h.w.faults.trouble(links, -1)
}
