package redlock_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// A real server behind a network with a round trip of 80 ms is down at a node_timeout of 50 ms, and
// the reason says that it is far. It is ready with the node_timeout that the reason proposes.
func TestRealFarNode(t *testing.T) {
	s := newSite(t, 1)
	behind := func(timeout time.Duration) func(*redlock.Options) {
		return func(o *redlock.Options) {
			o.NodeTimeout = timeout
			o.Nodes = []redlock.Node{redlock.RedisNode(redlock.NodeOptions{
				Name: "a", Address: s.all[0].Addr(),
				Dial: func(ctx context.Context) (net.Conn, error) { return dialDistant(ctx, s.all[0].Addr(), 80*ms) },
			})}
		}
	}
	h := s.openHost(everywhere, behind(50*ms))
	h.eventually("the reason names node_timeout", func() bool {
		node := h.of("a")
		return node.State == redlock.NodeDown && node.Reason != nil && strings.Contains(node.Reason.Error(), "but node_timeout is 50ms: raise node_timeout to at least ")
	})
	s.newHost(behind(10 * time.Second))
}

// distantConn is a connection on which what is written arrives late.
type distantConn struct {
	net.Conn
	trip    time.Duration
	written chan lateWrite
	stop    context.CancelFunc
}

type lateWrite struct {
	at   time.Time
	data []byte
}

// dialDistant connects through a network with the given round trip.
func dialDistant(ctx context.Context, address string, trip time.Duration) (net.Conn, error) {
	select {
	case <-time.After(trip):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn, err := dialAddress(ctx, address)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.Background())
	c := &distantConn{Conn: conn, trip: trip, written: make(chan lateWrite, 1024), stop: stop}
	go c.deliver(life)
	return c, nil
}

// deliver writes what is due until the connection is closed.
func (c *distantConn) deliver(life context.Context) {
	for {
		select {
		case late := <-c.written:
			time.Sleep(time.Until(late.at)) // the network
			c.Conn.Write(late.data)
		case <-life.Done():
			return
		}
	}
}

func (c *distantConn) Write(data []byte) (int, error) {
	c.written <- lateWrite{time.Now().Add(c.trip), slices.Clone(data)}
	return len(data), nil
}

func (c *distantConn) Close() error {
	c.stop()
	return c.Conn.Close()
}
