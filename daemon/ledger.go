package daemon

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/daemon/state/statefile"
	"github.com/redlockd/redlockd/ipc/server"
)

// ledger notes what must outlast the process, before anybody outside can know of it:
// see past for what the records come to, and table for when they are there. A nil
// ledger notes nothing: the locks of -dev end with it.
//
// Its methods do not wait for a disk. Once the daemon freezes they never return.
type ledger struct {
	table *statefile.Table
	last  atomic.Uint64 // number that was given
}

// next is a number that no connection, request or lease has had since the boot.
func (l *ledger) next() uint64 {
	if l == nil {
		return 0
	}
	return l.last.Add(1)
}

// look finds out once a second, until ctx ends, whether somebody has removed the table.
func (l *ledger) look(ctx context.Context) {
	if l == nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.table.Look()
		}
	}
}

// leave ends noting: what is noted stays for the next process.
func (l *ledger) leave() {
	if l != nil {
		l.table.Leave()
	}
}

// writers are codecs to write with. There are several records to every request: none
// of them allocates.
var writers = sync.Pool{New: func() any { return &codec{b: make([]byte, 0, 512)} }}

func beginRecord(kind recordKind) *codec {
	c := writers.Get().(*codec)
	c.b = append(c.b[:0], byte(kind))
	return c
}

// put notes what was written.
func (l *ledger) put(c *codec) {
	l.table.Append(c.b)
	writers.Put(c)
}

// lease notes something of a lease that has a number: one without is of a daemon
// without a table.
func (l *ledger) lease(kind recordKind, r *pastLease) {
	if l == nil || r.number == 0 {
		return
	}
	c := beginRecord(kind)
	r.code(kind, c)
	l.put(c)
}

// conn notes that a connection is open, and whether it outlasts the process.
func (l *ledger) conn(number uint64, stored bool) {
	l.ofConn(recConn, &pastConn{number: number, stored: stored})
}

func (l *ledger) connEnd(number uint64) {
	l.ofConn(recConnEnd, &pastConn{number: number})
}

// rest notes what was read of a connection and not begun.
func (l *ledger) rest(number uint64, rest server.Rest) {
	l.ofConn(recRest, &pastConn{number: number, change: pastRestOf(rest)})
}

func (l *ledger) ofConn(kind recordKind, r *pastConn) {
	if l == nil {
		return
	}
	c := beginRecord(kind)
	r.code(kind, c)
	l.put(c)
}

func pastRestOf(rest server.Rest) pastRest {
	return pastRest{drop: rest.Drop, keep: rest.Keep, add: rest.Add, skipping: rest.Skipping}
}

// ask notes a request, with its line, before it begins.
func (l *ledger) ask(r *pastAsk) {
	l.ofAsk(recAsk, r)
}

func (l *ledger) answered(number uint64) {
	l.ofAsk(recAnswered, &pastAsk{number: number})
}

// ofAsk is for a request that has a number: one without is not noted.
func (l *ledger) ofAsk(kind recordKind, r *pastAsk) {
	if l == nil || r.number == 0 {
		return
	}
	c := beginRecord(kind)
	r.code(kind, c)
	l.put(c)
}

// held notes a lease that was granted, before its LOCK is answered, which the record
// says as well.
func (l *ledger) held(h *holding) {
	if l == nil {
		return
	}
	r := h.past()
	l.lease(recHeld, &r)
	if h.lease.Deadline() < r.lease.Deadline {
		l.deadline(h) // it was moved back meanwhile: what is noted must never be later
	}
}

// deadline notes the deadline of now. What is noted may be earlier for a moment.
func (l *ledger) deadline(h *holding) {
	if l == nil || h.number == 0 {
		return
	}
	for {
		var r pastLease
		r.number, r.lease.Deadline, r.lease.TTL = h.number, h.lease.Deadline(), h.lease.TTL()
		l.lease(recDeadline, &r)
		if h.lease.Deadline() >= r.lease.Deadline {
			return
		}
	}
}

// past is what is noted of a holding at its grant.
func (h *holding) past() pastLease {
	r := pastLease{number: h.number, phase: phaseHeld, lease: h.lease.Record()}
	r.holder = heldBy{
		uid: h.UID, pid: h.PID, user: h.User, owner: h.Owner, note: h.Note, id: h.ID, since: h.Asked,
		hold: int(h.hold), linger: h.linger, beat: h.beat(),
	}
	if h.process != nil {
		r.holder.started = h.process.started
	}
	if s := h.attached(); s != nil {
		r.conn = s.number
	}
	return r // who counts on it besides is noted when it is told so
}
