package ipc

import (
	"context"
	"sync"
	"sync/atomic"
)

// maxKeptTags is the most tags for which a map is kept when none is in flight.
const maxKeptTags = 64

// calls are the calls of a connection.
type calls struct {
	running atomic.Int32 // Works that have not returned

	mu       sync.Mutex       // guards what follows, and parts of each Call
	tagged   map[string]*Call // unanswered
	most     int              // tags in flight at once since tagged was made
	untagged *Call            // nil: none, or its answer is in the output
	cause    error            // all calls are cancelled, new ones too
}

// enter makes the call cancellable. It refuses tags that are in use, and too
// many.
func (cs *calls) enter(call *Call, limit int) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	call.cause = cs.cause
	if call.Tag == "" {
		cs.untagged = call
		return nil
	}
	if cs.tagged[call.Tag] != nil {
		return refuse(CodeSyntax, "the tag %s is still in flight: use another, or wait for its answer", call.Tag)
	}
	if len(cs.tagged) >= limit {
		return refuse(CodeLimit, "%d requests are in flight on this connection, which is the most: wait for answers", limit)
	}
	if cs.tagged == nil {
		cs.tagged = make(map[string]*Call)
	}
	cs.tagged[call.Tag] = call
	cs.most = max(cs.most, len(cs.tagged))
	return nil
}

// answer makes the tag free for another call. It is false if that was done before.
func (cs *calls) answer(call *Call) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if call.answered {
		return false
	}
	call.answered = true
	if call.Tag == "" {
		return true // still in the way: see leave
	}
	delete(cs.tagged, call.Tag)
	if len(cs.tagged) == 0 && cs.most > maxKeptTags {
		cs.tagged, cs.most = nil, 0
	}
	return true
}

// leave lets the next call without a tag begin: this one's answer is in the
// output, so none can overtake it.
func (cs *calls) leave(call *Call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.untagged == call {
		cs.untagged = nil
	}
}

// busy tells whether a call without a tag is in the way of the next.
func (cs *calls) busy() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.untagged != nil
}

// began counts a Work.
func (cs *calls) began() { cs.running.Add(1) }

func (cs *calls) returned() { cs.running.Add(-1) }

// idle tells that every Work has returned.
func (cs *calls) idle() bool { return cs.running.Load() == 0 }

// several tells that more than one Work runs.
func (cs *calls) several() bool { return cs.running.Load() > 1 }

// cancel ends the context of the call with that tag. It is false if there is none.
func (cs *calls) cancel(tag string, cause error) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	call := cs.tagged[tag]
	if call == nil {
		return false
	}
	call.stop(cause)
	return true
}

// cancelAll ends the contexts of all calls, of those to come too.
func (cs *calls) cancelAll(cause error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.cause == nil {
		cs.cause = cause
	}
	for _, call := range cs.tagged {
		call.stop(cause)
	}
	if cs.untagged != nil {
		cs.untagged.stop(cause)
	}
}

// stop needs calls.mu. (Cancelling runs no code of others with it: what they
// hang on a context runs on goroutines of its own.)
func (call *Call) stop(cause error) {
	if call.cause == nil {
		call.cause = cause
	}
	if call.cancel != nil {
		call.cancel(cause)
	}
}

// context makes the call's context at the first time: most calls need none.
func (cs *calls) context(call *Call) context.Context {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if call.ctx == nil {
		call.ctx, call.cancel = context.WithCancelCause(context.Background())
		if call.cause != nil {
			call.cancel(call.cause)
		}
	}
	return call.ctx
}

// end frees what the context holds. It tells whether the call was answered.
func (cs *calls) end(call *Call) (answered bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if call.cancel != nil {
		call.cancel(context.Canceled)
	}
	return call.answered
}
