package redis

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// guardedConn is a connection to a node that keeps harmful input from the driver: see
// respScanner. It rejects answers to no question. The driver would take such an answer for the
// answer to the next question, or panic if it waits for none. It also rejects more data between
// two questions than the memory of this process should hold.
type guardedConn struct {
	net.Conn
	questions   respScanner // of the writer, if it does not announce its questions
	announced   atomic.Bool // the writer announces its questions: see announce
	asked       atomic.Int64
	awaited     atomic.Int64 // the first of the questions asked: the driver has waited for their replies
	allowed     atomic.Int64 // how often replies were awaited
	hasReceived atomic.Bool  // the node has sent something
	ended       atomic.Bool  // the driver gets nothing more: see end

	mu      sync.Mutex // guards what follows, up to written; no other mutex is taken inside it
	ahead   bool       // the driver is about to write what was written already: see expectWritten
	written []byte     // the part that the driver has not repeated yet

	answers   respScanner // of the reader, like the fields below
	allowance int64       // the value of allowed when the last reply was read
	size      int64       // bytes that were read since then
	items     int64       // elements that had been read by then
	surplus   []byte      // bytes that were read, but that the driver does not wait for yet
	failed    error
}

// These are the limits of what a node may send between two questions: many answers to one group.
const (
	tripMaxBytes = 2 * respMaxBytes
	tripMaxItems = 2 * respMaxItems
)

// AnswerError is the error of invalid data that a node sent. The connection was ended because of
// it.
type AnswerError struct{ Err error }

func (e *AnswerError) Error() string {
	return fmt.Sprintf("it does not speak the protocol of Redis: it sent %v; is it Redis 7 or later, without a proxy between?", e.Err)
}

func (e *AnswerError) Unwrap() error { return e.Err }

// announce counts questions that are about to be written. From the first call on, which comes
// between two questions, all questions are announced. So guardedConn need not parse what may be
// thousands of bytes.
func (c *guardedConn) announce(questions int) {
	c.announced.Store(true)
	c.asked.Add(int64(questions))
}

// awaitReplies lets the driver read the replies to a group of this many questions, and allows the
// node the maximum answer of one group.
func (c *guardedConn) awaitReplies(questions int) {
	c.awaited.Add(int64(questions))
	c.allowed.Add(1)
}

// writeAhead writes a group that the driver does not know yet, by the deadline. It may run beside
// Read.
func (c *guardedConn) writeAhead(b []byte, deadline time.Time) error {
	if err := c.Conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.Conn.Write(b)
	return err
}

// expectWritten makes Write expect the bytes of writeAhead, because the driver writes the same
// bytes before it reads the replies.
func (c *guardedConn) expectWritten(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead, c.written = true, b
}

// endWritten ends what expectWritten began. It fails if the driver wrote less.
func (c *guardedConn) endWritten() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := len(c.written)
	c.ahead, c.written = false, nil
	if left > 0 {
		return fmt.Errorf("%w: %d bytes are left", errNotRepeated, left)
	}
	return nil
}

var errNotRepeated = errors.New("a defect in redlockd: the driver would write other bytes than were sent")

// repeat compares what the driver writes with what was written ahead. ahead is false if nothing
// was.
func (c *guardedConn) repeat(b []byte) (ahead bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ahead {
		return false, nil
	}
	if !bytes.HasPrefix(c.written, b) {
		return true, errNotRepeated
	}
	c.written = c.written[len(b):]
	return true, nil
}

// SetDeadline leaves the deadline of writes to writeAhead while the driver only reads.
func (c *guardedConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	ahead := c.ahead
	c.mu.Unlock()
	if ahead {
		return c.Conn.SetReadDeadline(t)
	}
	return c.Conn.SetDeadline(t)
}

// Write counts the questions before the node has them. If a node hung up before anything was read
// from it, it may have sent the reason (an alert of TLS, an error of Redis). The driver reads
// nothing after an error of Write, so Write returns none, and the driver gets the reason, or the
// end, from Read.
func (c *guardedConn) Write(b []byte) (int, error) {
	if ahead, err := c.repeat(b); ahead {
		if err != nil {
			return 0, err
		}
		return len(b), nil
	}
	if c.announced.Load() {
		return c.Conn.Write(b)
	}
	c.questions.size = 0 // scripts may be longer than an answer
	if err := c.questions.scan(b); err != nil {
		return 0, fmt.Errorf("a defect in redlockd: it would have asked %w", err)
	}
	c.awaited.Store(c.questions.wholeAnswers) // before asked: Read may run beside Write, and must not see a group in progress
	c.asked.Store(c.questions.wholeAnswers)
	c.allowed.Add(1)
	n, err := c.Conn.Write(b)
	if !c.hasReceived.Load() && hasHungUp(err) {
		return len(b), nil
	}
	return n, err
}

// Read fails for good if the node sends what it must not send. It holds back the replies to
// groups that the driver does not wait for yet: the driver would panic because of them when it is
// closed.
func (c *guardedConn) Read(b []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	if c.ended.Load() || c.isAhead() {
		return 0, errDialedBefore // only a driver that was closed reads now
	}
	n, err := c.readMore(b)
	if n > 0 && !c.hasReceived.Load() {
		c.hasReceived.Store(true)
	}
	taken, fault := c.check(b[:n])
	if fault != nil {
		c.failed = &AnswerError{fault}
		return 0, c.failed
	}
	c.surplus = append(c.surplus, b[taken:n]...)
	return taken, err
}

// end keeps received data that was not read from the driver. It is called before the driver is
// closed. The closed driver reads on, even replies to a group that it has just refused to send,
// and would panic because of them.
func (c *guardedConn) end() { c.ended.Store(true) }

// isAhead reports whether groups are in progress, and the driver has all replies that it waits
// for.
func (c *guardedConn) isAhead() bool {
	awaited := c.awaited.Load()
	return c.answers.wholeAnswers == awaited && c.asked.Load() > awaited
}

// readMore reads what was held back, or else from the connection.
func (c *guardedConn) readMore(b []byte) (int, error) {
	if len(c.surplus) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.surplus)
	c.surplus = append(c.surplus[:0], c.surplus[n:]...)
	return n, nil
}

// check checks the bytes that the driver may get now, and returns their number.
func (c *guardedConn) check(b []byte) (taken int, err error) {
	asked, awaited := c.asked.Load(), c.awaited.Load()
	if allowed := c.allowed.Load(); allowed != c.allowance {
		c.allowance, c.size, c.items = allowed, 0, c.answers.allItems
	}
	taken = len(b)
	if asked > awaited {
		taken, err = c.answers.scanUntil(b, awaited)
	} else {
		err = c.answers.scan(b)
	}
	if err != nil {
		return 0, err
	}
	c.size += int64(taken)
	switch {
	case c.answers.begunAnswers > asked:
		return 0, fmt.Errorf("an answer without a request")
	case c.size > tripMaxBytes:
		return 0, fmt.Errorf("more than %d bytes at once", tripMaxBytes)
	case c.answers.allItems-c.items > tripMaxItems:
		return 0, fmt.Errorf("more than %d parts at once", tripMaxItems)
	}
	return taken, nil
}
