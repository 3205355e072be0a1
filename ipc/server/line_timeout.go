package server

import (
	"errors"
	"github.com/redlockd/redlockd/ipc"
	"time"
)

// DefaultLineTimeout is in which a line that was begun has to end.
const DefaultLineTimeout = 30 * time.Second

// ErrLate is why a connection is ended whose client has begun a line and not ended
// it, and the cause of the end of what it was waiting for.
var ErrLate = errors.New("the client does not end the line that it has begun")

// leftFor is how long the beginning of a line is left in the socket, where it takes room
// far beyond its bytes: who sends a byte at a time cannot send hundreds.
const partialLineWait = 20 * time.Millisecond

// lineWait is how long the rest of a line is waited for.
type lineDeadline struct {
	due    time.Time // zero: it is not waited for yet
	take   time.Time // what was left in the socket by then is taken
	looked bool      // once it was due, what had come already was taken
}

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

// waitUntil is the next instant at which something is to be done about a line that is
// begun.
func (in *input) nextDeadline() time.Time {
	if in.partial > 0 && in.deadline.take.Before(in.deadline.due) {
		return in.deadline.take
	}
	return in.deadline.due
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
