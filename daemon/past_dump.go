package daemon

import (
	"maps"
	"slices"
)

// Dump is table.State's: the records that make the same of nothing.
func (p *past) Dump(yield func([]byte)) {
	d := &dump{yield: yield}
	if p.last > 0 { // no number is given twice; nothing has it yet
		d.conn(recConnEnd, &pastConn{number: p.last})
	}
	for _, n := range slices.Sorted(maps.Keys(p.conns)) {
		conn := p.conns[n]
		d.conn(recConn, conn)
		if len(conn.rest) > 0 || conn.skipping {
			d.conn(recRest, &pastConn{number: n, change: pastRest{add: conn.rest, skipping: conn.skipping}})
		}
	}
	for _, n := range p.numbers() {
		if l, ok := p.plain[n]; ok {
			d.plain(&l)
		} else {
			d.whole(p.leases[n])
		}
	}
	for _, n := range slices.Sorted(maps.Keys(p.asks)) { // behind the leases: a recHeld answers
		ask := p.asks[n]
		ask.code(recAsk, d.begin(recAsk))
		d.end()
	}
}

// dump makes records, and needs no memory for each.
type dump struct {
	yield func([]byte)
	c     codec

	from codec // for plain, as is this
	all  pastLease
}

func (d *dump) begin(kind recordKind) *codec {
	d.c.b = append(d.c.b[:0], byte(kind))
	return &d.c
}

func (d *dump) end() { d.yield(d.c.b) }

func (d *dump) conn(kind recordKind, conn *pastConn) {
	conn.code(kind, d.begin(kind))
	d.end()
}

func (d *dump) lease(kind recordKind, l *pastLease) {
	l.code(kind, d.begin(kind))
	d.end()
}

func (d *dump) plain(l *plainLease) {
	if !l.extended {
		d.yield(l.record)
		return
	}
	d.from = codec{b: l.record[1:], reading: true, borrowing: true}
	d.all = pastLease{}
	l.read(&d.all, &d.from)
	d.lease(recHeld, &d.all) // only one that was granted is extended
}

func (d *dump) whole(l *pastLease) {
	kind := recHeld
	if l.phase == phaseTaking {
		kind = recTaking
	}
	d.lease(kind, l)
	if l.left != 0 {
		d.lease(recLeft, l)
	}
	for range l.undone {
		d.lease(recFurther, &pastLease{number: l.number})
	}
}
