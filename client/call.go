package client

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redlockd/redlockd/ipc"
)

// The daemon bounds the requests in flight on one connection (to 4,096 as it
// comes). Locks may wait for long, and must leave room for what ends that wait:
// each kind has its own places, and who finds none free waits for one.
const (
	maxLocks  = 3072
	maxOthers = 768
)

// The states of a call. Its caller moves it from idle to waiting, to leaving and
// left; whoever moves it on to answered or dead, mostly the reader, ends its
// flight, and whose it is then goes by the state before.
const (
	idle     = iota // its caller's, or in the table
	waiting         // sent; its caller waits
	leaving         // its caller gives up, and is about to say CANCEL
	left            // nobody waits: who answers it settles it
	answered        // the reply is there
	dead            // there will be none: it was not sent, or the connection is over
)

// call is a request and its answer. Calls are kept in a table and used again.
type call struct {
	tag   string
	state atomic.Int32
	ready chan struct{} // one place: filled when the flight ends while waiting

	req    ipc.Request
	name   string   // of the lock; "": none
	lease  *Lease   // what it is about; nil: none
	faults []string // what was wished and cannot be

	lines []ipc.Response // the answer's lines before the last
	reply ipc.Response   // its last
}

// locks tells whether a grant may come of it.
func (cl *call) locks() bool {
	return cl.req.Verb == ipc.VerbLock || cl.req.Verb == ipc.VerbTry
}

// grants tells whether a reply to it has come and is a grant.
func (cl *call) grants() bool { return cl.locks() && cl.reply.Kind == ipc.KindOK }

func (cl *call) inFlight() bool {
	state := cl.state.Load()
	return state == waiting || state == leaving || state == left
}

// answer is the reply, nil if there is none.
func (cl *call) answer() *ipc.Response {
	if cl.state.Load() == dead {
		return nil
	}
	return &cl.reply
}

// about makes it a request about a lease that is known.
func (cl *call) about(l *Lease) {
	cl.lease, cl.name = l, l.name
	cl.req.Lease = l.id
	cl.req.Set |= ipc.OptLease
}

// refusal is the error of a reply that is ERR.
func (cl *call) refusal() *Error { return refusal(op(cl.req.Verb), cl.name, &cl.reply) }

// table knows all calls of a connection by their tags.
type table struct {
	lockPlaces, otherPlaces chan struct{} // one element for each in use

	mu    sync.Mutex // guards what follows
	calls []*call    // by number
	idle  []*call
}

func newTable() *table {
	return &table{lockPlaces: make(chan struct{}, maxLocks), otherPlaces: make(chan struct{}, maxOthers)}
}

// take is an idle call for a request with verb. It waits for a place, which
// errs only if ctx is done.
func (t *table) take(ctx context.Context, verb ipc.Verb) (*call, error) {
	if cl := t.tryTake(verb); cl != nil {
		return cl, nil
	}
	select {
	case t.places(verb) <- struct{}{}:
		return t.pop(verb), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tryTake is an idle call if there is a place for it, and nil otherwise.
func (t *table) tryTake(verb ipc.Verb) *call {
	select {
	case t.places(verb) <- struct{}{}:
		return t.pop(verb)
	default:
		return nil
	}
}

func (t *table) places(verb ipc.Verb) chan struct{} {
	if verb == ipc.VerbLock || verb == ipc.VerbTry {
		return t.lockPlaces
	}
	return t.otherPlaces
}

// pop prefers the call that was used last: few tags, short ones, in the cache.
func (t *table) pop(verb ipc.Verb) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	cl := t.last()
	cl.req.Verb = verb
	return cl
}

// last needs mu.
func (t *table) last() *call {
	if n := len(t.idle); n > 0 {
		cl := t.idle[n-1]
		t.idle = t.idle[:n-1]
		return cl
	}
	cl := &call{tag: strconv.FormatInt(int64(len(t.calls)), 36), ready: make(chan struct{}, 1)}
	cl.req.Tag = cl.tag
	t.calls = append(t.calls, cl)
	return cl
}

// put gives a call back that is its caller's.
func (t *table) put(cl *call) {
	places := t.places(cl.req.Verb)
	cl.reset()
	t.mu.Lock()
	t.idle = append(t.idle, cl)
	t.mu.Unlock()
	<-places
}

// reset keeps the tag and the memory.
func (cl *call) reset() {
	clear(cl.lines)
	cl.req = ipc.Request{Tag: cl.tag, Names: cl.req.Names[:0], Words: cl.req.Words[:0]}
	cl.name, cl.lease, cl.faults, cl.lines = "", nil, nil, cl.lines[:0]
	cl.state.Store(idle)
}

// several reports whether more than one call is in use.
func (t *table) several() bool { return len(t.lockPlaces)+len(t.otherPlaces) > 1 }

// find is the call with a tag, nil if there never was one.
func (t *table) find(tag string) *call {
	n, err := strconv.ParseUint(tag, 36, 16)
	if err != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n >= uint64(len(t.calls)) || t.calls[n].tag != tag {
		return nil
	}
	return t.calls[n]
}

func (t *table) all() []*call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]*call(nil), t.calls...)
}
