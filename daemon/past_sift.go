package daemon

import (
	"encoding/binary"
	"iter"
)

// ApplyAll is table.State's. Most records are of requests and leases that are over by
// the last of them: those are not so much as read.
func (p *past) ApplyAll(records iter.Seq[[]byte]) error {
	s := sift{floor: p.last, last: p.last}
	for record := range records {
		if err := s.look(record); err != nil {
			return err
		}
	}
	for record := range records {
		if s.spares(record) {
			continue
		}
		if err := p.apply(record); err != nil {
			return err
		}
	}
	p.last = s.last
	return nil
}

// sift finds what begins and ends among some records. It follows the requests and
// leases as past does, but knows of each only whether it is there, and it knows those
// alone whose numbers were given since.
type sift struct {
	floor uint64    // the last number that was given before
	last  uint64    // the last one that was found
	of    []brevity // by number, from the one above the floor on

	c     codec // for glance, as are these
	ask   pastAsk
	lease pastLease
}

// brevity is what there is under a number, and whether its records have to stay.
type brevity uint8

const (
	hasAsk brevity = 1 << iota
	hasTaking
	hasLease
	matters // one of its records changes something else
)

// maxGap is how far from all others a number is followed. They are given one by one,
// and noted soon.
const maxGap = 1 << 16

// at is where it is kept what there is under a number; nil: nowhere, and its records
// are applied.
func (s *sift) at(number uint64) *brevity {
	if number <= s.floor {
		return nil
	}
	i := number - s.floor - 1
	if have := uint64(len(s.of)); i >= have {
		if i-have >= maxGap {
			return nil
		}
		s.of = append(s.of, make([]brevity, i+1-have)...)
	}
	return &s.of[i]
}

// look takes a record in.
func (s *sift) look(record []byte) error {
	g, err := s.glance(record)
	if err != nil {
		return err
	}
	s.last = max(s.last, g.number)
	if g.kind != recConn && g.kind != recConnEnd && g.kind != recRest {
		if b := s.at(g.number); b != nil {
			b.take(&g)
		}
	}
	if b := s.at(g.answers); b != nil {
		b.answer()
	}
	return nil
}

// take does what a record does to its own number.
func (b *brevity) take(g *glimpse) {
	switch g.kind {
	case recAsk:
		if *b |= hasAsk; g.changes {
			*b |= matters
		}
	case recTaking:
		*b = *b&^hasLease | hasTaking
	case recHeld:
		*b = *b&^hasTaking | hasLease
	case recLost:
		if *b&hasTaking != 0 { // an answer does not end it any more
			*b = *b&^hasTaking | hasLease
		}
	case recForgot:
		*b &^= hasTaking | hasLease
	}
}

// answer ends a request, and what it was about to take.
func (b *brevity) answer() { *b &^= hasAsk | hasTaking }

// spares tells whether a record changes nothing in the end.
func (s *sift) spares(record []byte) bool {
	switch recordKind(record[0]) {
	case recConn, recConnEnd, recRest:
		return false
	case recFurther, recResumed, recForgot:
		g, _ := s.glance(record)
		return s.isOver(g.number) && (g.answers == 0 || s.isOver(g.answers))
	}
	number, _ := binary.Uvarint(record[1:])
	return s.isOver(number)
}

func (s *sift) isOver(number uint64) bool {
	b := s.at(number)
	return b != nil && *b == 0
}

// glimpse is what sift needs to know of a record.
type glimpse struct {
	kind    recordKind
	number  uint64
	answers uint64 // the request that it answers; 0: none
	changes bool   // a request with which its connection's rest changes
}

// glance reads so much of a record.
func (s *sift) glance(record []byte) (g glimpse, err error) {
	if len(record) == 0 {
		return g, errRecord
	}
	g.kind = recordKind(record[0])
	s.c = codec{b: record[1:], reading: true, borrowing: true}
	switch g.kind {
	case recAsk:
		s.ask.code(g.kind, &s.c)
		g.number, g.changes = s.ask.number, s.ask.changed
	case recFurther, recResumed, recForgot:
		g.answers = s.lease.code(g.kind, &s.c)
		g.number = s.lease.number
	default: // all begin with their number
		s.c.uint(&g.number)
		if g.kind == recAnswered || g.kind == recHeld {
			g.answers = g.number
		}
	}
	return g, s.c.err
}
