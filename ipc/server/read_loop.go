package server

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// The reading goroutine of a connection runs the code in this file until input and requests have
// ended: it reads, begins requests in order, and waits.

// loop reads and begins requests until no more come and all have ended, or the connection is
// frozen.
func (c *Conn) loop() (isFrozen bool) {
	for c.reading || !c.allBegunAndDone() {
		switch {
		case c.freezing.Load() && !c.stopping.Load():
			if c.freezeHere() {
				return true
			}
		case c.fairness.isDue() && c.mayBeDelayed() && !c.out.isFull() &&
			(c.reading && c.in.unread() > 0 && !c.readingPaused() || c.hasQueued() && !c.inflight.untaggedPending()): // step may find something
			c.waitForShare()
		case !c.step():
			// If the next request has to wait for more than a moment. (A client may have read an answer,
			// and sent more, before the call has ended.)
			if c.queue.empty() || c.inflight.untaggedUnanswered() || c.out.isFull() {
				c.recordUnread()
			}
			c.uncork()
			c.fairness.pause()
			c.await()
			c.fairness.resume()
		}
	}
	// If bytes stayed in the socket, the client would see a reset instead of the end.
	if c.in.partial > 0 {
		c.in.takePartial()
	}
	c.in.from, c.in.earlier = c.in.to, nil
	c.in.returnBuffer()
	return false
}

// allBegunAndDone reports whether all requests that were read have begun, and no Work runs.
func (c *Conn) allBegunAndDone() bool { return !c.hasQueued() && c.inflight.runningWorks.Load() == 0 }

// hasQueued reports whether requests wait for their turn.
func (c *Conn) hasQueued() bool { return len(c.replays) > 0 || !c.queue.empty() }

