package daemon

import (
	"bytes"
	"maps"
	"slices"
	"time"
)

// plainLease is a lease as it was noted when it was begun or granted, of which no more
// than the deadline has changed since. So are most of tens of thousands: they are made
// into a pastLease when something else changes.
type plainLease struct {
	record        []byte        // recTaking or recHeld
	deadline, ttl time.Duration // as noted since
	extended      bool          // they were
}

func (l *plainLease) kind() recordKind { return recordKind(l.record[0]) }

// read gives what could be read when the record was taken in.
func (l *plainLease) read(all *pastLease, c *codec) {
	all.code(l.kind(), c)
	if l.extended {
		all.lease.Deadline, all.lease.TTL = l.deadline, l.ttl
	}
}

func (l *plainLease) open() *pastLease {
	all := new(pastLease)
	l.read(all, &codec{b: l.record[1:], reading: true})
	return all
}

// keepsBytes tells whether a record is kept as it is.
func keepsBytes(record []byte) bool {
	return len(record) > 0 && (recordKind(record[0]) == recTaking || recordKind(record[0]) == recHeld)
}

// own is a record of which nothing is anybody else's that is kept.
func own(record []byte) []byte {
	if keepsBytes(record) {
		return bytes.Clone(record)
	}
	return record
}

// begin notes a lease anew.
func (p *past) begin(number uint64, record []byte) {
	known := p.leases[number]
	if was, ok := p.plain[number]; ok && was.kind() == recHeld {
		known = was.open()
	}
	delete(p.leases, number)
	p.plain[number] = plainLease{record: record}
	if known != nil && known.phase > phaseHeld && recordKind(record[0]) == recHeld { // it was lost before its LOCK was answered
		l := p.open(number)
		l.phase, l.reason = known.phase, known.reason
	}
}

// extend notes a deadline of a lease that is plain.
func (p *past) extend(number uint64, deadline, ttl time.Duration) (done bool) {
	l, ok := p.plain[number]
	if ok && l.kind() == recHeld {
		l.deadline, l.ttl, l.extended = deadline, ttl, true
		p.plain[number] = l
	}
	return ok
}

// open is a lease that something else is to change of; nil: there is none.
func (p *past) open(number uint64) *pastLease {
	if l, ok := p.plain[number]; ok {
		p.leases[number] = l.open()
		delete(p.plain, number)
	}
	return p.leases[number]
}

// openAll has all leases in leases.
func (p *past) openAll() {
	for number := range p.plain {
		p.open(number)
	}
}

// isTaking tells whether what there is under a number was begun, and not granted.
func (p *past) isTaking(number uint64) bool {
	if l, ok := p.plain[number]; ok {
		return l.kind() == recTaking
	}
	l := p.leases[number]
	return l != nil && l.phase == phaseTaking
}

func (p *past) forget(number uint64) {
	delete(p.plain, number)
	delete(p.leases, number)
}

// numbers are those of all leases, in order.
func (p *past) numbers() []uint64 {
	all := slices.AppendSeq(slices.Collect(maps.Keys(p.plain)), maps.Keys(p.leases))
	slices.Sort(all)
	return all
}
