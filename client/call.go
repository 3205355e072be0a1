package client

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// maxDuration is the longest duration that the protocol can express.
const maxDuration = time.Duration(math.MaxInt64) / time.Millisecond * time.Millisecond

// room is a kind of requests. The daemon bounds the requests in flight on one connection (4,096 by
// default). Locks may wait for long, and must leave room for the requests that end their wait. RESUME has
// its own room as well: calls about the same lease wait for it and keep theirs.
type room uint8

const (
	roomLock room = iota
	roomResume
	roomOther
	roomCount
)

var maxInFlight = [roomCount]int{roomLock: 3072, roomResume: 256, roomOther: 512}

// callState is the state of a call.
type callState uint8

const (
	callWaiting   callState = iota // its caller waits
	callAbandoned                  // no caller waits
	callEnded
)

// call is a request and its answer. It outlasts the connection. From begin on it belongs to the core; its
// caller reads err, lines and reply after answered is closed.
type call struct {
	req        ipc.Request
	lockName   string   // for errors; "": none
	lease      *Lease   // of a request about a lease, or that may get one; nil: none
	badOptions []string // options that are not valid

	answered chan struct{} // closed when its caller continues
	next     *call         // of effects.answered
	err      error         // of its caller
	lines    []ipc.Response
	reply    ipc.Response // the last line of the answer; only of those that are not about a lease

	state     callState
	inFlight  bool          // it has a tag, and counts in core.busy
	begun     time.Duration // when
	waitUntil time.Duration // how long it waits for a connection at least; forever: without a bound
	tagRoom   [1]int
	tags      []int  // the first one is kept; under the others it was sent again on this connection
	sent      bool   // on this connection, and not refused with LIMIT since
	maybeDone bool   // it was sent before, and the daemon may have executed it
	limited   bool   // a resend was refused with LIMIT, and will be repeated
	limits    int    // how often
	shutdowns int    // how often a stopping daemon refused it
	probed    uint64 // of those that are sent once: the last restart during its flight; 0: none
}

func newCall(verb ipc.Verb, lockName string) *call {
	return &call{req: ipc.Request{Verb: verb}, lockName: lockName, answered: make(chan struct{})}
}

// newCallAbout returns a call about a lease.
func newCallAbout(l *Lease, verb ipc.Verb) *call {
	cl := newCall(verb, l.name)
	cl.lease = l
	cl.req.Lease = l.id
	cl.req.Set |= ipc.OptLease
	return cl
}

func (cl *call) op() string { return op(cl.req.Verb) }

func (cl *call) room() room {
	switch cl.req.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		return roomLock
	case ipc.VerbResume:
		return roomResume
	}
	return roomOther
}

// mayBeGranted reports whether the call can be granted a lease.
func (cl *call) mayBeGranted() bool {
	return cl.req.Verb == ipc.VerbLock || cl.req.Verb == ipc.VerbTry
}

// isDoneOnce reports whether the request must not be executed twice. A second FORCE would revoke the next
// holder's lock; a second ADMIT would end another quarantine. The user has to check first.
func (cl *call) isDoneOnce() bool {
	return cl.req.Verb == ipc.VerbForce || cl.req.Verb == ipc.VerbAdmit
}

// isProcessGrant reports whether the grant that the call releases or gets lasts as long as a process.
func (cl *call) isProcessGrant() bool {
	if cl.req.Verb == ipc.VerbUnlock {
		return cl.lease.hold == HoldPID
	}
	return cl.mayBeGranted() && cl.req.Hold == ipc.HoldPID
}

// grantOutlastsConn reports whether a grant stays, at least for a while, if the connection ends before
// the client reads it.
func (cl *call) grantOutlastsConn() bool {
	return cl.mayBeGranted() && (cl.req.Hold != ipc.HoldConn || cl.req.Linger > 0)
}

// outlivesCaller reports whether the call goes on without a caller until it is answered, however long
// there is no connection: what it releases or may have been granted does not expire. If it was not sent
// when its caller left, it was granted nothing.
func (cl *call) outlivesCaller() bool {
	return cl.state == callAbandoned && cl.mayStayGranted()
}

func (cl *call) mayStayGranted() bool {
	return cl.isProcessGrant() && (!cl.mayBeGranted() || cl.sent || cl.maybeDone)
}

// shouldSend reports whether the next connection has to send the call: a caller waits for it, it releases
// something, or it asks for the deadline. A request that is sent once is worth it until it is sent.
func (cl *call) shouldSend() bool {
	switch {
	case cl.isDoneOnce() && (cl.sent || cl.maybeDone):
		return false
	case cl.state == callWaiting, cl.req.Verb == ipc.VerbUnlock, cl.req.Verb == ipc.VerbCheck:
		return true
	}
	return cl.mayBeGranted() && cl.outlivesCaller() // otherwise its grant ends with the connection, or expires
}

// awaitsResume reports whether the call must wait until its lease is resumed. Before that the daemon may
// not know the lease, and would answer so.
func (cl *call) awaitsResume() bool {
	if cl.lease == nil || !cl.lease.state.isDetached() {
		return false
	}
	return cl.req.Verb == ipc.VerbCheck || cl.req.Verb == ipc.VerbExtend || cl.req.Verb == ipc.VerbBeat
}

// begin starts a call, or lets it wait for room.
func (c *core) begin(cl *call) {
	cl.begun, cl.waitUntil = c.now, c.now
	if cl.req.Verb == ipc.VerbLock {
		if cl.waitUntil = forever; cl.req.Has(ipc.OptWait) && cl.req.Wait < forever-c.now {
			cl.waitUntil = c.now + cl.req.Wait
		}
	}
	if room := cl.room(); c.busy[room] == maxInFlight[room] && !c.isClosed {
		c.queues[room] = append(c.queues[room], cl)
	} else {
		c.start(cl)
	}
}

