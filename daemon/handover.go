package daemon

import (
	"errors"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// What clients of this host may do among themselves while other hosts wait for
// the lock: so many grants in a row, or for so long. The first keeps what a
// hand-over saves (a sixteenth of the grants cost a contest between hosts), the
// second bounds how long others wait in vain where each holds it for longer. Other
// Redlock clients cannot tell that they wait: for them there is a moment now and
// then, whether they are there or not.
const (
	longestRow      = 16
	longestRowTime  = 100 * time.Millisecond
	longestUnwanted = time.Second
)

// row is how many grants clients of this host have had one after the other, and
// since when.
type row struct {
	since  time.Duration // BootTime of the first one's grant
	n      int32
	yields bool // it was long enough: who comes next lets others go first
}

// after is the row that the next lease of this host goes on with, after one that
// was granted then; wanted: others said that they wait.
func (r row) after(granted time.Duration, wanted bool, now time.Duration) row {
	if r.n == 0 {
		r.since = granted
	}
	r.n++
	if wanted && (r.n >= longestRow || now-r.since >= longestRowTime) || now-r.since >= longestUnwanted {
		return row{yields: true}
	}
	return row{n: r.n, since: r.since}
}

// release gives a lease back without waiting for the nodes, and takes it out of
// the queue. Where the next in line wants just the same, that one's grant begins
// in the same call of the nodes, here and now: the first bytes leave before
// anybody is woken. The error is that of Lease.BeginRelease; nothing was done
// then. by is the number of the UNLOCK; 0: its client is gone.
func (d *daemon) release(h *holding, by uint64) (*redlock.Releasing, error) {
	d.noteRelease(h, by)
	goesOn := d.queue.rowOf(&h.place).after(h.lease.Since(), h.lease.Wanted(), d.clock())
	if next := d.nextFor(h, goesOn); next != nil {
		if release := d.handOver(h, next); release != nil {
			d.endRow(h, goesOn)
			return release, nil
		}
	}
	release, err := h.lease.BeginRelease()
	if err != nil {
		h.setGiving(errors.Is(err, redlock.ErrReleased)) // by another UNLOCK, whose record it is
		return nil, err
	}
	d.endRow(h, goesOn)
	return release, nil
}

// noteRelease notes that a lease is given back, by the request with that number,
// before any node hears of it. Where it turns out to be lost, that is noted as well.
func (d *daemon) noteRelease(h *holding, by uint64) {
	h.setGiving(true)
	d.ledger.lease(recReleased, &pastLease{number: h.number, by: by})
}

func (h *holding) setGiving(giving bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giving = giving
}

// nextFor is who is to have the lock from h; nil: nobody in particular.
func (d *daemon) nextFor(h *holding, goesOn row) *place {
	if goesOn.yields {
		return nil
	}
	return d.queue.promise(&h.place, goesOn)
}

// handOver begins the grant of the next one. It returns nil where that cannot be:
// nothing was done then, and the promise is taken back.
func (d *daemon) handOver(h *holding, next *place) *redlock.Releasing {
	release, begun, err := h.lease.HandOver(next.ask.request())
	if err != nil {
		d.queue.takeBack(next)
		return nil
	}
	if !d.queue.deliver(next, begun) {
		begun.Abandon() // it gave up meanwhile
	}
	return release
}

// endRow ends a holding, of whose row those go on who are called now.
func (d *daemon) endRow(h *holding, goesOn row) {
	d.queue.setRow(&h.place, goesOn)
	d.end(h)
}

func (q *queue) rowOf(p *place) row {
	q.lock(p)
	defer q.unlock(p)
	return p.row
}

func (q *queue) setRow(p *place, r row) {
	q.lock(p)
	defer q.unlock(p)
	p.row = r
}

// promise finds who comes next where that one wants the very same names alone,
// as p does, and calls it; but its turn comes with deliver, or does not come
// (takeBack): whoever asked for the promise sees to one of the two. Nil: there is
// no such one.
func (q *queue) promise(p *place, goesOn row) *place {
	q.lock(p)
	defer q.unlock(p)
	next := q.second(p)
	if next == nil || !next.waits() || next.left || !slices.Equal(next.names, p.names) || !next.kind.alone() {
		return nil
	}
	next.called, next.row = true, goesOn
	return next
}

// second is who stands right behind p in all of its lines, where p is the first
// and wants them alone. It needs mu.
func (q *queue) second(p *place) (second *place) {
	if !p.kind.alone() {
		return nil
	}
	for _, name := range p.names {
		first, next := q.lines[name].firstTwo()
		if first != p || next == nil || second != nil && next != second {
			return nil
		}
		second = next
	}
	return second
}

// deliver gives p its turn, with the grant that was begun for it. It is false if
// p wants nothing any more: begun is the caller's then.
func (q *queue) deliver(p *place, begun *redlock.Begun) bool {
	q.lock(p)
	defer q.unlock(p)
	if p.left {
		return false
	}
	p.begun = begun
	close(p.turn)
	return true
}

// takeBack ends a promise that came to nothing.
func (q *queue) takeBack(p *place) {
	q.lock(p)
	defer q.unlock(p)
	if p.called = false; !p.left {
		q.callIfFree(p) // where the one before it has left in between
	}
}

// take is what p contends with: the grant that was begun for it, which is its own
// from now on, or nil; and whether it lets others go first.
func (q *queue) take(p *place) (begun *redlock.Begun, yields bool) {
	q.lock(p)
	defer q.unlock(p)
	begun, p.begun = p.begun, nil
	return begun, p.row.yields
}

// withdraw: p, which has come to its end, takes nothing any more. What was begun
// for it and it has not taken is the caller's.
func (q *queue) withdraw(p *place) *redlock.Begun {
	q.lock(p)
	defer q.unlock(p)
	p.left = true
	begun := p.begun
	p.begun = nil
	return begun
}
