package state

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/state/statefile"
	"github.com/redlockd/redlockd/daemon/timers"
)

// Journal records what must outlast the process, before a client or a node can know of it. A Journal
// that is nil or was not opened records nothing, and all its numbers are 0.
//
// Its methods do not wait for a disk. After Freeze, methods that record something do not return:
// Close ends their goroutines.
type Journal struct {
	file       *statefile.File // nil: it is not open
	log        hclog.Logger
	health     atomic.Int32
	lastNumber atomic.Uint64 // the last number that NextNumber returned
	timers     timers.Set    // for ForgottenAfter

	replacedList string // as recorded; only ListReplaced uses it after Open
}

// NewJournal makes a Journal that is not open.
func NewJournal(log hclog.Logger) *Journal { return &Journal{log: log} }

// IsOpen reports whether the journal records anything.
func (j *Journal) IsOpen() bool { return j != nil && j.file != nil }

// NextNumber returns a number that no connection, request or lease has had since the boot, or 0 if
// the journal is not open.
func (j *Journal) NextNumber() uint64 {
	if !j.IsOpen() {
		return 0
	}
	return j.lastNumber.Add(1)
}

// Watch checks once a second, until ctx ends, whether somebody has removed the state file.
func (j *Journal) Watch(ctx context.Context) {
	if !j.IsOpen() {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			j.file.Check()
		}
	}
}

// Freeze stops recording as if the process had been killed at this moment. It waits for functions
// that ForgottenAfter has begun.
func (j *Journal) Freeze() {
	j.timers.Stop()
	j.file.Freeze()
}

// Close stops recording. The state file stays for the next process.
func (j *Journal) Close() {
	if j.IsOpen() {
		j.timers.Stop()
		j.file.Close()
	}
}

// ConnOpened records that a connection is open, and whether it outlasts the process.
func (j *Journal) ConnOpened(number uint64, stored bool) {
	if j.isRecorded(number) {
		j.appendConn(recordConn, &connRecord{Conn: Conn{Number: number, Stored: stored}})
	}
}

// ConnClosed records the end of a connection, and of its requests.
func (j *Journal) ConnClosed(number uint64) {
	if j.isRecorded(number) {
		j.appendConn(recordConnClosed, &connRecord{Conn: Conn{Number: number}})
	}
}

// Unread records a change of the bytes that were read from a connection and not begun as a request.
func (j *Journal) Unread(number uint64, change UnreadChange) {
	if j.isRecorded(number) {
		j.appendConn(recordUnread, &connRecord{Conn: Conn{Number: number}, change: change})
	}
}

// RequestBegun records a request before it begins. If its line was in the recorded Unread of the
// connection, unread is the change of that, otherwise nil.
func (j *Journal) RequestBegun(r *Request, unread *UnreadChange) {
	if !j.isRecorded(r.Number) {
		return
	}
	record := requestRecord{Request: *r}
	if unread != nil {
		record.changed, record.change = true, *unread
	}
	j.appendRequest(recordRequest, &record)
}

// Answered records that a request is about to be answered, so it does not begin again after a
// restart.
func (j *Journal) Answered(number uint64) {
	if j.isRecorded(number) {
		j.appendRequest(recordAnswered, &requestRecord{Request: Request{Number: number}})
	}
}

// Lease records a whole lease, or an attempt before it is sent to a node, and that the request by is
// answered; 0: none. The first record of a lease that was granted must answer its LOCK.
func (j *Journal) Lease(l *Lease, by uint64) {
	if j.isRecorded(l.Number) {
		j.appendLease(recordLease, &leaseRecord{*l, by})
	}
}

// Forgotten records that a lease has ended, and that the request by is answered; 0: none.
func (j *Journal) Forgotten(number, by uint64) {
	if j.isRecorded(number) {
		j.appendLease(recordForgotten, &leaseRecord{Lease{Number: number}, by})
	}
}

// ForgottenAfter calls Forgotten after a delay, and then calls then, which may be nil. It does not
// wait. If the journal ends before the delay, the lease stays recorded and then is not called.
func (j *Journal) ForgottenAfter(number uint64, delay time.Duration, then func()) {
	if !j.isRecorded(number) {
		return
	}
	j.timers.After(delay, func() {
		if j.Forgotten(number, 0); then != nil {
			then()
		}
	})
}

// ListReplaced records what redlock.Quorum.ReplacedList returns, if that is news. One goroutine calls it.
func (j *Journal) ListReplaced(text string) {
	if !j.IsOpen() || text == j.replacedList {
		return
	}
	j.replacedList = text
	c := beginRecord(recordReplaced)
	c.text(&text)
	j.put(c)
}

// isRecorded reports whether the journal records something with that number.
func (j *Journal) isRecorded(number uint64) bool { return j.IsOpen() && number != 0 }

// writers has codecs for writing, so that a record allocates nothing.
var writers = sync.Pool{New: func() any { return &codec{b: make([]byte, 0, 512)} }}

func beginRecord(kind recordKind) *codec {
	c := writers.Get().(*codec)
	c.b = append(c.b[:0], byte(kind))
	return c
}

func (j *Journal) put(c *codec) {
	j.file.Append(c.b)
	writers.Put(c)
}

func (j *Journal) appendConn(kind recordKind, r *connRecord) {
	c := beginRecord(kind)
	r.code(kind, c)
	j.put(c)
}

func (j *Journal) appendRequest(kind recordKind, r *requestRecord) {
	c := beginRecord(kind)
	r.code(kind, c)
	j.put(c)
}

func (j *Journal) appendLease(kind recordKind, r *leaseRecord) {
	c := beginRecord(kind)
	r.code(kind, c)
	j.put(c)
}
