package state

import (
	"math"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// Phase is how far a lease has come.
type Phase int

const (
	PhaseAcquiring Phase = iota // an attempt is under way, or has failed
	PhaseHeld                   // it was granted
	PhaseReleased               // its release is under way
	PhaseLost
	phaseCount
)

// Lease is a lease, or an attempt that may become one.
type Lease struct {
	Number uint64
	Phase  Phase
	Record redlock.Record // of an attempt: what it takes

	Conn       uint64 // the connection that hears of its loss; 0: none
	Holder     Holder
	ReleasedBy uint64             // the UNLOCK that released it; 0: none
	Reason     redlock.LostReason // why it was lost
	Reported   bool               // the client was told of the loss
	// Reentrants are the id= of the further LOCKs that count on the lease.
	Reentrants []string
	// undone is how many UNLOCKs were noted before the further LOCKs that they undo.
	undone int
	// LingerSince is the BootTime since which nobody holds it, and linger= runs; 0: it is held.
	LingerSince time.Duration
	// Min is how long the lease stays taken from the grant on, whatever its holder does (min=).
	Min time.Duration
	// Kept means that nobody holds the lease any more, and that it stays taken until Min has passed.
	Kept bool

	by uint64 // the request that the record answers; 0: none
}

// Holder is what the daemon knows of the holder of a lease.
type Holder struct {
	UID, PID       int
	User           string
	Owner, Note    string
	ID             string
	Since          time.Duration // BootTime of the LOCK
	Hold           ipc.Hold
	Linger, Beat   time.Duration
	ProcessStarted time.Duration // with hold=pid
}

// Conn is a connection that was open.
type Conn struct {
	Number   uint64
	Stored   bool   // the service manager keeps it, unless its client ended it
	Unread   []byte // was read, but no request was begun of it
	Skipping bool   // what comes next is the end of a line that was too long
}

// UnreadChange is a change of what was read of a connection and not begun: Drop bytes go,
// the Keep bytes behind them stay, and Add follows.
type UnreadChange struct {
	Drop, Keep int
	Add        []byte
	Skipping   bool
}

// Request is a request that was begun and not answered.
type Request struct {
	Number, Conn uint64
	Since        time.Duration // BootTime at which it came
	Line         []byte
}

// recordKind is the first byte of a record.
type recordKind byte

const (
	recordConn       recordKind = 'C' // a connection is open; stored or not
	recordConnClosed recordKind = 'c'
	recordUnread     recordKind = 'R'
	recordRequest    recordKind = 'A'
	recordAnswered   recordKind = 'a'
	recordAcquiring  recordKind = 'T'
	recordGranted    recordKind = 'G' // the whole lease; its LOCK is answered
	recordGranted1   recordKind = 'H' // the same in the first version of the format: it is read only
	recordDeadline   recordKind = 'D'
	recordCounted    recordKind = 'F' // one LOCK more counts on it, or one less; a request is answered
	recordResumed    recordKind = 'M' // another connection has it
	recordLingering  recordKind = 'L'
	recordReleasing  recordKind = 'r'
	recordMin        recordKind = 'm'
	recordShared     recordKind = 's' // it was exclusive, and is shared
	recordExchanging recordKind = 'x' // the nodes get another token for it
	recordKept       recordKind = 'k' // nobody holds it; a request is answered
	recordLost       recordKind = 'l'
	recordReported   recordKind = 't'
	recordForgotten  recordKind = 'f'
)

// The functions below list the fields of each kind of record, once for writing and reading.
// A change of them needs a new formatVersion, and a new kind of record: then the records of earlier
// versions are still read.

type connRecord struct {
	Conn
	change UnreadChange
}

func (r *connRecord) code(kind recordKind, c *codec) {
	c.uint(&r.Number)
	switch kind {
	case recordConn:
		c.flag(&r.Stored)
	case recordUnread:
		r.change.code(c)
	}
}

type requestRecord struct {
	Request
	changed bool // so does the connection's Unread
	change  UnreadChange
}

func (r *requestRecord) code(kind recordKind, c *codec) {
	c.uint(&r.Number)
	if kind == recordRequest {
		c.uint(&r.Conn)
		c.duration(&r.Since)
		c.bytes(&r.Line)
		if c.flag(&r.changed); r.changed {
			r.change.code(c)
		}
	}
}

func (change *UnreadChange) code(c *codec) {
	c.number(&change.Drop)
	c.number(&change.Keep)
	c.bytes(&change.Add)
	c.flag(&change.Skipping)
}

// code lists the fields of a record about a lease. It returns the number of the request that
// the record answers; 0: none.
func (l *Lease) code(kind recordKind, c *codec) (answered uint64) {
	c.uint(&l.Number)
	switch kind {
	case recordAcquiring:
		l.Phase = PhaseAcquiring
		codeTarget(&l.Record, c)
	case recordGranted, recordGranted1:
		l.codeAll(kind, c)
		return l.Number
	case recordDeadline:
		c.duration(&l.Record.Deadline)
		c.duration(&l.Record.TTL)
	case recordCounted:
		c.texts(&l.Reentrants)
		c.uint(&l.by)
	case recordResumed:
		c.uint(&l.Conn)
		c.text(&l.Holder.Owner)
		c.uint(&l.by)
	case recordLingering:
		c.duration(&l.LingerSince)
	case recordReleasing:
		c.uint(&l.ReleasedBy)
	case recordExchanging:
		c.text(&l.Record.Token)
		c.text(&l.Record.Former)
	case recordMin:
		c.duration(&l.Min)
	case recordKept:
		c.uint(&l.by)
	case recordForgotten:
		c.uint(&l.by)
	case recordLost:
		c.text((*string)(&l.Reason))
	case recordReported, recordShared:
	default:
		c.fail()
	}
	return l.by
}

// codeAll lists all fields of a lease that was granted.
func (l *Lease) codeAll(kind recordKind, c *codec) {
	if c.number((*int)(&l.Phase)); l.Phase == PhaseAcquiring || l.Phase >= phaseCount {
		c.fail()
	}
	codeTarget(&l.Record, c)
	c.uint(&l.Record.Fence)
	c.duration(&l.Record.Guard)
	c.duration(&l.Record.Deadline)
	c.duration(&l.Record.End)
	c.duration(&l.Record.Since)
	c.flag(&l.Record.Keep)
	c.uint(&l.Conn)
	l.Holder.code(c)
	c.uint(&l.ReleasedBy)
	c.text((*string)(&l.Reason))
	c.flag(&l.Reported)
	c.texts(&l.Reentrants)
	if kind == recordGranted1 {
		return
	}
	c.text(&l.Record.Grant)
}

// codeTarget lists what an attempt takes.
func codeTarget(r *redlock.Record, c *codec) {
	c.texts(&r.Names)
	c.flag(&r.Shared)
	c.number(&r.Slots)
	c.number(&r.Slot)
	c.text(&r.Token)
	c.duration(&r.TTL)
}

func (h *Holder) code(c *codec) {
	c.int(&h.UID)
	c.int(&h.PID)
	c.text(&h.User)
	c.text(&h.Owner)
	c.text(&h.Note)
	c.text(&h.ID)
	c.duration(&h.Since)
	codeHold(&h.Hold, c)
	c.duration(&h.Linger)
	c.duration(&h.Beat)
	c.duration(&h.ProcessStarted)
}

func codeHold(hold *ipc.Hold, c *codec) {
	n := int(*hold)
	if c.number(&n); n > math.MaxUint8 {
		c.fail()
		return
	}
	*hold = ipc.Hold(n)
}