// background begins a call that nobody waits for.
func (c *core) background(cl *call) {
	cl.state = callAbandoned
	c.begin(cl)
}

func (c *core) start(cl *call) {
	if c.isClosed || c.isClosing && cl.grantOutlastsConn() {
		c.fail(cl, ErrClosed)
		return
	}
	cl.inFlight = true
	c.busy[cl.room()]++
	cl.tags = cl.tagRoom[:0]
	c.flight.add(cl)
	switch isUrgent := cl.req.Verb == ipc.VerbUnlock || cl.req.Verb == ipc.VerbResume; {
	case c.link == 0:
		c.wantsDial = true
		c.expireAt(c.failsAt(cl))
	case cl.awaitsResume():
	case len(c.out) >= maxPending && !isUrgent: // the number of leases bounds the urgent ones
		c.fail(cl, fmt.Errorf("%w: it hangs: %d bytes of requests are waiting for it to read", ErrUnavailable, len(c.out)))
	default:
		c.send(cl)
	}
}

// send sends a call, perhaps again: on a new connection, after BACK or after LIMIT. A LOCK has an id=, so
// a second one gets the grant of the first. It waits for the rest of its time or, if no caller waits for
// it, not at all: it only finds out what to release. Its CANCEL may have been sent earlier, so it is sent
// again.
func (c *core) send(cl *call) {
	if c.mute != nil {
		return // the next connection sends it
	}
	tag := cl.tags[0]
	if cl.sent {
		tag = c.flight.add(cl)
	}
	switch {
	case cl.req.Verb != ipc.VerbLock:
	case cl.state == callAbandoned:
		cl.req.Wait = 0
		cl.req.Set |= ipc.OptWait
	case cl.waitUntil != forever:
		cl.req.Wait = max(0, cl.waitUntil-c.now)
	}
	cl.req.Tag, cl.sent, cl.limited = c.flight.tags[tag].text, true, false
	c.out = cl.req.AppendTo(c.out)
	if cl.state == callAbandoned && cl.mayBeGranted() {
		c.cancel(cl, noTag)
	}
}

// noTag is no number of a tag.
const noTag = -1

// cancel cancels a request under all of its tags but the one that was answered. CANCEL has no tag: the
// request's own answer tells the outcome.
func (c *core) cancel(cl *call, answered int) {
	for _, tag := range cl.tags {
		if tag != answered && c.link != 0 && c.mute == nil {
			req := ipc.Request{Verb: ipc.VerbCancel, Words: []string{c.flight.tags[tag].text}}
			c.out = req.AppendTo(c.out)
		}
	}
}

// answer lets the caller of a call continue.
func (c *core) answer(cl *call, err error) {
	if cl.state == callWaiting {
		cl.err = err
		cl.next, c.effects.answered = c.effects.answered, cl
	}
}

// end ends a call. granted says that it was granted under one of its tags: the others get the same grant,
// so the client need not wait for them.
func (c *core) end(cl *call, err error, granted bool) {
	c.answer(cl, err)
	cl.state = callEnded
	if !cl.inFlight {
		return
	}
	kind := strayOther
	switch {
	case cl.grantOutlastsConn() && !granted:
		kind = strayOutlasts
	case cl.mayBeGranted():
		kind = strayLock
	}
	for _, tag := range cl.tags {
		if c.flight.tags[tag].call == cl { // else the answer had this one
			c.flight.tags[tag].call, c.flight.tags[tag].stray = nil, kind
		}
	}
	room := cl.room()
	cl.inFlight = false
	c.busy[room]--
	c.startNext(room)
}

// startNext starts the calls that have waited longest, as far as there is room.
func (c *core) startNext(room room) {
	for len(c.queues[room]) > 0 && c.busy[room] < maxInFlight[room] {
		next := c.queues[room][0]
		c.queues[room] = c.queues[room][1:]
		c.start(next)
	}
}

// fail ends a call without an answer. why is nil if the call has no caller. If the call releases a grant
// that does not expire, or may have been granted one, only its caller leaves. Any other lease ends with
// its validity, unless the caller repeats Unlock.
func (c *core) fail(cl *call, why error) {
	if why != nil {
		why = callError(cl.op(), cl.lockName, why)
	}
	if cl.state == callWaiting && cl.inFlight && cl.mayStayGranted() && !c.isClosed {
		c.answer(cl, why)
		cl.state = callAbandoned
		c.wantsDial = true
		return
	}
	switch cl.req.Verb {
	case ipc.VerbUnlock:
		c.unlocked(cl, nil)
	case ipc.VerbCheck:
		if cl.lease != nil {
			cl.lease.checking = false
		}
	}
	c.end(cl, why, false)
}

// leave is called when the caller of a call no longer waits. It returns false if the caller has got an
// answer.
func (c *core) leave(cl *call) bool {
	if cl.state != callWaiting {
		return false
	}
	c.abandon(cl)
	return true
}

// abandon takes a call from its caller. What it is granted is released.
func (c *core) abandon(cl *call) {
	cl.state = callAbandoned
	switch {
	case !cl.inFlight && cl.req.Verb != ipc.VerbUnlock:
		room := cl.room()
		c.queues[room] = slices.DeleteFunc(c.queues[room], func(other *call) bool { return other == cl })
		cl.state = callEnded
	case !cl.inFlight: // the release goes on when there is room
	case !cl.sent && !cl.limited && !cl.shouldSend():
		c.end(cl, nil, false)
	case cl.mayBeGranted() && cl.sent:
		c.cancel(cl, noTag)
	}
}
