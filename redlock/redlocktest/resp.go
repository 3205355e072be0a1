package redlocktest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// respConn implements the Redis protocol (RESP2) in the simplest way. Tests inspect servers with
// it. It shares no code with the driver under test.
type respConn struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

// respNode returns the server at addr as a node that uses respConn.
func respNode(name, addr string) redlock.Node {
	return redlock.Node{Name: name, Address: addr, Dial: func(ctx context.Context) (redlock.Conn, error) {
		return dialRESP(ctx, addr)
	}}
}

func dialRESP(ctx context.Context, addr string) (redlock.Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &respConn{conn: conn, in: bufio.NewReader(conn)}, nil
}

func (c *respConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	if err := c.Send(ctx, group); err != nil {
		return err
	}
	return c.Receive(ctx, replies)
}

func (c *respConn) Send(ctx context.Context, group []redlock.Command) error {
	return c.until(ctx, func() error {
		c.out = c.out[:0]
		for _, command := range group {
			c.out = appendCommand(c.out, command)
		}
		_, err := c.conn.Write(c.out)
		return err
	})
}

func (c *respConn) Receive(ctx context.Context, replies []redlock.Reply) error {
	return c.until(ctx, func() (err error) {
		for i := range replies {
			if replies[i], err = readReply(c.in); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *respConn) Close() { c.conn.Close() }

// until runs do, and closes the connection if ctx ends first.
func (c *respConn) until(ctx context.Context, do func() error) error {
	stop := context.AfterFunc(ctx, c.Close)
	defer stop()
	err := do()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func appendCommand(b []byte, command redlock.Command) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(command))
	for _, word := range command {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b
}

func readReply(in *bufio.Reader) (redlock.Reply, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return redlock.Reply{}, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return redlock.Reply{}, fmt.Errorf("an empty line where a reply should begin")
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+':
		return redlock.Reply{Str: rest}, nil
	case '-':
		return redlock.Reply{Err: redlock.ServerError(rest)}, nil
	case ':', '$', '*':
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return redlock.Reply{}, err
		}
		return readSized(in, kind, n)
	}
	return redlock.Reply{}, fmt.Errorf("a reply that begins with %q", line[0])
}

// readSized reads what follows a number: nothing, that many bytes, or that many replies.
func readSized(in *bufio.Reader, kind byte, n int64) (redlock.Reply, error) {
	switch {
	case kind == ':':
		return redlock.Reply{Int: n}, nil
	case n < 0:
		return redlock.Reply{Nil: true}, nil
	case kind == '$':
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		return redlock.Reply{Str: string(text[:n])}, err
	}
	items := make([]redlock.Reply, n)
	for i := range items {
		item, err := readReply(in)
		if err != nil {
			return redlock.Reply{}, err
		}
		items[i] = item
	}
	return redlock.Reply{Array: items}, nil
}

// These functions make the replies that tests expect.
var (
	number = simredis.Number
	text   = simredis.Text
	list   = simredis.List
	null   = simredis.Null
	failed = simredis.Failed
)