// step does one thing without waiting. It returns false if there is nothing to do.
func (c *Conn) step() bool {
	switch {
	case c.hasQueued() && !c.inflight.untaggedPending() && !c.out.isFull():
		if len(c.replays) > 0 {
			c.nextReplay()
			break
		}
		line := c.queue.pop()
		if n := &c.recordedUnread; n.begunBytes < n.queuedBytes {
			n.begunBytes += len(line) + 1
		}
		c.beginOrQueue(line, true)
	case c.reading && c.isInputClosed.Load():
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

// nextLine handles the next line that was read. It returns false if there is none.
func (c *Conn) nextLine() bool {
	line, ok := c.in.line()
	if !ok {
		if c.stopping.Load() && c.allBegunAndDone() && len(c.in.earlier) == 0 {
			c.endInput(false)
			return true
		}
		return false
	}
	if n := &c.recordedUnread; n.unread > 0 || n.skipping {
		n.stale = true
	}
	if !isBlank(line) {
		c.beginOrQueue(line, false)
	}
	return true
}

// isBlank reports whether a line is ignored. A line that is too long is not, because only a part of
// it is known.
func isBlank(line []byte) bool {
	return len(line) < ipc.MaxLine && len(bytes.Trim(line, " \t\r")) == 0
}

// readingPaused reports whether reading is paused: too much is in the queue, or the client has too
// much to read.
func (c *Conn) readingPaused() bool {
	return c.queue.size() >= orDefault(c.server.MaxQueued, DefaultMaxQueued) || c.out.isFull()
}

// beginOrQueue begins the request in a line, or queues it if its turn has not come.
func (c *Conn) beginOrQueue(line []byte, waited bool) {
	call := newCall(c)
	err := ipc.ParseRequest(line, &call.Request)
	if call.Tag == "" && !waited && (c.hasQueued() || c.inflight.untaggedPending()) {
		c.queue.push(line)
		call.free()
		return
	}
	c.startRequest(call, line, err)
}

// startRequest begins a request, or rejects it. err is the parser's error, or nil.
func (c *Conn) startRequest(call *Call, line []byte, err error) {
	c.fairness.begunLines++
	c.cork()
	switch {
	case err != nil:
	case c.stopping.Load():
		err = &ipc.Error{Code: ipc.CodeShutdown, Text: ErrShutdown.Error()}
	default:
		err = c.inflight.add(call, orDefault(c.server.MaxInFlight, DefaultMaxInFlight))
	}
	if err != nil {
		if rest := c.unreadAfterNextLine(); rest != nil {
			c.guard(func() { c.journal.RecordUnread(*rest) })
		}
		c.recordAnswer(call)
		c.reject(call.Tag, err)
		call.free()
		return
	}
	c.beginRequest(call, line)
}

// reject answers a request that the session does not see.
func (c *Conn) reject(tag string, err error) {
	var r ipc.Response
	code, text := refusalOf(err)
	c.respond(nil, r.Err(tag, code, text))
}

// refusalOf returns the code and text of the answer. An *ipc.Error has its own.
func refusalOf(err error) (ipc.Code, string) {
	if refused, ok := errors.AsType[*ipc.Error](err); ok {
		return refused.Code, refused.Text
	}
	return ipc.CodeInternal, err.Error()
}

// respond sends a reply: lines and then r.
func (c *Conn) respond(lines []byte, r *ipc.Response) {
	if r.Kind == ipc.KindErr && c.server.Refused != nil {
		c.server.Refused(r.Code)
	}
	c.out.append(lines, r)
}

// beginRequest hands a request to the session, and its Work to a worker.
func (c *Conn) beginRequest(call *Call, line []byte) {
	if call.Verb == ipc.VerbList || call.Verb == ipc.VerbStatus || call.Verb == ipc.VerbHelp {
		c.fairness.setDue() // the answer may be long, and cost as much as many others
	}
	work, panicked := c.callBegin(call, line)
	if work == nil {
		call.finish(panicked)
		return
	}
	call.inWork = true
	c.fairness.extraCost += workCost
	c.inflight.runningWorks.Add(1)
	c.wg.Add(1)
	c.server.workers.run(job{c, call, work})
}

func (c *Conn) callBegin(call *Call, line []byte) (work Work, panicked bool) {
	defer c.recovered(&panicked)
	c.recordRequest(call, line)
	return c.session.Begin(call), false
}

// job is a Work that runs. Conn.wg counts it.
type job struct {
	conn *Conn
	call *Call
	work Work
}

// run runs the rest of a request, on a worker.
func (j job) run() {
	j.call.finish(j.conn.callRun(j.work))
	j.conn.inflight.runningWorks.Add(-1)
	j.conn.notify()
}

func (j job) done() { j.conn.wg.Done() }

// callRun is guard for a Work; it avoids the allocation of a method value.
func (c *Conn) callRun(work Work) (panicked bool) {
	defer c.recovered(&panicked)
	work.Run()
	return false
}

// cork delays writing, so that the answers to all lines that have come are sent together.
func (c *Conn) cork() {
	if c.out.size.Load() >= flushSize {
		c.uncork()
	}
	if !c.isCorked {
		c.isCorked = true
		c.out.cork()
	}
}

func (c *Conn) uncork() {
	if c.isCorked {
		c.isCorked = false
		c.out.uncork()
	}
}

// await waits until the reading goroutine has something to do.
func (c *Conn) await() {
	watchful := !c.reading || c.hasQueued() || c.stopping.Load() || c.out.isFull()
	switch {
	case c.isWaiting.Swap(watchful) != watchful: // look once more: earlier news did not wake this goroutine
	case c.reading && !c.readingPaused():
		if !c.wasBlocked { // otherwise the block has just ended, and there may be lines
			c.receive()
		}
	default:
		c.in.deadline = lineDeadline{}
		c.waitForWakeup()
	}
}

// notify wakes the reading goroutine if it waits for a call or for the output.
func (c *Conn) notify() {
	if c.isWaiting.Load() {
		c.wake()
	}
}

// wake ends the current or next wait of the reading goroutine.
func (c *Conn) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
	c.nc.SetReadDeadline(longAgo) // fails only if closed, which wakes as well
}

// receive waits for input. If a line has begun, it waits only until the line times out.
func (c *Conn) receive() {
	if c.in.hasPartialLine() && !c.waitForLineEnd() {
		return
	}
	c.received(c.in.receive(c.fairness.readSize()))
}

// received handles the result of receiving.
func (c *Conn) received(err error) {
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.clearWake()
	default:
		c.endInput(err != io.EOF || c.in.closedByPeer())
	}
}

