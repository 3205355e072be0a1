package server

import (
	"bytes"
	"errors"
	"github.com/redlockd/redlockd/ipc"
	"io"
	"os"
	"time"
)

// This file is what a connection's own goroutine does until input and requests
// are over: it reads, begins requests in their order, and waits.

// loop reads and begins requests until no more come and all are over, or the
// connection is frozen.
func (c *Conn) loop() (isFrozen bool) {
	for c.reading || !c.settled() {
		switch {
		case c.freezing.Load() && !c.stopping.Load():
			if c.freeze() {
				return true
			}
		case c.pace.due() && c.isPaced() && c.ready():
			c.keepPace()
		case !c.advance():
			if c.waits() {
				c.noteRest()
			}
			c.uncork()
			c.pace.pause()
			c.await()
			c.pace.goOn()
		}
	}
	c.in.discard()
	return false
}

// waits tells that what is in the way of the next request stays for more than a
// moment: a client may have read an answer, and sent more, before the call is over.
func (c *Conn) waits() bool {
	return c.waiting.empty() || c.calls.unanswered() || c.out.full()
}

// settled tells that everything read is begun, and no Work runs.
func (c *Conn) settled() bool { return !c.queued() && c.calls.idle() }

// queued tells whether requests wait for their turn.
func (c *Conn) queued() bool { return len(c.replays) > 0 || !c.waiting.empty() }

// advance does one thing that needs no waiting. It is false if there is none.
func (c *Conn) advance() bool {
	switch {
	case c.queued() && !c.calls.busy() && !c.out.full():
		c.nextQueued()
	case c.reading && c.quitting.Load():
		c.endInput(false)
	case !c.reading || c.paused():
		c.stalled = true
		return false
	default:
		c.stalled = false
		return c.nextLine()
	}
	return true
}

// ready tells whether something may be there for advance to begin.
func (c *Conn) ready() bool {
	if c.out.full() {
		return false
	}
	return c.reading && c.in.unread() > 0 && !c.paused() || c.queued() && !c.calls.busy()
}

// nextQueued begins the request whose turn has come.
func (c *Conn) nextQueued() {
	if len(c.replays) > 0 {
		c.nextReplay()
		return
	}
	line := c.waiting.pop()
	c.notes.tookWaiting(line)
	c.take(line, true)
}

func (c *Conn) nextLine() bool {
	line, ok := c.in.line()
	if !ok {
		if c.stopping.Load() && c.settled() && len(c.in.ahead) == 0 {
			c.endInput(false)
			return true
		}
		return false
	}
	c.notes.tookUnread()
	if !isBlank(line) {
		c.take(line, false)
	}
	return true
}

// isBlank is true of lines that are ignored. Of one that is too long only a part is known.
func isBlank(line []byte) bool {
	return len(line) < ipc.MaxLine && len(bytes.Trim(line, " \t\r")) == 0
}

// paused tells that no more is read for now: too much waits for its turn, or to
// be read by the client.
func (c *Conn) paused() bool {
	return c.waiting.size() >= orDefault(c.server.MaxQueued, DefaultMaxQueued) || c.out.full()
}

// take begins the request in a line, or has it wait for its turn if it has not yet.
func (c *Conn) take(line []byte, waited bool) {
	call := newCall(c)
	err := ipc.ParseRequest(line, &call.Request)
	if call.Tag == "" && !waited && (c.queued() || c.calls.busy()) {
		c.waiting.push(line)
		call.free()
		return
	}
	c.start(call, line, err)
}

// start begins a request, or refuses it: err is the parser's.
func (c *Conn) start(call *Call, line []byte, err error) {
	c.pace.steps++
	c.cork()
	if err == nil {
		err = c.enter(call)
	}
	if err != nil {
		c.noteRefused(call)
		c.refuse(call.Tag, err)
		call.free()
		return
	}
	c.begin(call, line)
}

func (c *Conn) enter(call *Call) error {
	if c.stopping.Load() {
		return &ipc.Error{Code: ipc.CodeShutdown, Text: ErrShutdown.Error()}
	}
	return c.calls.enter(call, orDefault(c.server.MaxInFlight, DefaultMaxInFlight))
}

// refuse answers what no session has seen.
func (c *Conn) refuse(tag string, err error) {
	var r ipc.Response
	code, text := refusalOf(err)
	c.answer(nil, r.Err(tag, code, text))
}

