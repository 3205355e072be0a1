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

// The daemon bounds the requests in flight on one connection (to 4,096 as it
// comes). Locks may wait for long, and must leave room for what ends that wait:
// each kind has its own places, and who finds none free waits for one. So has RESUME,
// for which others wait in their places that are about the same lease.
const (
	maxLocks   = 3072
	maxOthers  = 512
	maxResumes = 256
)

// The states of a call. Its caller moves it from idle to waiting, to leaving and
// left; whoever moves it on to answered or dead, mostly the reader, ends its
// flight, and whose it is then goes by the state before.
const (
	stateIdle       = iota // its caller's, or in the table
	stateWaiting           // sent; its caller waits
	stateAbandoning        // its caller gives up, and is about to say CANCEL
	stateAbandoned         // nobody waits: who answers it settles it
	stateAnswered          // the reply is there
	stateFailed            // there will be none: there is no connection for too long
)

// Values of call.until beside a time.
const (
	waitPatience = 0  // for so long as the Client's patience
	waitForever  = -1 // there is no bound
)

// unsendable is a call.sent that is no link's number: nobody sends it any more.
const sentNever = math.MaxUint64

// call is a request and its answer. Calls are kept in a table and used again.
//
// A call outlasts the connection. Who sends it on one says so in sent before, so
// that nobody else does; without a connection, it is taken back in the same way.
// While it is in flight its request does not change, and table.mu keeps it from
// being used again.
type call struct {
	state     atomic.Int32
	ready     chan struct{} // one place: filled when the flight ends while waiting
	sentOn    atomic.Uint64 // the number of the link that it was sent on last; 0: none yet
	waitUntil atomic.Int64  // how long it waits for a connection: since Client.born, or as above

	req              ipc.Request
	lockName         string   // of the lock; "": none
	lease            *Lease   // what it is about; nil: none
	badOptions       []string // what was wished and cannot be
	failure          error    // with dead: why there is no answer; nil: Close
	maybeDone        bool     // with dead: it was sent, and may have been done
	background       bool     // nobody waits for it, also while it is waiting
	countedAsRelease bool     // nobody waits for it, and it is counted by Client.gives

	lines []ipc.Response // the answer's lines before the last
	reply ipc.Response   // its last

	// What follows is guarded by table.mu while the call is in flight.
	tag              string   // its own, which the answer has, unless that is one of:
	resendTags       []string // the tags of repeats on the same connection
	resent           bool     // it was sent more than once: the first may have been done
	shutdownRefusals int      // how often it was refused as the daemon stops; the reader's
	limitRefusals    int      // how often a repeat was refused as one too many
	resendPaused     bool     // it was just now, and is to be sent again
	restart          uint64   // of what is sent once: which restart it was in flight at last; 0: none
}

// locks tells whether a grant may come of it.
func (cl *call) mayBeGranted() bool {
	return cl.req.Verb == ipc.VerbLock || cl.req.Verb == ipc.VerbTry
}

// grants tells whether a reply to it has come and is a grant.
func (cl *call) isGranted() bool { return cl.mayBeGranted() && cl.reply.Kind == ipc.KindOK }

func (cl *call) inFlight() bool {
	state := cl.state.Load()
	return state == stateWaiting || state == stateAbandoning || state == stateAbandoned
}

// answer is the reply, nil if there is none.
func (cl *call) replyOrNil() *ipc.Response {
	if cl.state.Load() == stateFailed {
		return nil
	}
	return &cl.reply
}

// about makes it a request about a lease that is known.
func (cl *call) setLease(l *Lease) {
	cl.lease, cl.lockName = l, l.name
	cl.req.Lease = l.id
	cl.req.Set |= ipc.OptLease
}

// refusal is the error of a reply that is ERR.
func (cl *call) replyError() *Error { return refusalError(op(cl.req.Verb), cl.lockName, &cl.reply) }

// table knows all calls of a connection by their tags.
type callTable struct {
	lockPermits, otherPermits, resumePermits chan struct{} // one element for each in use

	mu              sync.Mutex // guards what follows, and parts of each call
	calls           []*call    // by the number that a tag is; one of the strays, or nil, where it is no call's
	tags            []string   // by number
	free            []int      // numbers of nil
	strayOutlasting int        // how many are strayStays
	idle            []*call
}

// What stands for a call that was answered by another of its tags: the answer to
// this one may come yet, or never. A grant to strayStays outlasts the connection.
var strayLock, strayOutlasts, strayOther = new(call), new(call), new(call)

func isStray(cl *call) bool { return cl == strayLock || cl == strayOutlasts || cl == strayOther }

func newCallTable() *callTable {
	return &callTable{
		lockPermits:   make(chan struct{}, maxLocks),
		otherPermits:  make(chan struct{}, maxOthers),
		resumePermits: make(chan struct{}, maxResumes),
	}
}

// take is an idle call for a request with verb. It waits for a place, which
// errs only if ctx is done.
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

// tryTake is an idle call if there is a place for it, and nil otherwise.
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

// pop prefers the call that was used last: few tags, short ones, in the cache.
func (t *callTable) takeIdle(verb ipc.Verb) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	cl := t.lastIdle()
	cl.req.Verb = verb
	return cl
}

// last needs mu.
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

// put gives a call back that is its caller's.
func (t *callTable) release(cl *call) {
	places := t.permits(cl.req.Verb)
	t.mu.Lock()
	t.makeStrays(cl, false)
	cl.reset()
	t.idle = append(t.idle, cl)
	t.mu.Unlock()
	<-places
}

// reset keeps the tag and the memory. It needs table.mu.
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

// several reports whether more than one call is in use.
func (t *callTable) severalInUse() bool {
	return len(t.lockPermits)+len(t.otherPermits)+len(t.resumePermits) > 1
}

// find is the call with a tag, nil if there is none: one of the strays for
// one that was answered already. more: it is in flight by other tags, too.
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
		if cl != nil && cl.tag == t.tags[n] { // neither a stray nor a repeat
			all = append(all, cl)
		}
	}
	return all
}

// longest is the longest time that the protocol can say.
const maxDuration = time.Duration(math.MaxInt64) / time.Millisecond * time.Millisecond
