package server

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redlockd/redlockd/ipc"
)

// maxKeptTags is the largest map of tags that is kept while no tag is in flight.
const maxKeptTags = 64

// inflight holds the unanswered calls of a connection.
type inflight struct {
	runningWorks atomic.Int32 // Works that have not returned

	mu          sync.Mutex       // guards the fields below, and the last part of each Call; no other mutex is taken inside it
	tagged      map[string]*Call // unanswered, by tag
	peakTags    int              // most tags at once since tagged was made
	untagged    *Call            // nil: none, or its answer is in the output
	cancelCause error            // why all calls are cancelled, later ones too, or nil

	frozen    bool // see freeze
	answering int  // calls whose answers are being appended to the output
}

// add makes the call cancellable. It rejects a tag that is in use, and more than limit tags.
func (cs *inflight) add(call *Call, limit int) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	call.cause = cs.cancelCause
	if call.Tag == "" {
		cs.untagged = call
		return nil
	}
	if cs.tagged[call.Tag] != nil {
		return ipc.Errorf(ipc.CodeSyntax, "the tag %s is still in use: use another, or wait for its answer", call.Tag)
	}
	if len(cs.tagged) >= limit {
		return ipc.Errorf(ipc.CodeLimit, "%d requests are in progress on this connection, the maximum: wait for answers", limit)
	}
	if cs.tagged == nil {
		cs.tagged = make(map[string]*Call)
	}
	cs.tagged[call.Tag] = call
	cs.peakTags = max(cs.peakTags, len(cs.tagged))
	return nil
}

// answerState says what to do with an answer.
type answerState uint8

const (
	answerSent    answerState = iota // send it; endAnswer must follow
	answeredTwice                    // it is a second answer
	answerDropped                    // drop it, as if the process had ended
)

// beginAnswer decides what to do with the call's answer, and frees its tag for another call.
func (cs *inflight) beginAnswer(call *Call) answerState {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case call.answered:
		return answeredTwice
	case call.answerRecorded: // recordsAnswer has counted it
	case cs.frozen:
		call.answered = true
		cs.forgetLocked(call)
		return answerDropped
	default:
		cs.answering++
	}
	call.answered = true
	if call.Tag != "" { // without a tag, it blocks the next call until endAnswer
		cs.forgetLocked(call)
	}
	return answerSent
}

// forgetLocked removes the call, before it is reused. The caller holds mu.
func (cs *inflight) forgetLocked(call *Call) {
	if cs.untagged == call {
		cs.untagged = nil
	}
	delete(cs.tagged, call.Tag)
	if len(cs.tagged) == 0 && cs.peakTags > maxKeptTags {
		cs.tagged, cs.peakTags = nil, 0
	}
}

// endAnswer lets the next call without a tag begin. The answer is in the output now, so no later
// answer can overtake it.
func (cs *inflight) endAnswer(call *Call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.answering--
	if cs.untagged == call {
		cs.untagged = nil
	}
}

// recordsAnswer makes freeze wait for the call's answer. It returns false if no more answers are
// sent.
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

// freeze stops all answers from now on, except those in progress.
func (cs *inflight) freeze() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.frozen = true
}

// noAnswerUnderWay reports whether no answer is being appended to the output.
func (cs *inflight) noAnswerUnderWay() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.answering == 0
}

// untaggedPending reports whether a call without a tag blocks the next one.
func (cs *inflight) untaggedPending() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.untagged != nil
}

// untaggedUnanswered reports whether the call that blocks the next one has no answer yet.
func (cs *inflight) untaggedUnanswered() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.untagged != nil && !cs.untagged.answered
}

// cancel ends the context of the call with that tag. It returns false if there is none.
func (cs *inflight) cancel(tag string, cause error) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	call := cs.tagged[tag]
	if call == nil {
		return false
	}
	call.cancelWithLocked(cause)
	return true
}

// cancelAll ends the contexts of all calls, including later ones.
func (cs *inflight) cancelAll(cause error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.cancelCause == nil {
		cs.cancelCause = cause
	}
	cs.cancelIfLocked(cause, func(*Call) bool { return true })
}

// cancelIfLocked ends the contexts of the calls for which is returns true. The caller holds mu.
func (cs *inflight) cancelIfLocked(cause error, is func(*Call) bool) {
	for _, call := range cs.tagged {
		if is(call) {
			call.cancelWithLocked(cause)
		}
	}
	if cs.untagged != nil && is(cs.untagged) {
		cs.untagged.cancelWithLocked(cause)
	}
}

// cancelWithLocked cancels the call. The caller holds inflight.mu. (Cancelling runs no other code under
// the mutex: context.AfterFunc and the like start goroutines of their own.)
func (call *Call) cancelWithLocked(cause error) {
	if call.cause == nil {
		call.cause = cause
	}
	if call.cancel != nil {
		call.cancel(cause)
	}
}

// context returns the call's context, and makes it when it is first needed. Most calls need none.
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

// isGone reports whether the call was cancelled with ErrGone.
func (cs *inflight) isGone(call *Call) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return call.cause == ErrGone
}

// finish releases the context, and reports whether the call was answered.
func (cs *inflight) finish(call *Call) (answered bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if call.cancel != nil {
		call.cancel(context.Canceled)
	}
	return call.answered
}
