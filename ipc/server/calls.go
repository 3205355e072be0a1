package server

import (
	"context"
	"github.com/redlockd/redlockd/ipc"
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

	frozen    bool // see freeze
	answering int  // calls whose answers are on their way into the output
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
		return ipc.Errorf(ipc.CodeSyntax, "the tag %s is still in flight: use another, or wait for its answer", call.Tag)
	}
	if len(cs.tagged) >= limit {
		return ipc.Errorf(ipc.CodeLimit, "%d requests are in flight on this connection, which is the most: wait for answers", limit)
	}
	if cs.tagged == nil {
		cs.tagged = make(map[string]*Call)
	}
	cs.tagged[call.Tag] = call
	cs.most = max(cs.most, len(cs.tagged))
	return nil
}

// verdict is what becomes of an answer.
type verdict uint8

const (
	answers        verdict = iota // it goes out; leave follows
	answeredBefore                // it is a second one
	frozen                        // it goes nowhere: as if the process had ended
)

// answer makes the tag free for another call.
func (cs *calls) answer(call *Call) verdict {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case call.answered:
		return answeredBefore
	case call.noting: // counted already
	case cs.frozen:
		call.answered = true
		cs.forget(call)
		return frozen
	default:
		cs.answering++
	}
	call.answered = true
	if call.Tag != "" { // else it is still in the way: see leave
		cs.forget(call)
	}
	return answers
}

// forget makes it no call of this connection any more: soon it is another's. It needs mu.
func (cs *calls) forget(call *Call) {
	if cs.untagged == call {
		cs.untagged = nil
	}
	delete(cs.tagged, call.Tag)
	if len(cs.tagged) == 0 && cs.most > maxKeptTags {
		cs.tagged, cs.most = nil, 0
	}
}

// leave lets the next call without a tag begin: this one's answer is in the
// output, so none can overtake it.
func (cs *calls) leave(call *Call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.answering--
	if cs.untagged == call {
		cs.untagged = nil
	}
}

// noting has the call's answer be waited for. It is false if none goes out any more.
func (cs *calls) noting(call *Call) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.frozen {
		return false
	}
	if !call.noting && !call.answered {
		call.noting = true
		cs.answering++
	}
	return true
}

// freeze has no answer go out from now on but those that are on their way.
func (cs *calls) freeze() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.frozen = true
}

// still tells that no answer is on its way.
func (cs *calls) still() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.answering == 0
}

// busy tells whether a call without a tag is in the way of the next.
func (cs *calls) busy() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.untagged != nil
}

// unanswered tells whether the call that is in the way of the next is not even
// answered.
func (cs *calls) unanswered() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.untagged != nil && !cs.untagged.answered
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

// gone tells whether the call was cancelled with ErrGone.
func (cs *calls) gone(call *Call) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return call.cause == ErrGone
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
