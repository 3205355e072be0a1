package server

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// This file is what a connection's own goroutine does until input and requests
// are over: it reads, begins requests in their order, and waits.

// loop reads and begins requests until no more come and all are over, or the
// connection is frozen.
func (c *Conn) loop() (isFrozen bool) {
	for c.reading || !c.allBegunAndDone() {
		switch {
		case c.freezing.Load() && !c.stopping.Load():
			if c.freezeHere() {
				return true
			}
		case c.fairness.isDue() && c.mayBeDelayed() && c.mayStep():
			c.waitForShare()
		case !c.step():
			if c.isBlocked() {
				c.recordUnread()
			}
			c.uncork()
			c.fairness.pause()
			c.await()
			c.fairness.resume()
		}
	}
	c.in.discard()
	return false
}

// waits tells that what is in the way of the next request stays for more than a
// moment: a client may have read an answer, and sent more, before the call is over.
func (c *Conn) isBlocked() bool {
	return c.queue.empty() || c.inflight.untaggedUnanswered() || c.out.full()
}

// settled tells that everything read is begun, and no Work runs.
func (c *Conn) allBegunAndDone() bool { return !c.hasQueued() && c.inflight.noWorkRuns() }

// queued tells whether requests wait for their turn.
func (c *Conn) hasQueued() bool { return len(c.replays) > 0 || !c.queue.empty() }

// advance does one thing that needs no waiting. It is false if there is none.
func (c *Conn) step() bool {
	switch {
	case c.hasQueued() && !c.inflight.untaggedPending() && !c.out.full():
		c.nextQueued()
	case c.reading && c.quitting.Load():
		c.endInput(false)
	case !c.reading || c.readingPaused():
		c.wasBlocked = true
		return false
	default:
		c.wasBlocked = false
		return c.nextLine()
	}
	return true
}

// ready tells whether something may be there for advance to begin.
func (c *Conn) mayStep() bool {
	if c.out.full() {
		return false
	}
	return c.reading && c.in.unread() > 0 && !c.readingPaused() || c.hasQueued() && !c.inflight.untaggedPending()
}

// nextQueued begins the request whose turn has come.
func (c *Conn) nextQueued() {
	if len(c.replays) > 0 {
		c.nextReplay()
		return
	}
	line := c.queue.pop()
	c.recordedUnread.tookQueued(line)
	c.accept(line, true)
}

func (c *Conn) nextLine() bool {
	line, ok := c.in.line()
	if !ok {
		if c.stopping.Load() && c.allBegunAndDone() && len(c.in.earlier) == 0 {
			c.endInput(false)
			return true
		}
		return false
	}
	c.recordedUnread.tookLine()
	if !isBlank(line) {
		c.accept(line, false)
	}
	return true
}

// isBlank is true of lines that are ignored. Of one that is too long only a part is known.
func isBlank(line []byte) bool {
	return len(line) < ipc.MaxLine && len(bytes.Trim(line, " \t\r")) == 0
}

// paused tells that no more is read for now: too much waits for its turn, or to
// be read by the client.
func (c *Conn) readingPaused() bool {
	return c.queue.size() >= orDefault(c.server.MaxQueued, DefaultMaxQueued) || c.out.full()
}

// take begins the request in a line, or has it wait for its turn if it has not yet.
func (c *Conn) accept(line []byte, waited bool) {
	call := newCall(c)
	err := ipc.ParseRequest(line, &call.Request)
	if call.Tag == "" && !waited && (c.hasQueued() || c.inflight.untaggedPending()) {
		c.queue.push(line)
		call.free()
		return
	}
	c.startRequest(call, line, err)
}

// start begins a request, or refuses it: err is the parser's.
func (c *Conn) startRequest(call *Call, line []byte, err error) {
	c.fairness.begun++
	c.cork()
	if err == nil {
		err = c.admit(call)
	}
	if err != nil {
		c.recordRejected(call)
		c.reject(call.Tag, err)
		call.free()
		return
	}
	c.beginRequest(call, line)
}

func (c *Conn) admit(call *Call) error {
	if c.stopping.Load() {
		return &ipc.Error{Code: ipc.CodeShutdown, Text: ErrShutdown.Error()}
	}
	return c.inflight.add(call, orDefault(c.server.MaxInFlight, DefaultMaxInFlight))
}

// refuse answers what no session has seen.
func (c *Conn) reject(tag string, err error) {
	var r ipc.Response
	code, text := refusalOf(err)
	c.respond(nil, r.Err(tag, code, text))
}

// refusalOf is what a client is told: of an *Error, what it says.
func refusalOf(err error) (ipc.Code, string) {
	if refused, ok := errors.AsType[*ipc.Error](err); ok {
		return refused.Code, refused.Text
	}
	return ipc.CodeInternal, err.Error()
}

// answer sends the lines of a reply, and its last.
func (c *Conn) respond(lines []byte, r *ipc.Response) {
	if r.Kind == ipc.KindErr && c.server.Refused != nil {
		c.server.Refused(r.Code)
	}
	c.out.append(lines, r)
}

// begin hands a request to the session, and the rest of it to a worker.
func (c *Conn) beginRequest(call *Call, line []byte) {
	if hasLongAnswer(call.Verb) {
		c.fairness.setDue()
	}
	work, panicked := c.callBegin(call, line)
	if work == nil {
		call.finish(panicked)
		return
	}
	call.inWork = true
	c.fairness.extraCost += workCost
	c.inflight.workStarted()
	c.wg.Add(1)
	c.server.workers.run(job{c, call, work})
}

