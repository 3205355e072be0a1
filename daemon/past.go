package daemon

import (
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// past is what the records of a table come to: what a daemon of this boot held, and
// had not answered, when it ended. Connections, requests and leases have numbers,
// which are given once; a lease has that of its LOCK.
type past struct {
	conns  map[uint64]*pastConn
	asks   map[uint64]*pastAsk
	plain  map[uint64]plainLease // leases of which no more than the deadline has changed; none after openAll
	leases map[uint64]*pastLease // the others
	last   uint64                // number that was given
}

// pastConn is a connection that was open.
type pastConn struct {
	number   uint64
	stored   bool   // the service manager has it: it is there still, unless the client ended it
	rest     []byte // what was read of it, and not begun
	skipping bool   // what comes next is the end of a line that was too long
	change   pastRest
}

// pastRest is a change of a rest: see server.Rest.
type pastRest struct {
	drop, keep int
	add        []byte
	skipping   bool
}

// pastAsk is a request that was begun, and not answered.
type pastAsk struct {
	number, conn uint64
	since        time.Duration // BootTime at which it came
	line         []byte
	changed      bool     // the connection's rest
	change       pastRest // then
}

// phase is how far a lease had come.
type phase int

const (
	phaseTaking   phase = iota // an attempt was under way, or had failed
	phaseHeld                  // it was granted
	phaseReleased              // it was being given back
	phaseLost                  // it was lost
	phases                     // how many there are
)

// pastLease is a lease, or what may become one.
type pastLease struct {
	number uint64
	phase  phase
	lease  redlock.Record // of an attempt: what it takes

	conn    uint64 // where its loss is to be told; 0: nowhere
	holder  heldBy
	by      uint64             // the UNLOCK that gave it back; 0: none
	reason  redlock.LostReason // why it was lost
	told    bool               // LOST was said
	further []string           // see holding
	undone  int                // of those, that are noted later: an UNLOCK was faster
	left    time.Duration      // BootTime since which nobody holds it, and it lingers; 0: somebody does
}

// heldBy is what the daemon knows of a lease besides: see holding.
type heldBy struct {
	uid, pid     int
	user         string
	owner, note  string
	id           string
	since        time.Duration
	hold         int // ipc.Hold
	linger, beat time.Duration
	started      time.Duration // with hold=pid: when the process was
}

func newPast() *past {
	return &past{conns: map[uint64]*pastConn{}, asks: map[uint64]*pastAsk{}, plain: map[uint64]plainLease{}, leases: map[uint64]*pastLease{}}
}

// recordKind is the first byte of a record.
type recordKind byte

const (
	recConn     recordKind = 'C' // a connection is open; stored or not
	recConnEnd  recordKind = 'c'
	recRest     recordKind = 'R'
	recAsk      recordKind = 'A'
	recAnswered recordKind = 'a'
	recTaking   recordKind = 'T'
	recHeld     recordKind = 'H' // all of a lease; its LOCK is answered
	recDeadline recordKind = 'D'
	recFurther  recordKind = 'F' // one more counts on it, or one less; a request is answered
	recResumed  recordKind = 'M' // it goes by another connection
	recLeft     recordKind = 'L' // nobody holds it any more, and it lingers
	recReleased recordKind = 'r'
	recLost     recordKind = 'l'
	recTold     recordKind = 't'
	recForgot   recordKind = 'f'
)

// Apply takes a record in, as table.State says. Records of what is not known any
// more change nothing: they may have crossed its end.
func (p *past) Apply(record []byte) error { return p.apply(own(record)) }

// apply is Apply for a record whose bytes may be kept.
func (p *past) apply(record []byte) error {
	if len(record) == 0 {
		return errRecord
	}
	c := &codec{b: record[1:], reading: true}
	kind := recordKind(record[0])
	var err error
	switch kind {
	case recConn, recConnEnd, recRest:
		err = p.applyConn(kind, c)
	case recAsk, recAnswered:
		err = p.applyAsk(kind, c)
	default:
		err = p.applyLease(kind, c, record)
	}
	if err != nil {
		return fmt.Errorf("%w (%q)", err, kind)
	}
	return nil
}

func (p *past) applyConn(kind recordKind, c *codec) error {
	var conn pastConn
	conn.code(kind, c)
	if err := c.end(); err != nil {
		return err
	}
	p.last = max(p.last, conn.number)
	known := p.conns[conn.number]
	switch {
	case kind == recConnEnd:
		p.forgetConn(conn.number)
	case known == nil && kind == recConn:
		p.conns[conn.number] = &conn
	case known == nil:
	case kind == recConn:
		known.stored = conn.stored
	default:
		return known.apply(conn.change)
	}
	return nil
}

// apply changes the rest, as server.Rest does.
func (conn *pastConn) apply(change pastRest) error {
	if change.keep > len(conn.rest)-change.drop {
		return errRecord
	}
	conn.rest = append(slices.Clone(conn.rest[change.drop:change.drop+change.keep]), change.add...)
	if len(conn.rest) == 0 {
		conn.rest = nil
	}
	conn.skipping = change.skipping
	return nil
}

// forgetConn ends a connection, with what it had asked.
func (p *past) forgetConn(number uint64) {
	if p.conns[number] == nil {
		return
	}
	delete(p.conns, number)
	for _, ask := range p.asks {
		if ask.conn == number {
			p.answered(ask.number)
		}
	}
}

func (p *past) applyAsk(kind recordKind, c *codec) error {
	var ask pastAsk
	ask.code(kind, c)
	if err := c.end(); err != nil {
		return err
	}
	p.last = max(p.last, ask.number)
	if kind == recAnswered {
		p.answered(ask.number)
		return nil
	}
	if conn := p.conns[ask.conn]; conn != nil && ask.changed {
		if err := conn.apply(ask.change); err != nil {
			return err
		}
	}
	ask.changed, ask.change = false, pastRest{}
	p.asks[ask.number] = &ask
	return nil
}

// answered ends a request. What it was about to take it takes no more.
func (p *past) answered(number uint64) {
	delete(p.asks, number)
	if p.isTaking(number) {
		p.forget(number)
	}
}

func (p *past) applyLease(kind recordKind, c *codec, record []byte) error {
	var l pastLease
	c.borrowing = keepsBytes(record)
	answered := l.code(kind, c)
	if err := c.end(); err != nil {
		return err
	}
	p.last = max(p.last, l.number)
	if answered != 0 {
		p.answered(answered)
	}
	switch {
	case keepsBytes(record):
		p.begin(l.number, record)
	case kind == recForgot:
		p.forget(l.number)
	case kind == recDeadline && p.extend(l.number, l.lease.Deadline, l.lease.TTL):
	default:
		if known := p.open(l.number); known != nil {
			known.update(kind, &l)
		}
	}
	return nil
}

// update takes what a record changes. Of what was not granted nothing but its loss
// can be told, which may be noted before the grant.
func (l *pastLease) update(kind recordKind, by *pastLease) {
	if l.phase == phaseTaking && kind != recLost {
		return
	}
	switch kind {
	case recDeadline:
		l.lease.Deadline, l.lease.TTL = by.lease.Deadline, by.lease.TTL
	case recFurther:
		l.count(by.further)
	case recResumed:
		l.conn, l.holder.owner = by.conn, by.holder.owner
		if ipc.Hold(l.holder.hold) != ipc.HoldPID { // else its process has ended, whoever asks about it
			l.left = 0
		}
	case recLeft:
		l.left = by.left
	case recReleased:
		if l.phase < phaseReleased { // by the first who did, or lost: then there was nothing to give back
			l.phase, l.by = phaseReleased, by.by
		}
	case recLost:
		l.phase, l.reason = phaseLost, by.reason
	case recTold:
		l.told = true
	}
}

// count takes in one that counts on the lease besides its LOCK; none: the last one
// counts no more, be it that it is noted only after that.
func (l *pastLease) count(more []string) {
	switch n := len(l.further); {
	case len(more) > 0 && l.undone > 0:
		l.undone--
	case len(more) > 0:
		l.further = append(l.further, more...)
	case n > 0:
		l.further = slices.Delete(l.further, n-1, n)
	default:
		l.undone++
	}
	if len(l.further) == 0 {
		l.further = nil
	}
}
