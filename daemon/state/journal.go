package state

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/state/statefile"
	"github.com/redlockd/redlockd/daemon/timers"
	"github.com/redlockd/redlockd/redlock"
)

// Journal notes what must outlast the process, before a client or a node can know of it.
// One that is nil, or was not opened, notes nothing: what it would note has the number 0.
//
// Its methods do not wait for a disk. After Freeze those that note something do not return:
// Close ends their goroutines.
type Journal struct {
	file       *statefile.File // nil: it is not open
	log        hclog.Logger
	health     atomic.Int32
	lastNumber atomic.Uint64 // that was given
	later      timers.Set    // of ForgottenAfter
}

// NewJournal makes a Journal that is not open.
func NewJournal(log hclog.Logger) *Journal { return &Journal{log: log} }

// IsOpen tells whether something is noted.
func (j *Journal) IsOpen() bool { return j != nil && j.file != nil }

// NextNumber is a number that no connection, request or lease has had since the boot.
func (j *Journal) NextNumber() uint64 {
	if !j.IsOpen() {
		return 0
	}
	return j.lastNumber.Add(1)
}

// Watch looks once a second, until ctx ends, whether somebody has removed the state file.
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

// Freeze ends noting as if the process had been killed in this moment. It waits for what
// ForgottenAfter has begun.
func (j *Journal) Freeze() {
	j.later.Stop()
	j.file.Freeze()
}

// Close ends noting: the state file stays for the next process.
func (j *Journal) Close() {
	if j.IsOpen() {
		j.later.Stop()
		j.file.Close()
	}
}

// ConnOpened notes that a connection is open, and whether it outlasts the process.
func (j *Journal) ConnOpened(number uint64, stored bool) {
	if j.notes(number) {
		j.appendConn(recordConn, &connRecord{Conn: Conn{Number: number, Stored: stored}})
	}
}

// ConnClosed notes the end of a connection, and of its requests.
func (j *Journal) ConnClosed(number uint64) {
	if j.notes(number) {
		j.appendConn(recordConnClosed, &connRecord{Conn: Conn{Number: number}})
	}
}

// Unread notes a change of what was read of a connection and not begun.
func (j *Journal) Unread(number uint64, change UnreadChange) {
	if j.notes(number) {
		j.appendConn(recordUnread, &connRecord{Conn: Conn{Number: number}, change: change})
	}
}

// RequestBegun notes a request before it begins. Where its line was taken from what was read
// before, unread is the change of that; else nil.
func (j *Journal) RequestBegun(r *Request, unread *UnreadChange) {
	if !j.notes(r.Number) {
		return
	}
	record := requestRecord{Request: *r}
	if unread != nil {
		record.changed, record.change = true, *unread
	}
	j.appendRequest(recordRequest, &record)
}

// Answered notes that a request is about to be answered. It is not begun again after a
// restart.
func (j *Journal) Answered(number uint64) {
	if j.notes(number) {
		j.appendRequest(recordAnswered, &requestRecord{Request: Request{Number: number}})
	}
}

// Acquiring notes what an attempt takes, before a node is told.
func (j *Journal) Acquiring(number uint64, taken redlock.Record) {
	j.appendLease(recordAcquiring, &Lease{Number: number, Record: taken})
}

// Granted notes a whole lease, before its LOCK is answered, which the record says as well.
func (j *Journal) Granted(l *Lease) { j.appendLease(recordGranted, l) }

// Deadlines has the deadline of a lease, which other goroutines change.
type Deadlines interface {
	Deadline() time.Duration
	TTL() time.Duration
}

// Deadline notes the deadline of a lease. What is noted may be too early for a moment, but
// in the end it is never too late: it goes on until the deadline did not move back meanwhile.
func (j *Journal) Deadline(number uint64, lease Deadlines) {
	if !j.notes(number) {
		return
	}
	for {
		noted := redlock.Record{Deadline: lease.Deadline(), TTL: lease.TTL()}
		j.appendLease(recordDeadline, &Lease{Number: number, Record: noted})
		if lease.Deadline() >= noted.Deadline {
			return
		}
	}
}

// Counted notes that one LOCK more counts on a lease, by its id=, or (none) one less, and
// that the request by is answered.
func (j *Journal) Counted(number uint64, ids []string, by uint64) {
	j.appendLease(recordCounted, &Lease{Number: number, Reentrants: ids, by: by})
}

// Resumed notes which connection and owner= a lease has, and that the request by is
// answered; 0: none is.
func (j *Journal) Resumed(number, conn uint64, owner string, by uint64) {
	j.appendLease(recordResumed, &Lease{Number: number, Conn: conn, Holder: Holder{Owner: owner}, by: by})
}

// Lingering notes since when nobody holds a lease, whose linger= runs.
func (j *Journal) Lingering(number uint64, since time.Duration) {
	j.appendLease(recordLingering, &Lease{Number: number, LingerSince: since})
}

// Min notes how long a lease stays taken from the grant on. It is noted before the grant, so that
// no daemon knows of the lease without it.
func (j *Journal) Min(number uint64, least time.Duration) {
	j.appendLease(recordMin, &Lease{Number: number, Min: least})
}

// Exchanging notes that the nodes get another token for a lease, before a node is told.
func (j *Journal) Exchanging(number uint64, to redlock.Record) {
	j.appendLease(recordExchanging, &Lease{Number: number, Record: to})
}

// Shared notes that a lease which was exclusive is shared, before a node is told.
func (j *Journal) Shared(number uint64) {
	j.appendLease(recordShared, &Lease{Number: number})
}

// Kept notes that nobody holds a lease any more which stays taken, and that the request by is
// answered; 0: none is.
func (j *Journal) Kept(number, by uint64) {
	j.appendLease(recordKept, &Lease{Number: number, by: by})
}

// Releasing notes that a lease is released by an UNLOCK (0: by none), before a node is
// told. If the lease is lost, that is noted as well.
func (j *Journal) Releasing(number, by uint64) {
	j.appendLease(recordReleasing, &Lease{Number: number, ReleasedBy: by})
}

// Lost notes that a lease was lost, and why.
func (j *Journal) Lost(number uint64, why redlock.LostReason) {
	j.appendLease(recordLost, &Lease{Number: number, Reason: why})
}

// LossReported notes that the client was told of the loss.
func (j *Journal) LossReported(number uint64) {
	j.appendLease(recordReported, &Lease{Number: number})
}

// Forgotten notes that a lease is over, and that the request by is answered; 0: none is.
func (j *Journal) Forgotten(number, by uint64) {
	j.appendLease(recordForgotten, &Lease{Number: number, by: by})
}

// ForgottenAfter calls Forgotten after a delay, and then then, which may be nil. It does not wait.
// What is not due when the journal ends stays noted, and then is not called.
func (j *Journal) ForgottenAfter(number uint64, delay time.Duration, then func()) {
	if !j.notes(number) {
		return
	}
	j.later.After(delay, func() {
		if j.Forgotten(number, 0); then != nil {
			then()
		}
	})
}

// notes tells whether something with that number is noted.
func (j *Journal) notes(number uint64) bool { return j.IsOpen() && number != 0 }

// writers are codecs to write with: no record allocates.
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

func (j *Journal) appendLease(kind recordKind, l *Lease) {
	if !j.notes(l.Number) {
		return
	}
	c := beginRecord(kind)
	l.code(kind, c)
	j.put(c)
}
