package redis

import (
	"fmt"
	"net"
	"sync/atomic"
)

// guardedConn is a connection to a node of which the driver gets to see nothing
// that would hurt it: see respScanner. Nor answers that nobody asked for, which it
// would take for those to the next question, or crash of where none is asked; nor
// more than is good for the memory of this process before the next question.
type guardedConn struct {
	net.Conn
	questions respScanner // of who writes, where nobody announces
	announced atomic.Bool // who writes says what he is about to ask: see announce
	asked     atomic.Int64
	heard     atomic.Bool // the node has said something

	answers respScanner // of who reads, as are those below
	trip    int64       // how many questions there were when the last one was seen
	bytes   int64       // that were read since then
	items   int64       // how many elements there had been by then
	failed  error
}

// What a node may say between two questions: many answers come to one group.
const (
	tripMaxBytes = 2 * respMaxBytes
	tripMaxItems = 2 * respMaxItems
)

// AnswerError is what a node sent that is no answer of a Redis that is well, so
// that the connection was ended.
type AnswerError struct{ Err error }

func (e *AnswerError) Error() string {
	return fmt.Sprintf("it does not talk as Redis does: it sent %v; is that Redis 7 or later, and nothing between?", e.Err)
}

func (e *AnswerError) Unwrap() error { return e.Err }

// announce counts questions that are about to be written. From the first call on,
// which comes between two questions, all are announced: counting them saves reading
// what may be thousands of bytes.
func (c *guardedConn) announce(questions int) {
	c.announced.Store(true)
	c.asked.Add(int64(questions))
}

// Write counts the questions before the node has them. One that has hung up, and of
// which nothing was heard yet, may have said why (an alert of TLS, an error of Redis):
// the driver, which reads nothing after an error, hears it from Read, or that it is over.
func (c *guardedConn) Write(b []byte) (int, error) {
	if c.announced.Load() {
		return c.Conn.Write(b)
	}
	c.questions.size = 0 // scripts are as long as they are
	if err := c.questions.scan(b); err != nil {
		return 0, fmt.Errorf("a defect in redlockd: it would have asked %w", err)
	}
	c.asked.Store(c.questions.whole)
	n, err := c.Conn.Write(b)
	if !c.heard.Load() && hasHungUp(err) {
		return len(b), nil
	}
	return n, err
}

// Read fails for good where the node sends what it must not.
func (c *guardedConn) Read(b []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	n, err := c.Conn.Read(b)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	if fault := c.check(b[:n]); fault != nil {
		c.failed = &AnswerError{fault}
		return 0, c.failed
	}
	return n, err
}

func (c *guardedConn) check(b []byte) error {
	asked := c.asked.Load()
	if asked != c.trip {
		c.trip, c.bytes, c.items = asked, 0, c.answers.all
	}
	if err := c.answers.scan(b); err != nil {
		return err
	}
	c.bytes += int64(len(b))
	switch {
	case c.answers.begun > asked:
		return fmt.Errorf("an answer that nobody asked for")
	case c.bytes > tripMaxBytes:
		return fmt.Errorf("more than %d bytes at once", tripMaxBytes)
	case c.answers.all-c.items > tripMaxItems:
		return fmt.Errorf("more than %d parts at once", tripMaxItems)
	}
	return nil
}
