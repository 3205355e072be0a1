package daemon

import "github.com/redlockd/redlockd/redlock"

// This file lists the fields of each kind of record, once for writing and reading.

// code lists the fields of a record about a connection.
func (conn *pastConn) code(kind recordKind, c *codec) {
	c.uint(&conn.number)
	switch kind {
	case recConn:
		c.flag(&conn.stored)
	case recRest:
		conn.change.code(c)
	}
}

func (ask *pastAsk) code(kind recordKind, c *codec) {
	c.uint(&ask.number)
	if kind == recAsk {
		c.uint(&ask.conn)
		c.duration(&ask.since)
		c.bytes(&ask.line)
		if c.flag(&ask.changed); ask.changed {
			ask.change.code(c)
		}
	}
}

func (change *pastRest) code(c *codec) {
	c.number(&change.drop)
	c.number(&change.keep)
	c.bytes(&change.add)
	c.flag(&change.skipping)
}

// code lists the fields of a record about a lease. It returns which request it
// answers; 0: none.
func (l *pastLease) code(kind recordKind, c *codec) (answered uint64) {
	c.uint(&l.number)
	switch kind {
	case recTaking:
		l.phase = phaseTaking
		codeTarget(&l.lease, c)
	case recHeld:
		l.codeAll(c)
		return l.number
	case recDeadline:
		c.duration(&l.lease.Deadline)
		c.duration(&l.lease.TTL)
	case recFurther:
		c.texts(&l.further)
		c.uint(&l.by)
		answered, l.by = l.by, 0
	case recResumed:
		c.uint(&l.conn)
		c.text(&l.holder.owner)
		c.uint(&l.by)
		answered, l.by = l.by, 0
	case recLeft:
		c.duration(&l.left)
	case recReleased:
		c.uint(&l.by)
	case recForgot:
		c.uint(&l.by)
		answered, l.by = l.by, 0
	case recLost:
		c.text((*string)(&l.reason))
	case recTold:
	default: // nothing that this daemon notes
		c.fail()
	}
	return answered
}

// codeAll lists all fields of a lease that was granted.
func (l *pastLease) codeAll(c *codec) {
	if c.number((*int)(&l.phase)); l.phase == phaseTaking || l.phase >= phases {
		c.fail()
	}
	codeTarget(&l.lease, c)
	c.uint(&l.lease.Fence)
	c.duration(&l.lease.Guard)
	c.duration(&l.lease.Deadline)
	c.duration(&l.lease.End)
	c.duration(&l.lease.Since)
	c.flag(&l.lease.Keep)
	c.uint(&l.conn)
	l.holder.code(c)
	c.uint(&l.by)
	c.text((*string)(&l.reason))
	c.flag(&l.told)
	c.texts(&l.further)
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

func (h *heldBy) code(c *codec) {
	c.int(&h.uid)
	c.int(&h.pid)
	c.text(&h.user)
	c.text(&h.owner)
	c.text(&h.note)
	c.text(&h.id)
	c.duration(&h.since)
	c.number(&h.hold)
	c.duration(&h.linger)
	c.duration(&h.beat)
	c.duration(&h.started)
}