// waitForWakeup waits for notify or wake. It also notices if the client closes.
func (c *Conn) waitForWakeup() {
	if c.isClientGone || c.raw == nil {
		<-c.wakeup
		return
	}
	// This reads nothing, and waits until the peer has closed both directions or wake comes.
	if err := c.raw.Read(c.in.tryWatch); errors.Is(err, os.ErrDeadlineExceeded) {
		c.clearWake()
	} else {
		c.setClientGone()
	}
}

// clearWake lets reading wait again after wake.
func (c *Conn) clearWake() {
	c.nc.SetReadDeadline(time.Time{}) // fails only if closed; the next read reports that
}

// setClientGone cancels all calls of a client that has closed.
func (c *Conn) setClientGone() {
	c.isClientGone = true
	c.inflight.cancelAll(ErrGone)
}

// endInput ends reading. Requests that were read are still answered. If the connection was cut
// meanwhile, the client counts as gone too: the reading goroutine may not have seen the end yet.
func (c *Conn) endInput(isClientGone bool) {
	c.reading = false
	if isClientGone || c.out.failure() != nil {
		c.setClientGone()
	}
	c.guard(func() { c.session.InputEnded(c.isClientGone) })
}

// DefaultLineTimeout is the time between the first byte and the end of a line.
const DefaultLineTimeout = 30 * time.Second

// waitForLineEnd prepares to wait for the rest of a line, and returns false if there is something
// else to do first. The time counts from the first such wait, and starts anew after a pause in
// reading.
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
	next := wait.due
	if c.in.partial > 0 && wait.take.Before(next) {
		next = wait.take
	}
	c.nc.SetReadDeadline(next) // fails only if closed; the read reports that
	select {
	case <-c.wakeup: // its deadline may have been replaced, so look for news
		return false
	default:
		return true
	}
}

// onLineTimeout ends the connection. But this process may have been stopped, or had no processor.
// So it first reads the bytes that have already come.
func (c *Conn) onLineTimeout() {
	c.clearWake()
	if !c.in.deadline.recheckedAfterDue {
		c.in.deadline.recheckedAfterDue = true
		if err, some := c.in.receiveNow(); some {
			c.received(err)
			return
		}
	}
	c.lineTimedOut.Store(true)
	c.isInputClosed.Store(true)
	c.server.dropped(c, ErrLate)
	c.endInput(false)
	c.inflight.cancelAll(ErrLate)
}

func (s *Server) lineTimeout() time.Duration { return orDefault(s.LineTimeout, DefaultLineTimeout) }

// waitForShare charges costs, and delays the connection if its user took too much while other users
// are active. wake ends the wait early; then the costs are checked again.
func (c *Conn) waitForShare() {
	if c.fairness.charge() {
		return
	}
	c.isWaiting.Store(false) // no answer has to wake it
	c.recordUnread()
	c.uncork()
	c.fairness.charge()
	c.fairness.slot = c.fairness.share.waitForSlot(c.wakeup)
	c.fairness.chargedAt = c.fairness.share.scheduler.now()
	if c.fairness.slot == nil {
		c.fairness.setDue()
	}
}

// mayBeDelayed returns false if the connection has to end.
func (c *Conn) mayBeDelayed() bool { return !c.stopping.Load() && !c.freezing.Load() }
