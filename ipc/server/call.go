package server

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/redlockd/redlockd/ipc"
)

// Call is a request that was read and must be answered, exactly once. It belongs to its session
// until Begin has returned nil, or its Work has returned. Then the server uses it for another
// request.
type Call struct {
	ipc.Request

	// Number belongs to the session: the number under which the journal recorded the request, for
	// example. If the request was recorded before a restart, it is what Restored.Begin was given.
	Number   uint64
	Replayed bool // it was recorded before a restart

	conn     *Conn
	lines    *buffer      // the reply's lines before the last; nil: none
	response ipc.Response // what OK and Err build
	inWork   bool         // a Work runs, not on the reading goroutine
	recorded bool         // the journal recorded it, and records its answer

	// inflight.mu of the connection guards the fields below.
	answered       bool
	answerRecorded bool  // the session records the answer itself
	cause          error // why it is cancelled, or nil
	ctx            context.Context
	cancel         context.CancelCauseFunc
}

// defectText is the text that a client gets if a session panics or does not answer.
const defectText = "a defect in the daemon: see its log"

var callPool = sync.Pool{New: func() any { return new(Call) }}

func newCall(c *Conn) *Call {
	call := callPool.Get().(*Call)
	call.conn = c
	return call
}

// free puts the call into the pool for another request.
func (call *Call) free() {
	*call = Call{
		Request:  ipc.Request{Names: call.Names[:0], Words: call.Words[:0]},
		response: ipc.Response{Fields: call.response.Fields[:0]},
	}
	callPool.Put(call)
}

// Conn returns the connection of the request.
func (call *Call) Conn() *Conn { return call.conn }

// Context returns a context that ends when the call is cancelled, with the cause ErrCancelled,
// ErrGone, ErrLate or ErrShutdown, and at the latest when the call ends.
func (call *Call) Context() context.Context { return call.conn.inflight.context(call) }

// IsGone reports whether the client is known to read no more answers.
func (call *Call) IsGone() bool { return call.conn.inflight.isGone(call) }

// Quit is Conn.CloseAfterReplies for a Begin. It also drops the queue. (A request without a tag
// never overtakes another one, so everything in the queue came later.)
func (call *Call) Quit() {
	if call.Tag == "" {
		call.conn.recordedUnread.begunBytes = call.conn.recordedUnread.queuedBytes
		call.conn.queue = lineQueue{}
	}
	call.conn.CloseAfterReplies()
}

// OK starts a positive answer for Reply. The Call owns it: there is one answer at a time.
func (call *Call) OK() *ipc.Response { return call.response.OK(call.Tag) }

// Err starts a negative answer for Reply, like OK.
func (call *Call) Err(code ipc.Code, text string) *ipc.Response {
	return call.response.Err(call.Tag, code, text)
}

// Line adds a line to the reply, before its last one. It copies r and sets its tag and kind. The
// lines are sent together with the reply.
func (call *Call) Line(r *ipc.Response) {
	if call.lines == nil {
		call.lines = newBuffer()
	}
	r.Tag, r.Kind = call.Tag, ipc.KindLine
	call.lines.b = r.AppendTo(call.lines.b)
}

// RecordingAnswer announces that the session, a Journal, is about to record the answer itself.
// RecordAnswer is then not called. Freeze waits for the Reply, which must follow soon.
//
// If Freeze has already begun, the next process answers: RecordingAnswer blocks until Freeze has
// returned, and then ends the goroutine, as if the process had been killed before. So call it
// before you record the answer, on the goroutine of Begin or of the Work, and without holding a
// mutex.
func (call *Call) RecordingAnswer() {
	if !call.conn.inflight.recordsAnswer(call) {
		<-call.conn.server.freezeUnderWay().done
		runtime.Goexit()
	}
}

// Reply answers the call. It copies r, an OK or ERR, and sets its tag. It blocks only if the
// session's Journal does. The client may reuse the tag at once.
func (call *Call) Reply(r *ipc.Response) {
	c := call.conn
	switch c.inflight.beginAnswer(call) {
	case answeredTwice:
		c.server.defect(c, "a request is answered twice", debug.Stack())
		return
	case answerDropped:
		call.freeLines()
		return
	}
	c.recordAnswer(call)
	r.Tag = call.Tag
	if c.server.Answered != nil {
		c.server.Answered(c, call, r)
	}
	var lines []byte
	if call.lines != nil {
		lines = call.lines.b
	}
	c.respond(lines, r)
	call.freeLines()
	c.inflight.endAnswer(call)
	if call.inWork {
		c.notify()
	}
}

func (call *Call) freeLines() {
	if call.lines != nil {
		call.lines.free()
		call.lines = nil
	}
}

// finish ends the call after Begin or the Work has returned. If the session has not answered,
// finish answers. It then does not reuse the call, because the session may still use it.
func (call *Call) finish(panicked bool) {
	c := call.conn
	answered := c.inflight.finish(call)
	if answered {
		if !panicked {
			call.free()
		}
		return
	}
	if !panicked {
		c.server.defect(c, "a request was not answered: "+call.Verb.String(), nil)
	}
	call.freeLines()
	call.Reply(call.Err(ipc.CodeInternal, defectText))
}