// hasLongAnswer reports whether an answer to verb may be long. Such an answer can take as much
// time as many others.
func hasLongAnswer(verb ipc.Verb) bool {
	return verb == ipc.VerbList || verb == ipc.VerbStatus || verb == ipc.VerbHelp
}

func (c *Conn) callBegin(call *Call, line []byte) (work Work, panicked bool) {
	defer c.recovered(&panicked)
	c.recordRequest(call, line)
	return c.session.Begin(call), false
}

// job is a Work that has begun. Conn.wg counts it.
type job struct {
	conn *Conn
	call *Call
	work Work
}

// run runs the rest of a request, on a worker.
func (j job) run() {
	j.call.finish(j.conn.callRun(j.work))
	j.conn.inflight.workEnded()
	j.conn.notify()
}

func (j job) done() { j.conn.wg.Done() }

// run is guard for a Work, without the allocation of a method value.
func (c *Conn) callRun(work Work) (panicked bool) {
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
	watchful := !c.reading || c.hasQueued() || c.stopping.Load() || c.out.full()
	switch {
	case c.wantsNews.Swap(watchful) != watchful: // look once more: news from before is not heard of
	case c.reading && !c.readingPaused():
		if !c.wasBlocked { // else what was in the way has just gone: there may be lines
			c.receive()
		}
	default:
		c.in.deadline = lineDeadline{}
		c.waitForNews()
	}
}

// news wakes the reading goroutine if it waits for a call or for the output.
func (c *Conn) notify() {
	if c.wantsNews.Load() {
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
	if c.in.hasPartialLine() && !c.waitForLineEnd() {
		return
	}
	c.received(c.in.receive(c.fairness.readSize()))
}

// received goes by how receiving ended.
func (c *Conn) received(err error) {
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.clearWake()
	default:
		c.endInput(err != io.EOF || c.in.closedByPeer())
	}
}

// sleep waits for news. It notices when the client closes meanwhile.
func (c *Conn) waitForNews() {
	if c.clientGone || !c.in.canWatch() {
		<-c.wakeup
		return
	}
	if err := c.in.watch(); errors.Is(err, os.ErrDeadlineExceeded) {
		c.clearWake()
	} else {
		c.setClientGone()
	}
}

// awake lets reading wait again after a wake.
func (c *Conn) clearWake() {
	c.nc.SetReadDeadline(time.Time{}) // fails only when closed: the next read tells
}

// lose ends what is done for a client that has closed.
func (c *Conn) setClientGone() {
	c.clientGone = true
	c.inflight.cancelAll(ErrGone)
}

// endInput ends reading. What was read is answered nevertheless.
func (c *Conn) endInput(gone bool) {
	c.reading = false
	if gone {
		c.setClientGone()
	}
	c.guard(func() { c.session.InputEnded(c.clientGone) })
}

// DefaultLineTimeout is in which a line that was begun has to end.
const DefaultLineTimeout = 30 * time.Second

// waitForEnd bounds the wait for the rest of a line, which may begin only where it is
// true. The line's time counts from the first such wait on, and anew after a pause
// in which nothing was read.
func (c *Conn) waitForLineEnd() bool {
	now := time.Now()
	wait := &c.in.deadline
	switch {
	case wait.due.IsZero():
		wait.due, wait.take = now.Add(c.server.lineTimeout()), now.Add(partialLineWait)
	case !now.Before(wait.due):
		c.onLineTimeout()
		return false
	case c.in.partial > 0 && !now.Before(wait.take):
		wait.take = now.Add(partialLineWait)
		c.takePartialLine()
		return false
	}
	c.nc.SetReadDeadline(c.in.nextDeadline()) // fails only when closed: the read tells
	select {
	case <-c.wakeup: // its deadline may have been replaced: look for what is new
		return false
	default:
		return true
	}
}

// lineIsDue ends the connection, unless it is this process that was late: it may
// have been stopped, or had no processor.
func (c *Conn) onLineTimeout() {
	c.clearWake()
	if !c.in.deadline.looked {
		c.in.deadline.looked = true
		if err, some := c.in.receiveNow(); some {
			c.received(err)
			return
		}
	}
	c.lineTimedOut.Store(true)
	c.quitting.Store(true)
	c.server.dropped(c, ErrLate)
	c.endInput(false)
	c.inflight.cancelAll(ErrLate)
}

// lateness is what a client is told, after all answers and before BYE.
func (s *Server) lineTimeoutError() error {
	return ipc.Errorf(ipc.CodeSyntax, "a line was begun and not ended within %v: end each with LF, at once; this connection ends", s.lineTimeout())
}

func (s *Server) lineTimeout() time.Duration { return orDefault(s.LineTimeout, DefaultLineTimeout) }

// keepPace books what was taken, and has the connection wait if that was too much
// beside others. It is woken by whatever wakes it else: then it is to look again.
func (c *Conn) waitForShare() {
	if c.fairness.charge() {
		return
	}
	c.wantsNews.Store(false) // no answer need wake it
	c.recordUnread()
	c.uncork()
	c.fairness.charge()
	c.fairness.slot = c.fairness.share.waitForSlot(c.wakeup)
	c.fairness.chargedAt = c.fairness.share.scheduler.now()
	if c.fairness.slot == nil {
		c.fairness.setDue()
	}
}

// isPaced is false of a connection that has to come to an end.
func (c *Conn) mayBeDelayed() bool { return !c.stopping.Load() && !c.freezing.Load() }

// waitToOpen is for the beginning of a connection.
func (c *Conn) waitBeforeOpen() {
	c.fairness.extraCost = openCost
	for c.fairness.setDue(); c.fairness.isDue() && c.mayBeDelayed(); {
		c.waitForShare()
	}
}
