package ipc

import (
	"errors"
	"time"
)

// DefaultLineTimeout is in which a line that was begun has to end.
const DefaultLineTimeout = 30 * time.Second

// ErrLate is why a connection is ended whose client has begun a line and not ended
// it, and the cause of the end of what it was waiting for.
var ErrLate = errors.New("the client does not end the line that it has begun")

// lineWait is how long the rest of a line is waited for.
type lineWait struct {
	due    time.Time // zero: it is not waited for yet
	looked bool      // once it was due, what had come already was taken
}

// waitForEnd bounds the wait for the rest of a line, which may begin only where it is
// true. The line's time counts from the first such wait on, and anew after a pause
// in which nothing was read.
func (c *Conn) waitForEnd() bool {
	now := time.Now()
	switch wait := &c.in.wait; {
	case wait.due.IsZero():
		wait.due = now.Add(c.server.lineTimeout())
	case !now.Before(wait.due):
		c.lineIsDue()
		return false
	}
	c.nc.SetReadDeadline(c.in.wait.due) // fails only when closed: the read tells
	select {
	case <-c.wakeup: // its deadline may have been replaced: look for what is new
		return false
	default:
		return true
	}
}

// lineIsDue ends the connection, unless it is this process that was late: it may
// have been stopped, or had no processor.
func (c *Conn) lineIsDue() {
	c.awake()
	if !c.in.wait.looked {
		c.in.wait.looked = true
		if err, some := c.in.receiveNow(); some {
			c.received(err)
			return
		}
	}
	c.late.Store(true)
	c.quitting.Store(true)
	c.server.dropped(c, ErrLate)
	c.endInput(false)
	c.calls.cancelAll(ErrLate)
}

// lateness is what a client is told, after all answers and before BYE.
func (s *Server) lateness() error {
	return refuse(CodeSyntax, "a line was begun and not ended within %v: end each with LF, at once; this connection ends", s.lineTimeout())
}

func (s *Server) lineTimeout() time.Duration { return orDefault(s.LineTimeout, DefaultLineTimeout) }
