package state

import (
	"math"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// Phase is the stage of a lease between its first attempt and its end.
type Phase int

const (
	PhaseAcquiring Phase = iota // an attempt is in progress, or has failed
	PhaseHeld                   // it was granted
	PhaseReleased               // its release is in progress
	PhaseLost
	phaseCount
)

// Lease is a lease, or an attempt that may become one.
type Lease struct {
	Number uint64
	Phase  Phase
	Record redlock.Record // of an attempt: what it requests

	Conn       uint64 // the connection to which a loss is reported; 0: none
	Holder     Holder
	ReleasedBy uint64             // the UNLOCK that released it; 0: none
	Reason     redlock.LostReason // why it was lost
	Reported   bool               // the loss was reported to the client
	// Reentrants has the id= of each reentrant LOCK that counts on the lease.
	Reentrants []string
	// undone is how many UNLOCKs were recorded before the reentrant LOCKs that they undo.
	undone int
	// LingerSince is the BootTime since which nobody has held it, with linger=; 0: it is held.
	LingerSince time.Duration
	// Min is how long the lease stays taken from the grant on, even if its holder releases it
	// (min=).
	Min time.Duration
	// Kept means that nobody holds the lease, and that it stays taken until Min has passed.
	Kept bool

	answered uint64 // the request that the record answers; 0: none
}

// Holder has the facts of the holder of a lease, and its options.
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
	Unread   []byte // was read, but not begun as a request
	Skipping bool   // the next bytes are the rest of a line that was too long
}

// UnreadChange is a change of Conn.Unread: the first Drop bytes are removed, the next Keep bytes
// stay, and Add is appended.
type UnreadChange struct {
	Drop, Keep int
	Add        []byte
	Skipping   bool
}

// Request is a request that was begun and not answered.
type Request struct {
	Number, Conn uint64
	Since        time.Duration // BootTime of its arrival
	Line         []byte
}

// recordKind is the first byte of a record.
type recordKind byte

const (
	recordConn       recordKind = 'C' // a connection is open, stored or not
	recordConnClosed recordKind = 'c'
	recordUnread     recordKind = 'R'
	recordRequest    recordKind = 'A'
	recordAnswered   recordKind = 'a'
	recordAcquiring  recordKind = 'T'
	recordGranted    recordKind = 'G' // the whole lease; its LOCK is answered
	recordDeadline   recordKind = 'D'
	recordCounted    recordKind = 'F' // one more reentrant LOCK counts on it, or one fewer; a request is answered
	recordResumed    recordKind = 'M' // another connection has it
	recordLingering  recordKind = 'L'
	recordReleasing  recordKind = 'r'
	recordMin        recordKind = 'm'
	recordShared     recordKind = 's' // it was exclusive, and is shared now
	recordExchanging recordKind = 'x' // it gets a new token on the nodes
	recordKept       recordKind = 'k' // nobody holds it; a request is answered
	recordLost       recordKind = 'l'
	recordReported   recordKind = 't'
	recordForgotten  recordKind = 'f'
	recordReplaced   recordKind = 'n' // the list of nodes in the config was replaced by another one, or is in use again
)

// The functions below list the fields of each kind of record, for both writing and reading. A change
// needs a new formatVersion.

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
	changed bool // the connection's Unread changes as well
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
	case recordGranted:
		l.codeAll(c)
		return l.Number
	case recordDeadline:
		c.duration(&l.Record.Deadline)
		c.duration(&l.Record.TTL)
	case recordCounted:
		c.texts(&l.Reentrants)
		c.uint(&l.answered)
	case recordResumed:
		c.uint(&l.Conn)
		c.text(&l.Holder.Owner)
		c.uint(&l.answered)
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
		c.uint(&l.answered)
	case recordForgotten:
		c.uint(&l.answered)
	case recordLost:
		c.text((*string)(&l.Reason))
	case recordReported, recordShared:
	default:
		c.fail()
	}
	return l.answered
}

// codeAll lists all fields of a lease that was granted.
func (l *Lease) codeAll(c *codec) {
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
	c.text(&l.Record.Grant)
}

// codeTarget lists the fields of what an attempt requests.
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
