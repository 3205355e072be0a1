package redis

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// redisConn is a connection on which the driver has logged in. From then on redisConn writes the
// commands and reads the replies itself: the driver has no call that writes a group without waiting
// for the replies. Its own pipeline passes each group through four goroutines, and does not report
// when a group has its position in the order.
type redisConn struct {
	conn        net.Conn
	connectTime time.Duration

	out  []byte       // only Send uses it
	sent atomic.Int64 // commands

	in       *replyReader // only Receive uses it, and answered
	answered int64        // commands
}

// ConnectTime returns how long the network took to connect: about a round trip.
func (c *redisConn) ConnectTime() time.Duration { return c.connectTime }

func (c *redisConn) Do(ctx context.Context, group []Command, replies []Reply) error {
	if err := c.Send(ctx, group); err != nil {
		return err
	}
	return c.Receive(ctx, replies)
}

// maxSpare is the largest buffer that is kept, enough for an ordinary group.
const maxSpare = 64 << 10

// Send returns when the operating system has accepted all bytes of the group.
func (c *redisConn) Send(ctx context.Context, group []Command) error {
	if err := ctx.Err(); err != nil {
		return c.end(err)
	}
	b := c.out[:0]
	for _, command := range group {
		b = appendCommand(b, command)
	}
	if c.out = b; cap(b) > maxSpare {
		c.out = nil
	}
	c.sent.Add(int64(len(group)))
	if err := c.conn.SetWriteDeadline(deadlineOf(ctx)); err != nil {
		return c.end(err)
	}
	if _, err := c.conn.Write(b); err != nil {
		return c.end(err)
	}
	return nil
}

var errNothingSent = errors.New("a defect in redlockd: no group is in progress")

// Receive rejects pushes: nothing is subscribed to on this connection.
func (c *redisConn) Receive(ctx context.Context, replies []Reply) error {
	if err := ctx.Err(); err != nil {
		return c.end(err)
	}
	c.answered += int64(len(replies))
	if c.answered > c.sent.Load() {
		return c.end(errNothingSent)
	}
	if err := c.conn.SetReadDeadline(deadlineOf(ctx)); err != nil {
		return c.end(err)
	}
	c.in.beginGroup()
	for i := range replies {
		topic, err := c.in.read(&replies[i])
		if err == nil && topic != "" {
			err = errNotAsked(topic)
		}
		if err != nil {
			return c.end(err)
		}
	}
	if c.in.in.Buffered() > 0 && c.answered == c.sent.Load() {
		return c.end(errUnasked)
	}
	return nil
}

// end ends the connection because of an error, which it explains.
func (c *redisConn) end(err error) error {
	c.Close()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return explainHangUp(err)
}

func (c *redisConn) Close() { c.conn.Close() }

const longestRoundTrip = time.Minute

func deadlineOf(ctx context.Context) time.Time {
	if deadline, ok := ctx.Deadline(); ok {
		return deadline
	}
	return time.Now().Add(longestRoundTrip)
}

// appendCommand appends a command in the Redis protocol.
func appendCommand(b []byte, command Command) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(len(command)), 10)
	b = append(b, '\r', '\n')
	for _, word := range command {
		b = append(b, '$')
		b = strconv.AppendInt(b, int64(len(word)), 10)
		b = append(b, '\r', '\n')
		b = append(b, word...)
		b = append(b, '\r', '\n')
	}
	return b
}
