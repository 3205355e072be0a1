package redlocktest

import (
	"context"
	"sync"

	"github.com/redlockd/redlockd/redlock"
)

// WithDo returns conn with another Do. Send and Receive use it as well: each Receive executes the
// oldest group that was sent.
func WithDo(conn redlock.Conn, do func(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error) redlock.Conn {
	return &doConn{Conn: conn, do: do}
}

type doConn struct {
	redlock.Conn
	do func(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error

	mu   sync.Mutex // guards sent; not held during any call
	sent [][]redlock.Command
}

func (c *doConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	return c.do(ctx, group, replies)
}

func (c *doConn) Send(_ context.Context, group []redlock.Command) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, group)
	return nil
}

func (c *doConn) Receive(ctx context.Context, replies []redlock.Reply) error {
	return c.do(ctx, c.oldest(), replies)
}

func (c *doConn) oldest() []redlock.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := c.sent[0]
	c.sent = c.sent[1:]
	return group
}
