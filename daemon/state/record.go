package state

import (
	"math"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// Lease is a lease, or an attempt that may become one (its state is Acquiring).
type Lease struct {
	Number uint64
	Life   locktable.Life // without its Memory
	Record redlock.Record // of an attempt: what it requests

	Conn       uint64 // the last connection that had it, or reported its loss; 0: none
	Holder     Holder
	ReleasedBy uint64   // the UNLOCK after which it was released or kept; 0: none
	Reentrants []string // has the id= of each reentrant LOCK that counts on the lease and is answered
	// LingerSince is the BootTime since which nobody has held it, with linger=; 0: it is held.
	LingerSince time.Duration
	// Min is how long the lease stays taken from the grant on, even if its holder releases it
	// (min=).
	Min time.Duration
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
	recordLease      recordKind = 'L' // the whole lease, as it is now
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

// leaseRecord is a record about a lease. It also answers a request; 0: none.
type leaseRecord struct {
	Lease
	answered uint64
}

// code begins with the fields that ApplyAll reads of each record.
func (r *leaseRecord) code(kind recordKind, c *codec) {
	c.uint(&r.Number)
	if c.uint(&r.answered); kind == recordLease {
		r.Lease.code(c)
	}
}

// creates reports whether the lease may be unknown: it is an attempt, or the grant that answers its LOCK.
// Another lease that is unknown has ended, which was recorded just before.
func (r *leaseRecord) creates() bool {
	return r.Life.State == locktable.Acquiring || r.answered == r.Number
}

func (l *Lease) code(c *codec) {
	codeEnum(&l.Life.State, locktable.Releasing, c) // a lease that is gone was lost
	codeEnum(&l.Life.Knows, locktable.KnowsLoss, c)
	codeTarget(&l.Record, c)
	if l.Life.State == locktable.Acquiring {
		return
	}
	c.uint(&l.Record.Fence)
	c.duration(&l.Record.Guard)
	c.duration(&l.Record.Deadline)
	c.duration(&l.Record.End)
	c.duration(&l.Record.Since)
	c.flag(&l.Record.Keep)
	c.text(&l.Record.Grant)
	c.text((*string)(&l.Record.Lost))
	c.uint(&l.Conn)
	l.Holder.code(c)
	c.uint(&l.ReleasedBy)
	c.texts(&l.Reentrants)
	c.duration(&l.LingerSince)
	c.duration(&l.Min)
}

// codeTarget lists the fields of what an attempt requests.
func codeTarget(r *redlock.Record, c *codec) {
	c.texts(&r.Names)
	c.flag(&r.Shared)
	c.number(&r.Slots)
	c.number(&r.Slot)
	c.text(&r.Token)
	c.text(&r.Former)
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
	codeEnum(&h.Hold, math.MaxUint8, c)
	c.duration(&h.Linger)
	c.duration(&h.Beat)
	c.duration(&h.ProcessStarted)
}

// codeEnum writes or reads a small number, at most the last one.
func codeEnum[T ~uint8](v *T, last T, c *codec) {
	n := int(*v)
	if c.number(&n); n > int(last) {
		c.fail()
		return
	}
	*v = T(n)
}
