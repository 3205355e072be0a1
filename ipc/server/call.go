package server

import (
	"context"
	"runtime/debug"
	"sync"

	"github.com/redlockd/redlockd/ipc"
)

// Call is a request that was read and is to be answered, once. It and its
// request are its session's until Begin returned nil or its Work has returned;
// then it is used again.
type Call struct {
	ipc.Request

	// Number is the session's: what it noted the request as, say. Of one that was
	// noted before a restart it is what Restored.Begin was given.
	Number   uint64
	Replayed bool // it was noted before a restart

	conn     *Conn
	lines    *buffer      // of the reply, before its last; nil: none
	response ipc.Response // what OK and Err make
	inWork   bool         // a Work runs: not the reading goroutine
	recorded bool         // the journal is to be told of the answer

	// The rest is guarded by conn.calls.mu.
	answered       bool
	answerRecorded bool  // the session notes the answer; written by whoever answers
	cause          error // it is cancelled, and why
	ctx            context.Context
	cancel         context.CancelCauseFunc
}

// defectText is what a client is told of a defect.
const defectText = "a defect in the daemon: its log tells more"

var callPool = sync.Pool{New: func() any { return new(Call) }}

func newCall(c *Conn) *Call {
	call := callPool.Get().(*Call)
	call.conn = c
	return call
}

// free makes the call another's.
func (call *Call) free() {
	*call = Call{
		Request:  ipc.Request{Names: call.Names[:0], Words: call.Words[:0]},
		response: ipc.Response{Fields: call.response.Fields[:0]},
	}
	callPool.Put(call)
}

// Conn is the connection that the request came on.
func (call *Call) Conn() *Conn { return call.conn }

// Context ends when the call is cancelled, with the cause ErrCancelled,
// ErrGone, ErrLate or ErrShutdown, and at the latest when the call is over.
func (call *Call) Context() context.Context { return call.conn.inflight.context(call) }

// IsGone tells whether it is known that the client hears no answer any more.
func (call *Call) IsGone() bool { return call.conn.inflight.isGone(call) }

// Quit is the Conn's CloseAfterReplies, for Begin: what came behind this request is not
// begun either. (What has no tag does not overtake: all that waits for its turn did.)
func (call *Call) Quit() {
	if call.Tag == "" {
		call.conn.recordedUnread.droppedQueue()
		call.conn.queue = lineQueue{}
	}
	call.conn.CloseAfterReplies()
}

// OK begins a positive answer, to be given to Reply. It is the call's own: there
// is one answer at a time.
func (call *Call) OK() *ipc.Response { return call.response.OK(call.Tag) }

// Err begins a negative answer, as OK.
func (call *Call) Err(code ipc.Code, text string) *ipc.Response {
	return call.response.Err(call.Tag, code, text)
}

// Line adds a line to the reply before its last one. It copies r, and leaves to
// the call which tag and kind it has. Lines are sent with the reply, together.
func (call *Call) Line(r *ipc.Response) {
	if call.lines == nil {
		call.lines = newBuffer()
	}
	r.Tag, r.Kind = call.Tag, ipc.KindLine
	call.lines.b = r.AppendTo(call.lines.b)
}

// Noting tells that the session, which is a Journal, is about to note the answer
// as part of another record: then Answered is not called. Freeze waits for the
// Reply, which must follow soon; if Freeze has begun, Noting blocks for ever. So it
// is called before that record is made, and without a lock.
func (call *Call) RecordingAnswer() {
	if !call.conn.inflight.recordsAnswer(call) {
		select {}
	}
}

// Reply answers the call: r is an OK or ERR, whose tag it sets, and which it
// copies. It does not block, unless the session's Journal does. The client may use
// the tag again at once.
func (call *Call) Reply(r *ipc.Response) {
	c := call.conn
	switch c.inflight.beginAnswer(call) {
	case answeredTwice:
		c.server.defect(c, "a request is answered twice", debug.Stack())
	case answerDropped:
		call.freeLines()
	case answerSent:
		call.send(r)
	}
}

func (call *Call) send(r *ipc.Response) {
	c := call.conn
	c.recordAnswer(call)
	r.Tag = call.Tag
	if c.server.Answered != nil {
		c.server.Answered(c, call, r)
	}
	c.respond(call.takeLines(), r)
	call.freeLines()
	c.inflight.endAnswer(call)
	if call.inWork {
		c.notify()
	}
}

func (call *Call) takeLines() []byte {
	if call.lines == nil {
		return nil
	}
	return call.lines.b
}

func (call *Call) freeLines() {
	if call.lines != nil {
		call.lines.free()
		call.lines = nil
	}
}

// end is called when the session is done with the call. A call that was not
// answered is answered now; it is not used again, as somebody may still try.
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
