package state

import (
	"errors"
	"maps"
	"slices"
)

// encodedLease is a lease of which only the deadline has changed since its last whole record. Most
// of tens of thousands of leases are like that. A merge copies their records, and decodes only
// others.
type encodedLease struct {
	record   []byte // recordAcquiring or recordGranted
	deadline []byte // the last recordDeadline after it; nil: there is none
}

func (n *encodedLease) isAttempt() bool { return recordKind(n.record[0]) == recordAcquiring }

// newMerge makes an empty replay that keeps the bytes of records.
func newMerge() *replay {
	r := newReplay()
	r.encoded = map[uint64]encodedLease{}
	return r
}

// keepEncoded applies a record about a lease if the lease can stay in encoded. If done is false,
// the lease is not in encoded now, and the caller must apply the record.
func (r *replay) keepEncoded(kind recordKind, record []byte) (done bool, err error) {
	var l Lease
	c := codec{b: record[1:], reading: true, skimming: true}
	l.code(kind, &c)
	if err := c.end(); err != nil {
		return true, err
	}
	r.lastNumber = max(r.lastNumber, l.Number)
	known, isNoted := r.encoded[l.Number]
	switch {
	case r.Leases[l.Number] != nil:
		return false, nil
	case kind == recordAcquiring:
		r.encoded[l.Number] = encodedLease{record: record}
	case kind == recordGranted && (!isNoted || known.isAttempt()):
		delete(r.Requests, l.Number)
		r.encoded[l.Number] = encodedLease{record: record}
	case kind == recordDeadline:
		if isNoted { // an attempt ignores it
			known.deadline = record
			r.encoded[l.Number] = known
		}
	case kind == recordForgotten:
		delete(r.encoded, l.Number)
		return false, nil
	default:
		return false, r.decode(l.Number)
	}
	return true, nil
}

// decode moves the lease from encoded to Leases, if it is in encoded.
func (r *replay) decode(number uint64) error {
	n, ok := r.encoded[number]
	if !ok {
		return nil
	}
	delete(r.encoded, number)
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
	numbers := make([]uint64, 0, len(r.Leases)+len(r.encoded))
	numbers = slices.AppendSeq(numbers, maps.Keys(r.Leases))
	numbers = slices.AppendSeq(numbers, maps.Keys(r.encoded))
	slices.Sort(numbers)
	return numbers
}
