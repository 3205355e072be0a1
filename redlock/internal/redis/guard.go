package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// guardedConn is the connection that the driver gets. It keeps harmful input from the driver, which
// would panic or allocate any amount of memory: the driver gets only whole messages that a
// replyReader has accepted, and no answer to no question. The driver would take such an answer for
// the answer to the next question, or panic if it waits for none. It also panics if SUBSCRIBE is not
// answered by a push, or another question is.
type guardedConn struct {
	net.Conn
	connectTime time.Duration // how long the network took to connect: about a round trip
	password    string        // with which the driver logs in
	isDialed    atomic.Bool   // the driver has the connection
	written     bytes.Buffer  // by the driver
	questions   *replyReader  // of written
	hasReceived atomic.Bool   // the node has sent something

	mu    sync.Mutex // guards what follows
	asked int        // questions
	open  []bool     // of the questions without an answer, in order: it is SUBSCRIBE

	// Only the driver's reader uses the fields below.
	seen       bytes.Buffer // what answers has read from Conn, without what was passed on
	answers    *replyReader
	groupBegan int    // the value of asked when the group of answers began
	passedOn   []byte // the part of the message that the driver has not read yet
	failed     error
}

func newGuardedConn(conn net.Conn, connectTime time.Duration, password string) *guardedConn {
	c := &guardedConn{Conn: conn, connectTime: connectTime, password: password}
	c.questions = newReplyReader(&c.written)
	c.answers = newReplyReader(io.TeeReader(conn, &c.seen))
	return c
}

var errDialedBefore = errors.New("the connection is over")

// dialOnce gives the driver the connection once. The driver would silently reconnect when the
// connection breaks. Then nobody would learn that messages were missed.
func (c *guardedConn) dialOnce(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	if c.isDialed.Swap(true) {
		return nil, errDialedBefore
	}
	return c, nil
}

// Write counts the questions before the node has them. (The driver's buffer is larger than any of its
// commands, so it writes whole ones.) If a node hung up before anything was read from it, it may have
// sent the reason (an alert of TLS, an error of Redis). The driver reads nothing after an error of
// Write, so Write returns none, and the driver gets the reason, or the end, from Read.
func (c *guardedConn) Write(b []byte) (int, error) {
	c.written.Write(b)
	c.questions.beginGroup()
	for c.written.Len()+c.questions.in.Buffered() > 0 {
		var question Reply
		if _, err := c.questions.read(&question); err != nil {
			return 0, fmt.Errorf("a defect in redlockd: it would have asked %w", err)
		}
		c.mu.Lock()
		c.asked++
		c.open = append(c.open, len(question.Array) > 0 && question.Array[0].Str == "SUBSCRIBE")
		c.mu.Unlock()
	}
	n, err := c.Conn.Write(b)
	if !c.hasReceived.Load() && hasHungUp(err) {
		return len(b), nil
	}
	return n, err
}

// Read fails for good if the node sends what it must not send.
func (c *guardedConn) Read(b []byte) (int, error) {
	if len(c.passedOn) == 0 && c.failed == nil {
		c.failed = c.readMessage()
	}
	if c.failed != nil {
		return 0, c.failed
	}
	n := copy(b, c.passedOn)
	c.passedOn = c.passedOn[n:]
	return n, nil
}

func (c *guardedConn) readMessage() error {
	c.mu.Lock()
	asked := c.asked
	c.mu.Unlock()
	if asked != c.groupBegan {
		c.groupBegan = asked
		c.answers.beginGroup()
	}
	var message Reply
	topic, err := c.answers.read(&message)
	if c.answers.size > 0 {
		c.hasReceived.Store(true)
	}
	if err == nil && topic != "message" {
		err = c.checkAnswer(&message, topic == "subscribe")
	}
	if err != nil {
		return err
	}
	c.passedOn = c.seen.Next(c.answers.size)
	if message.Err != nil { // the driver cuts off a leading ERR: without it, the next word would look like the kind
		c.passedOn = append([]byte("-ERR "), c.passedOn[1:]...)
	}
	return nil
}

// checkAnswer checks that the oldest question may have this answer.
func (c *guardedConn) checkAnswer(answer *Reply, confirms bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == 0 {
		return errUnasked
	}
	subscribes := c.open[0]
	c.open = c.open[1:]
	switch {
	case confirms && !subscribes:
		return errNotAsked("subscribe")
	case subscribes && !confirms && answer.Err == nil:
		return invalid("no confirmation in answer to SUBSCRIBE")
	}
	return nil
}

// detach returns the network connection, and leaves the driver, which has logged in, with one that is
// closed. It fails if the node has sent more than the driver has asked for.
func (c *guardedConn) detach() (net.Conn, error) {
	conn := c.Conn
	closed, _ := net.Pipe()
	closed.Close()
	c.Conn, c.failed = closed, net.ErrClosed
	if c.answers.in.Buffered() > 0 {
		return conn, errUnasked
	}
	return conn, nil
}
