package server

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redlockd/redlockd/ipc"
)

// maxKeptTags is the most tags for which a map is kept when none is in flight.
const maxKeptTags = 64

// calls are the calls of a connection.
type inflight struct {
	runningWorks atomic.Int32 // Works that have not returned

	mu          sync.Mutex       // guards what follows, and parts of each Call
	tagged      map[string]*Call // unanswered
	mostTags    int              // tags in flight at once since tagged was made
	untagged    *Call            // nil: none, or its answer is in the output
	cancelCause error            // all calls are cancelled, new ones too

	frozen    bool // see freeze
	answering int  // calls whose answers are on their way into the output
}

// enter makes the call cancellable. It refuses tags that are in use, and too
// many.
func (cs *inflight) add(call *Call, limit int) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	call.cause = cs.cancelCause
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
	cs.mostTags = max(cs.mostTags, len(cs.tagged))
	return nil
}

// verdict is what becomes of an answer.
type answerState uint8

const (
	answerSent    answerState = iota // it goes out; leave follows
	answeredTwice                    // it is a second one
	answerDropped                    // it goes nowhere: as if the process had ended
)

// answer makes the tag free for another call.
func (cs *inflight) beginAnswer(call *Call) answerState {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case call.answered:
		return answeredTwice
	case call.answerRecorded: // counted already
	case cs.frozen:
		call.answered = true
		cs.forget(call)
		return answerDropped
	default:
		cs.answering++
	}
	call.answered = true
	if call.Tag != "" { // else it is still in the way: see leave
		cs.forget(call)
	}
	return answerSent
}

// forget makes it no call of this connection any more: soon it is another's. It needs mu.
func (cs *inflight) forget(call *Call) {
	if cs.untagged == call {
		cs.untagged = nil
	}
	delete(cs.tagged, call.Tag)
	if len(cs.tagged) == 0 && cs.mostTags > maxKeptTags {
		cs.tagged, cs.mostTags = nil, 0
	}
}

// leave lets the next call without a tag begin: this one's answer is in the
// output, so none can overtake it.
func (cs *inflight) endAnswer(call *Call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.answering--
	if cs.untagged == call {
		cs.untagged = nil
	}
}

// noting has the call's answer be waited for. It is false if none goes out any more.
func (cs *inflight) recordsAnswer(call *Call) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.frozen {
		return false
	}
	if !call.answerRecorded && !call.answered {
		call.answerRecorded = true
		cs.answering++
	}
	return true
}

// freeze has no answer go out from now on but those that are on their way.
func (cs *inflight) freeze() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.frozen = true
}

// still tells that no answer is on its way.
func (cs *inflight) noAnswerUnderWay() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.answering == 0
}

// busy tells whether a call without a tag is in the way of the next.
func (cs *inflight) untaggedPending() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.untagged != nil
}

// unanswered tells whether the call that is in the way of the next is not even
// answered.
func (cs *inflight) untaggedUnanswered() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.untagged != nil && !cs.untagged.answered
}

// began counts a Work.
func (cs *inflight) workStarted() { cs.runningWorks.Add(1) }

func (cs *inflight) workEnded() { cs.runningWorks.Add(-1) }

// idle tells that every Work has returned.
func (cs *inflight) noWorkRuns() bool { return cs.runningWorks.Load() == 0 }

// several tells that more than one Work runs.
func (cs *inflight) severalWorksRun() bool { return cs.runningWorks.Load() > 1 }

// cancel ends the context of the call with that tag. It is false if there is none.
func (cs *inflight) cancel(tag string, cause error) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	call := cs.tagged[tag]
	if call == nil {
		return false
	}
	call.cancelWith(cause)
	return true
}

// cancelAll ends the contexts of all calls, of those to come too.
func (cs *inflight) cancelAll(cause error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.cancelCause == nil {
		cs.cancelCause = cause
	}
	for _, call := range cs.tagged {
		call.cancelWith(cause)
	}
	if cs.untagged != nil {
		cs.untagged.cancelWith(cause)
	}
}

// stop needs calls.mu. (Cancelling runs no code of others with it: what they
// hang on a context runs on goroutines of its own.)
func (call *Call) cancelWith(cause error) {
	if call.cause == nil {
		call.cause = cause
	}
	if call.cancel != nil {
		call.cancel(cause)
	}
}

// context makes the call's context at the first time: most calls need none.
func (cs *inflight) context(call *Call) context.Context {
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
func (cs *inflight) isGone(call *Call) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return call.cause == ErrGone
}

// end frees what the context holds. It tells whether the call was answered.
func (cs *inflight) finish(call *Call) (answered bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if call.cancel != nil {
		call.cancel(context.Canceled)
	}
	return call.answered
}
