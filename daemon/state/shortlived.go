package state

import "iter"

// ApplyAll applies records. Most records are about requests and leases that also end in these
// records, and ApplyAll does not decode them. That saves the daemon 5 % of the CPU time of a LOCK
// and its UNLOCK (packaging/bench, 64 workers).
func (r *replay) ApplyAll(records iter.Seq[[]byte]) error {
	s := shortLived{baseNumber: r.lastNumber, lastNumber: r.lastNumber}
	for record := range records {
		if s.add(record) != nil {
			break // Apply returns the error below, after all records before it
		}
	}
	for record := range records {
		if s.covers(record) {
			continue
		}
		if err := r.Apply(record); err != nil {
			return err
		}
	}
	r.lastNumber = max(r.lastNumber, s.lastNumber)
	return nil
}

// shortLived finds the requests and leases that begin and end within some records. It reads the
// records in order, as replay does, but keeps only which kinds of records exist for each number.
type shortLived struct {
	baseNumber uint64 // the largest number before these records
	lastNumber uint64
	exists     []existence // by number, from baseNumber+1 on

	lease Lease // summarize decodes into it, to avoid an allocation
}

// existence is what exists under a number.
type existence uint8

const (
	hasRequest existence = 1 << iota
	hasAttempt
	hasLease
	hasEffect // one of its records changes something else
)

// maxGap bounds the memory for a number that is far from all others. Normally numbers have no large
// gaps: they are consecutive, and recorded soon.
const maxGap = 1 << 16

// existenceOf returns what exists under a number. If it returns nil, s does not follow the number,
// and all its records must be applied.
func (s *shortLived) existenceOf(number uint64) *existence {
	if number <= s.baseNumber {
		return nil
	}
	i := number - s.baseNumber - 1
	if have := uint64(len(s.exists)); i >= have {
		if i-have >= maxGap {
			return nil
		}
		s.exists = append(s.exists, make([]existence, i+1-have)...)
	}
	return &s.exists[i]
}

// add follows a record.
func (s *shortLived) add(record []byte) error {
	g, err := s.summarize(record)
	if err != nil {
		return err
	}
	s.lastNumber = max(s.lastNumber, g.number)
	switch g.kind {
	case recordConn, recordConnClosed, recordUnread:
		return nil // a connection has a number that no request and no lease has
	}
	if e := s.existenceOf(g.number); e != nil {
		e.update(&g)
	}
	if e := s.existenceOf(g.answered); e != nil {
		*e &^= hasRequest | hasAttempt
	}
	return nil
}

// update applies a record to the existence of its own number.
func (e *existence) update(g *recordSummary) {
	switch g.kind {
	case recordRequest:
		if *e |= hasRequest; g.changesConn {
			*e |= hasEffect
		}
	case recordAnswered:
	case recordAcquiring:
		*e = *e&^hasLease | hasAttempt
	case recordGranted, recordGranted1:
		*e = *e&^hasAttempt | hasLease
	case recordLost:
		if *e&hasAttempt != 0 { // from now on the answer to its LOCK does not end it
			*e = *e&^hasAttempt | hasLease
		}
	case recordForgotten:
		*e &^= hasAttempt | hasLease
	case recordDeadline, recordCounted, recordResumed, recordLingering, recordExchanging, recordMin, recordShared, recordKept, recordReleasing, recordReported:
	default:
		*e |= hasEffect
	}
}

// covers reports whether a record has no effect on the final state.
func (s *shortLived) covers(record []byte) bool {
	g, _ := s.summarize(record)
	switch g.kind {
	case recordConn, recordConnClosed, recordUnread:
		return false
	}
	return s.isOver(g.number) && (g.answered == 0 || s.isOver(g.answered))
}

func (s *shortLived) isOver(number uint64) bool {
	e := s.existenceOf(number)
	return e != nil && *e == 0
}

// recordSummary has the fields of a record that shortLived needs.
type recordSummary struct {
	kind        recordKind
	number      uint64
	answered    uint64 // the request that the record answers; 0: none
	changesConn bool   // it is a request that changes its connection's Unread
}

// summarize decodes the fields that shortLived needs.
func (s *shortLived) summarize(record []byte) (g recordSummary, err error) {
	if len(record) == 0 {
		return g, errRecord
	}
	g.kind = recordKind(record[0])
	c := codec{b: record[1:], reading: true}
	switch g.kind {
	case recordRequest:
		var conn, since uint64
		c.uint(&g.number)
		c.uint(&conn)
		c.uint(&since)
		c.part() // its line
		c.flag(&g.changesConn)
	case recordCounted, recordResumed, recordKept, recordForgotten:
		s.lease = Lease{}
		g.answered = s.lease.code(g.kind, &c)
		g.number = s.lease.Number
	default: // every record begins with its number
		c.uint(&g.number)
		if g.kind == recordAnswered || g.kind == recordGranted || g.kind == recordGranted1 {
			g.answered = g.number
		}
	}
	return g, c.err
}
