package state

import (
	"errors"
	"maps"
	"slices"
)

// notedLease is a lease of which only the deadline has changed since its last whole record. Most of
// tens of thousands of leases are like that. A merge copies their records, and decodes only others.
type notedLease struct {
	record   []byte // recordAcquiring or recordGranted
	deadline []byte // the last recordDeadline after it; nil: there is none
}

func (n *notedLease) isAttempt() bool { return recordKind(n.record[0]) == recordAcquiring }

// newMerge makes an empty replay that keeps the bytes of records.
func newMerge() *replay {
	r := newReplay()
	r.noted = map[uint64]notedLease{}
	return r
}

// note applies a record about a lease if the lease can stay in noted. If done is false, the lease is
// not in noted now, and the caller must apply the record.
func (r *replay) note(kind recordKind, record []byte) (done bool, err error) {
	var l Lease
	c := codec{b: record[1:], reading: true, skimming: true}
	l.code(kind, &c)
	if err := c.end(); err != nil {
		return true, err
	}
	r.lastNumber = max(r.lastNumber, l.Number)
	known, isNoted := r.noted[l.Number]
	switch {
	case r.Leases[l.Number] != nil:
		return false, nil
	case kind == recordAcquiring:
		r.noted[l.Number] = notedLease{record: record}
	case kind == recordGranted && (!isNoted || known.isAttempt()):
		delete(r.Requests, l.Number)
		r.noted[l.Number] = notedLease{record: record}
	case kind == recordDeadline:
		if isNoted { // an attempt ignores it
			known.deadline = record
			r.noted[l.Number] = known
		}
	case kind == recordForgotten:
		delete(r.noted, l.Number)
		return false, nil
	default:
		return false, r.decode(l.Number)
	}
	return true, nil
}

// decode moves the lease from noted to Leases, if it is in noted.
func (r *replay) decode(number uint64) error {
	n, ok := r.noted[number]
	if !ok {
		return nil
	}
	delete(r.noted, number)
	l := new(Lease)
	r.Leases[number] = l
	err := l.read(n.record)
	if n.deadline != nil {
		var by Lease
		err = errors.Join(err, by.read(n.deadline))
		l.update(recordDeadline, &by)
	}
	return err
}

// read decodes a record about the lease.
func (l *Lease) read(record []byte) error {
	c := codec{b: record[1:], reading: true}
	l.code(recordKind(record[0]), &c)
	return c.end()
}

// leaseNumbers returns the numbers of all leases, in order.
func (r *replay) leaseNumbers() []uint64 {
	numbers := make([]uint64, 0, len(r.Leases)+len(r.noted))
	numbers = slices.AppendSeq(numbers, maps.Keys(r.Leases))
	numbers = slices.AppendSeq(numbers, maps.Keys(r.noted))
	slices.Sort(numbers)
	return numbers
}
