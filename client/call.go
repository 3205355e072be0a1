package client

import (
	"context"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
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

// The states of a call. Its caller moves it from idle to waiting, and perhaps to abandoning and
// abandoned. Another goroutine, mostly the reader, moves it to answered or failed, which ends its
// flight. The state before that end decides which goroutine owns the call then.
const (
	stateIdle       = iota // owned by its caller, or in the table
	stateWaiting           // sent; its caller waits
	stateAbandoning        // its caller abandons it, and is about to send CANCEL
	stateAbandoned         // its caller has left; the goroutine that ends its flight settles it
	stateAnswered          // the reply has come
	stateFailed            // no reply will come: there was no connection for too long
)

// Values of call.waitUntil that are not times.
const (
	waitPatience = 0  // as long as the Client's patience
	waitForever  = -1 // without a bound
)

// sentNever in call.sentOn is no link's number: no goroutine sends the call any more.
const sentNever = math.MaxUint64

// call is a request and its answer. Calls are kept in a table and reused.
//
// A call outlasts the connection. Before a goroutine sends it on a connection, it sets sentOn, so
// that no other goroutine sends it too. A goroutine that fails a call because there is no
// connection does the same. While a call is in flight its request does not change, and callTable.mu
// keeps it from being reused.
type call struct {
	state     atomic.Int32
	ready     chan struct{} // room for one: filled when the flight ends while the caller waits
	sentOn    atomic.Uint64 // number of the last link that it was sent on; 0: none
	waitUntil atomic.Int64  // how long it waits for a connection: time since Client.createdAt, or as above

	req              ipc.Request
	lockName         string   // of the lock; "": none
	lease            *Lease   // its lease; nil: none
	badOptions       []string // options that are not valid
	failure          error    // if failed: why there is no answer; nil: Close
	maybeDone        bool     // if failed: it was sent, and the daemon may have executed it
	background       bool     // no caller waits for it, even in stateWaiting
	countedAsRelease bool     // no caller waits for it, and Client.releasing counts it

	lines []ipc.Response // the answer's lines before the last one
	reply ipc.Response   // its last line

	// callTable.mu guards the fields below while the call is in flight.
	tag              string   // the tag of the answer, unless that has one of resendTags
	resendTags       []string // tags under which it was sent again on the same connection
	resent           bool     // it was sent more than once, and the daemon may have executed the first one
	shutdownRefusals int      // how often a stopping daemon refused it; the reader owns this
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

func (cl *call) inFlight() bool {
	state := cl.state.Load()
	return state == stateWaiting || state == stateAbandoning || state == stateAbandoned
}

// replyOrNil returns the reply, or nil if there is none.
func (cl *call) replyOrNil() *ipc.Response {
	if cl.state.Load() == stateFailed {
		return nil
	}
	return &cl.reply
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

	mu              sync.Mutex // guards the fields below, and the last part of each call; no other mutex is taken inside it, and it is taken inside none
	calls           []*call    // by the number in the tag; a stray or nil if the tag has no call
	tags            []string   // by number
	free            []int      // numbers of nil entries
	strayOutlasting int        // how many entries are strayOutlasts
	idle            []*call
}

// strayLock, strayOutlasts and strayOther mark the tag of a call that was answered under another of
// its tags. An answer under the marked tag may still come, or never. A grant to strayOutlasts
// outlasts the connection.
var strayLock, strayOutlasts, strayOther = new(call), new(call), new(call)

func isStray(cl *call) bool { return cl == strayLock || cl == strayOutlasts || cl == strayOther }

func newCallTable() *callTable {
	return &callTable{
		lockPermits:   make(chan struct{}, maxLocks),
		otherPermits:  make(chan struct{}, maxOthers),
		resumePermits: make(chan struct{}, maxResumes),
	}
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

func (t *callTable) permits(verb ipc.Verb) chan struct{} {
	switch verb {
	case ipc.VerbLock, ipc.VerbTry:
		return t.lockPermits
	case ipc.VerbResume:
		return t.resumePermits
	}
	return t.otherPermits
}

// takeIdle takes the call that was released last. So few tags are in use, they are short, and their
// calls are in the CPU's cache.
func (t *callTable) takeIdle(verb ipc.Verb) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	cl := t.lastIdle()
	cl.req.Verb = verb
	return cl
}

// lastIdle removes the last idle call. The caller holds mu.
func (t *callTable) lastIdle() *call {
	if n := len(t.idle); n > 0 {
		cl := t.idle[n-1]
		t.idle = t.idle[:n-1]
		return cl
	}
	cl := &call{ready: make(chan struct{}, 1)}
	cl.tag = t.newTag(cl)
	cl.req.Tag = cl.tag
	return cl
}

// release puts a call back. The caller must own it.
func (t *callTable) release(cl *call) {
	places := t.permits(cl.req.Verb)
	t.mu.Lock()
	t.makeStrays(cl, false)
	cl.reset()
	t.idle = append(t.idle, cl)
	t.mu.Unlock()
	<-places
}

// reset keeps the tag and the memory. The caller holds callTable.mu.
func (cl *call) reset() {
	clear(cl.lines)
	cl.req = ipc.Request{Tag: cl.tag, Names: cl.req.Names[:0], Words: cl.req.Words[:0]}
	cl.lockName, cl.lease, cl.badOptions, cl.failure, cl.lines = "", nil, nil, nil, cl.lines[:0]
	cl.maybeDone, cl.background, cl.countedAsRelease = false, false, false
	cl.resent, cl.resendPaused, cl.limitRefusals, cl.shutdownRefusals, cl.restart = false, false, 0, 0, 0
	cl.sentOn.Store(0)
	cl.waitUntil.Store(waitPatience)
	cl.state.Store(stateIdle)
}

// severalInUse reports whether more than one call is in use.
func (t *callTable) severalInUse() bool {
	return len(t.lockPermits)+len(t.otherPermits)+len(t.resumePermits) > 1
}

// find returns the call with a tag, a stray if the call was already answered, or nil. more reports
// whether the call is also in flight under other tags.
func (t *callTable) find(tag string) (cl *call, more bool) {
	n, err := strconv.ParseUint(tag, 36, 31)
	if err != nil {
		return nil, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n >= uint64(len(t.calls)) || t.tags[n] != tag || t.calls[n] == nil {
		return nil, false
	}
	cl = t.calls[n]
	return cl, len(cl.resendTags) > 0
}

func (t *callTable) all() []*call {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*call
	for n, cl := range t.calls {
		if cl != nil && cl.tag == t.tags[n] { // neither a stray nor a resend
			all = append(all, cl)
		}
	}
	return all
}

// maxDuration is the longest duration that the protocol can express.
const maxDuration = time.Duration(math.MaxInt64) / time.Millisecond * time.Millisecond
