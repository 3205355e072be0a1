package client

import (
	"context"
	"iter"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// The daemon bounds the requests in flight on one connection (4,096 by default). Locks may wait for
// long, and must leave room for the requests that end their wait. So each kind of request has its
// own permits, and a call waits for a free one. RESUME has its own as well: calls about the same
// lease wait for it and keep their permits.
const (
	maxLocks   = 3072
	maxOthers  = 512
	maxResumes = 256
)

// The states of a call. In the states waiting and abandoned it is in flight.
const (
	stateIdle      = iota // owned by its caller, or in the table
	stateWaiting          // in flight; its caller waits
	stateAbandoned        // in flight; no caller waits: the goroutine that ends its flight settles it
	stateAnswered         // the reply has come
	stateFailed           // no reply will come: there was no connection for too long
)

// Values of call.waitUntil that are not times.
const (
	waitPatience = 0  // as long as the Client's patience
	waitForever  = -1 // without a bound
)

// call is a request and its answer. Calls are kept in a table and reused. A call outlasts the
// connection. While it is in flight, its request does not change, and the reader owns its lines and
// its reply.
type call struct {
	ready chan struct{} // room for one: filled when the flight ends while the caller waits

	req        ipc.Request
	waitUntil  int64    // how long it waits for a connection: time since Client.createdAt, or as above
	lockName   string   // of the lock; "": none
	lease      *Lease   // its lease; nil: none
	badOptions []string // options that are not valid
	failure    error    // if failed: why there is no answer

	lines []ipc.Response // the answer's lines before the last one
	reply ipc.Response   // its last line

	// Client.mu guards the fields below while the call is in flight.
	state            int
	tag              string   // the tag of the answer, unless that has one of resendTags
	resendTags       []string // tags under which it was sent again on the same connection
	sent             bool     // it was sent on the present connection
	maybeDone        bool     // it was sent before, and the daemon may have executed it
	shutdownRefusals int      // how often a stopping daemon refused it
	limitRefusals    int      // how often a resend was refused with LIMIT
	resendPaused     bool     // it was refused with LIMIT, and will be sent again
	restart          uint64   // if sent once: the last restart during its flight; 0: none
}

// mayBeGranted reports whether the call can be granted a lease.
func (cl *call) mayBeGranted() bool {
	return cl.req.Verb == ipc.VerbLock || cl.req.Verb == ipc.VerbTry
}

// isGranted reports whether its reply is a grant.
func (cl *call) isGranted() bool { return cl.mayBeGranted() && cl.reply.Kind == ipc.KindOK }

func (cl *call) inFlight() bool { return cl.state == stateWaiting || cl.state == stateAbandoned }

// endLocked ends the flight. It reports whether the call must be settled because no caller waits for it.
// The caller holds Client.mu.
func (cl *call) endLocked(state int) (abandoned bool) {
	abandoned = cl.state == stateAbandoned
	if cl.state = state; !abandoned {
		cl.ready <- struct{}{}
	}
	return abandoned
}

// setLease makes it a request about a known lease.
func (cl *call) setLease(l *Lease) {
	cl.lease, cl.lockName = l, l.name
	cl.req.Lease = l.id
	cl.req.Set |= ipc.OptLease
}

// replyError returns the error of a reply that is ERR.
func (cl *call) replyError() *Error { return refusalError(op(cl.req.Verb), cl.lockName, &cl.reply) }

// callTable holds all calls of a Client, by tag.
type callTable struct {
	lockPermits, otherPermits, resumePermits chan struct{} // one element for each permit in use

	mu              *sync.Mutex // Client.mu; guards the fields below. The caller of a method that uses it without taking it holds it
	calls           []*call     // by the number in the tag; a stray or nil if the tag has no call
	tags            []string    // by number
	free            []int       // numbers of nil entries
	strayOutlasting int         // how many entries are strayOutlasts
	idle            []*call

	released chan struct{} // room for one: isReleasing may have changed
}

// strayLock, strayOutlasts and strayOther mark the tag of a call that was answered under another of
// its tags. An answer under the marked tag may still come, or never. A grant to strayOutlasts
// outlasts the connection.
var strayLock, strayOutlasts, strayOther = new(call), new(call), new(call)

func newCallTable(mu *sync.Mutex) *callTable {
	return &callTable{
		mu:            mu,
		released:      make(chan struct{}, 1),
		lockPermits:   make(chan struct{}, maxLocks),
		otherPermits:  make(chan struct{}, maxOthers),
		resumePermits: make(chan struct{}, maxResumes),
	}
}

func (t *callTable) permits(verb ipc.Verb) chan struct{} {
	switch verb {
	case ipc.VerbLock, ipc.VerbTry:
		return t.lockPermits
	case ipc.VerbResume:
		return t.resumePermits
	}
	return t.otherPermits
}

// acquire returns an idle call for a request with verb. It waits for a permit, and fails only if
// ctx is done.
func (t *callTable) acquire(ctx context.Context, verb ipc.Verb) (*call, error) {
	if cl := t.tryAcquire(verb); cl != nil {
		return cl, nil
	}
	select {
	case t.permits(verb) <- struct{}{}:
		return t.takeIdle(verb), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tryAcquire returns an idle call if a permit is free, or else nil.
func (t *callTable) tryAcquire(verb ipc.Verb) *call {
	select {
	case t.permits(verb) <- struct{}{}:
		return t.takeIdle(verb)
	default:
		return nil
	}
}

func (t *callTable) takeIdle(verb ipc.Verb) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takeIdleLocked(verb)
}

// takeIdleLocked takes the call that was released last. So few tags are in use, they are short, and
// their calls are in the CPU's cache.
func (t *callTable) takeIdleLocked(verb ipc.Verb) (cl *call) {
	if last := len(t.idle) - 1; last >= 0 {
		cl, t.idle = t.idle[last], t.idle[:last]
	} else {
		cl = &call{ready: make(chan struct{}, 1)}
		cl.tag = t.newTag(cl)
		cl.req.Tag = cl.tag
	}
	cl.req.Verb = verb
	return cl
}

// release puts a call back, and keeps its tag and its memory. The caller must own the call.
func (t *callTable) release(cl *call) {
	places := t.permits(cl.req.Verb)
	t.mu.Lock()
	t.makeStrays(cl, false)
	clear(cl.lines)
	req := ipc.Request{Tag: cl.tag, Names: cl.req.Names[:0], Words: cl.req.Words[:0]}
	*cl = call{ready: cl.ready, req: req, lines: cl.lines[:0], reply: cl.reply, tag: cl.tag}
	t.idle = append(t.idle, cl)
	t.mu.Unlock()
	<-places
	t.noteRelease()
}

// noteRelease wakes awaitReleases.
func (t *callTable) noteRelease() {
	select {
	case t.released <- struct{}{}:
	default: // it will check anyway
	}
}

// find returns the call with a tag, a stray if the call was already answered, or nil.
func (t *callTable) find(tag string) *call {
	n, err := strconv.ParseUint(tag, 36, 31)
	if err != nil || n >= uint64(len(t.calls)) || t.tags[n] != tag {
		return nil
	}
	return t.calls[n]
}

// inFlight returns the calls that are in flight.
func (t *callTable) inFlight() iter.Seq[*call] {
	return func(yield func(*call) bool) {
		for n, cl := range t.calls {
			if cl != nil && cl.tag == t.tags[n] && cl.inFlight() && !yield(cl) {
				return
			}
		}
	}
}

// newTag returns a free tag for cl.
func (t *callTable) newTag(cl *call) string {
	if last := len(t.free) - 1; last >= 0 {
		n := t.free[last]
		t.free = t.free[:last]
		t.calls[n] = cl
		return t.tags[n]
	}
	tag := strconv.FormatInt(int64(len(t.calls)), 36)
	t.calls, t.tags = append(t.calls, cl), append(t.tags, tag)
	return tag
}

// addTag gives the call another tag.
func (t *callTable) addTag(cl *call) string {
	tag := t.newTag(cl)
	cl.resendTags = append(cl.resendTags, tag)
	return tag
}

func (t *callTable) dropTag(tag string) {
	n := tagNumber(tag)
	if t.calls[n] == strayOutlasts {
		t.strayOutlasting--
	}
	t.calls[n] = nil
	t.free = append(t.free, n)
}

func tagNumber(tag string) int {
	n, _ := strconv.ParseUint(tag, 36, 31) // always valid: newTag made it
	return int(n)
}

// makeStrays marks all tags of a call but its own as strays. granted says that one of them was
// granted: the others get the same grant, so the client need not wait for them.
func (t *callTable) makeStrays(cl *call, granted bool) {
	stray := strayOther
	switch {
	case cl.grantOutlastsConn() && !granted:
		stray = strayOutlasts
		t.strayOutlasting += len(cl.resendTags)
	case cl.mayBeGranted():
		stray = strayLock
	}
	for _, tag := range cl.resendTags {
		t.calls[tagNumber(tag)] = stray
	}
	cl.resendTags = nil
}

// swapTag makes tag the call's own.
func (t *callTable) swapTag(cl *call, tag string) {
	if i := slices.Index(cl.resendTags, tag); i >= 0 {
		cl.resendTags[i], cl.tag = cl.tag, tag
	}
}

// connectionEnded is called when no more answers come on the connection.
func (t *callTable) connectionEnded() {
	for n, cl := range t.calls {
		if cl != nil && cl.tag != t.tags[n] { // a stray, or a resend
			t.dropTag(t.tags[n])
		}
	}
	for _, cl := range t.calls {
		if cl != nil {
			cl.resendTags, cl.resendPaused = nil, false
			cl.sent, cl.maybeDone = false, cl.maybeDone || cl.sent
		}
	}
}

// maxDuration is the longest duration that the protocol can express.
const maxDuration = time.Duration(math.MaxInt64) / time.Millisecond * time.Millisecond