// refusalOf is what a client is told: of an *Error, what it says.
func refusalOf(err error) (ipc.Code, string) {
	if refused, ok := errors.AsType[*ipc.Error](err); ok {
		return refused.Code, refused.Text
	}
	return ipc.CodeInternal, err.Error()
}

// answer sends the lines of a reply, and its last.
func (c *Conn) answer(lines []byte, r *ipc.Response) {
	if r.Kind == ipc.KindErr && c.server.Refused != nil {
		c.server.Refused(r.Code)
	}
	c.out.append(lines, r)
}

// begin hands a request to the session, and the rest of it to a worker.
func (c *Conn) begin(call *Call, line []byte) {
	if hasLongAnswer(call.Verb) {
		c.pace.look()
	}
	work, panicked := c.beginWork(call, line)
	if work == nil {
		call.end(panicked)
		return
	}
	call.detached = true
	c.pace.extra += workCost
	c.calls.began()
	c.wg.Add(1)
	c.server.workers.run(job{call, work})
}

// hasLongAnswer reports whether an answer to verb may be long. Such an answer can take as much
// time as many others.
func hasLongAnswer(verb ipc.Verb) bool {
	return verb == ipc.VerbList || verb == ipc.VerbStatus || verb == ipc.VerbHelp
}

func (c *Conn) beginWork(call *Call, line []byte) (work Work, panicked bool) {
	defer c.recovered(&panicked)
	c.noteAsked(call, line)
	return c.session.Begin(call), false
}

// perform runs the rest of a request, on a worker.
func (c *Conn) perform(call *Call, work Work) {
	call.end(c.run(work))
	c.calls.returned()
	c.news()
}

// run is guard for a Work, without the allocation of a method value.
func (c *Conn) run(work Work) (panicked bool) {
	defer c.recovered(&panicked)
	work.Run()
	return false
}

// cork has the answers to all lines that are here already leave together.
func (c *Conn) cork() {
	if c.out.size.Load() >= flushSize {
		c.uncork()
	}
	if !c.corked {
		c.corked = true
		c.out.cork()
	}
}

func (c *Conn) uncork() {
	if c.corked {
		c.corked = false
		c.out.uncork()
	}
}

// await waits for whatever lets the reading goroutine go on.
func (c *Conn) await() {
	watchful := !c.reading || c.queued() || c.stopping.Load() || c.out.full()
	switch {
	case c.watchful.Swap(watchful) != watchful: // look once more: news from before is not heard of
	case c.reading && !c.paused():
		if !c.stalled { // else what was in the way has just gone: there may be lines
			c.receive()
		}
	default:
		c.in.wait = lineWait{}
		c.sleep()
	}
}

// news wakes the reading goroutine if it waits for a call or for the output.
func (c *Conn) news() {
	if c.watchful.Load() {
		c.wake()
	}
}

// wake ends what the reading goroutine waits for, now or next.
func (c *Conn) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
	c.nc.SetReadDeadline(past) // fails only when closed, which wakes as well
}

// receive waits for more to read, for the rest of a line no longer than it may take.
func (c *Conn) receive() {
	if c.in.begun() && !c.waitForEnd() {
		return
	}
	c.received(c.in.receive(c.pace.readSize()))
}

// received goes by how receiving ended.
func (c *Conn) received(err error) {
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.awake()
	default:
		c.endInput(err != io.EOF || c.in.closedByPeer())
	}
}

// sleep waits for news. It notices when the client closes meanwhile.
func (c *Conn) sleep() {
	if c.gone || !c.in.canWatch() {
		<-c.wakeup
		return
	}
	if err := c.in.watch(); errors.Is(err, os.ErrDeadlineExceeded) {
		c.awake()
	} else {
		c.lose()
	}
}

// awake lets reading wait again after a wake.
func (c *Conn) awake() {
	c.nc.SetReadDeadline(time.Time{}) // fails only when closed: the next read tells
}

// lose ends what is done for a client that has closed.
func (c *Conn) lose() {
	c.gone = true
	c.calls.cancelAll(ErrGone)
}

// endInput ends reading. What was read is answered nevertheless.
func (c *Conn) endInput(gone bool) {
	c.reading = false
	if gone {
		c.lose()
	}
	c.guard(func() { c.session.InputEnded(c.gone) })
}
