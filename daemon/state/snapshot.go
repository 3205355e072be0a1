package state

import (
	"maps"
	"slices"
)

// Dump yields records that build the same state from nothing, in the order of their numbers.
// Requests come after leases, because the record of a grant answers a request.
func (r *replay) Dump(yield func([]byte)) {
	d := &dump{yield: yield}
	if r.lastNumber > 0 { // maybe no other record has it now, but it must not be used again
		d.conn(recordConnClosed, &connRecord{Conn: Conn{Number: r.lastNumber}})
	}
	if r.ReplacedList != "" {
		d.begin(recordReplaced).text(&r.ReplacedList)
		d.end()
	}
	for _, number := range slices.Sorted(maps.Keys(r.Conns)) {
		conn := r.Conns[number]
		d.conn(recordConn, &connRecord{Conn: *conn})
		if len(conn.Unread) > 0 || conn.Skipping {
			d.conn(recordUnread, &connRecord{Conn: Conn{Number: number}, change: UnreadChange{Add: conn.Unread, Skipping: conn.Skipping}})
		}
	}
	for _, number := range slices.Sorted(maps.Keys(r.Leases)) {
		l := r.Leases[number]
		record := leaseRecord{Lease: *l}
		if !record.creates() {
			record.answered = l.Number
		}
		record.code(recordLease, d.begin(recordLease))
		d.end()
	}
	for _, number := range slices.Sorted(maps.Keys(r.Requests)) {
		(&requestRecord{Request: *r.Requests[number]}).code(recordRequest, d.begin(recordRequest))
		d.end()
	}
}

// dump encodes records in one buffer.
type dump struct {
	yield func([]byte)
	c     codec
}

func (d *dump) begin(kind recordKind) *codec {
	d.c.b = append(d.c.b[:0], byte(kind))
	return &d.c
}

func (d *dump) end() { d.yield(d.c.b) }

func (d *dump) conn(kind recordKind, conn *connRecord) {
	conn.code(kind, d.begin(kind))
	d.end()
}
