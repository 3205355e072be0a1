package state

import (
	"fmt"

	"github.com/redlockd/redlockd/daemon/locktable"
)

// Recovered is the state before a restart, as read from the state file.
type Recovered struct {
	Conns    map[uint64]*Conn
	Requests map[uint64]*Request
	Leases   map[uint64]*Lease
	// Complete is false if the file was damaged: then it is not known what the clients were told
	// after the last record that could be read.
	Complete bool
	// ReplacedList is what redlock.Quorum.ReplacedList returned.
	ReplacedList string

	lastNumber uint64 // the largest number in a record
}

// replay builds a Recovered from records. It is the State of the state file.
type replay struct {
	Recovered
	requestsOf map[uint64]map[uint64]bool // the numbers of Requests, by connection; its closing does not look at the others
}

func newReplay() *replay {
	return &replay{
		Recovered{Conns: map[uint64]*Conn{}, Requests: map[uint64]*Request{}, Leases: map[uint64]*Lease{}},
		map[uint64]map[uint64]bool{},
	}
}

// Apply applies a record, and does not keep its bytes. A record about an unknown number changes
// nothing: its end may have been recorded just before.
func (r *replay) Apply(record []byte) error {
	if len(record) == 0 {
		return errRecord
	}
	c := &codec{b: record[1:], reading: true}
	kind := recordKind(record[0])
	var err error
	switch kind {
	case recordConn, recordConnClosed, recordUnread:
		err = r.applyConn(kind, c)
	case recordRequest, recordAnswered:
		err = r.applyRequest(kind, c)
	case recordReplaced:
		c.text(&r.ReplacedList)
		err = c.end()
	case recordLease, recordForgotten:
		err = r.applyLease(kind, c)
	default:
		err = errRecord
	}
	if err != nil {
		return fmt.Errorf("%w (kind %q)", err, kind)
	}
	return nil
}

func (r *replay) applyConn(kind recordKind, c *codec) error {
	var conn connRecord
	conn.code(kind, c)
	if err := c.end(); err != nil {
		return err
	}
	r.lastNumber = max(r.lastNumber, conn.Number)
	known := r.Conns[conn.Number]
	switch {
	case kind == recordConnClosed:
		r.closeConn(conn.Number)
	case known == nil && kind == recordConn:
		r.Conns[conn.Number] = &conn.Conn
	case known == nil:
	case kind == recordConn:
		known.Stored = conn.Stored
	default:
		return known.apply(conn.change)
	}
	return nil
}

// apply changes Unread in place. With a copy for each request, a rewrite would allocate hundreds of MiB
// for a client that has sent thousands of lines.
func (conn *Conn) apply(change UnreadChange) error {
	if change.Keep > len(conn.Unread)-change.Drop {
		return errRecord
	}
	conn.Unread = append(conn.Unread[change.Drop:change.Drop+change.Keep], change.Add...)
	if len(conn.Unread) == 0 {
		conn.Unread = nil
	}
	conn.Skipping = change.Skipping
	return nil
}

// closeConn removes a connection and its requests.
func (r *replay) closeConn(number uint64) {
	if r.Conns[number] == nil {
		return
	}
	delete(r.Conns, number)
	for request := range r.requestsOf[number] {
		r.answered(request)
	}
	delete(r.requestsOf, number)
}

func (r *replay) applyRequest(kind recordKind, c *codec) error {
	var request requestRecord
	request.code(kind, c)
	if err := c.end(); err != nil {
		return err
	}
	r.lastNumber = max(r.lastNumber, request.Number)
	if kind == recordAnswered {
		r.answered(request.Number)
		return nil
	}
	if conn := r.Conns[request.Conn]; conn != nil && request.changed {
		if err := conn.apply(request.change); err != nil {
			return err
		}
	}
	r.removeRequest(request.Number)
	r.Requests[request.Number] = &request.Request
	if r.requestsOf[request.Conn] == nil {
		r.requestsOf[request.Conn] = map[uint64]bool{}
	}
	r.requestsOf[request.Conn][request.Number] = true
	return nil
}

// answered removes a request, and its attempt.
func (r *replay) answered(number uint64) {
	r.removeRequest(number)
	if l := r.Leases[number]; l != nil && l.Life.State == locktable.Acquiring {
		delete(r.Leases, number)
	}
}

func (r *replay) removeRequest(number uint64) {
	request := r.Requests[number]
	if request == nil {
		return
	}
	delete(r.Requests, number)
	ofConn := r.requestsOf[request.Conn]
	if delete(ofConn, number); len(ofConn) == 0 && r.Conns[request.Conn] == nil { // else its next request uses the map
		delete(r.requestsOf, request.Conn)
	}
}

func (r *replay) applyLease(kind recordKind, c *codec) error {
	var record leaseRecord
	record.code(kind, c)
	if err := c.end(); err != nil {
		return err
	}
	r.lastNumber = max(r.lastNumber, record.Number)
	known := r.Leases[record.Number] // before answered, which removes an attempt
	if record.answered != 0 {
		r.answered(record.answered)
	}
	if kind == recordForgotten {
		delete(r.Leases, record.Number)
	} else if known != nil || record.creates() {
		l := record.Lease
		r.Leases[l.Number] = &l
	}
	return nil
}
