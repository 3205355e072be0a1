package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

// future is the result of a call that runs on its own goroutine.
type future[T any] chan outcome[T]

type outcome[T any] struct {
	value T
	err   error
}

func async[T any](f func() (T, error)) future[T] {
	result := make(future[T], 1)
	go func() {
		value, err := f()
		result <- outcome[T]{value, err}
	}()
	return result
}

// wait waits for the result. It can be called once.
func (f future[T]) wait() (T, error) {
	o := <-f
	return o.value, o.err
}

func (f future[T]) must(t testing.TB) T {
	t.Helper()
	value, err := f.wait()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// pending reports whether there is no result yet. Call synctest.Wait first.
func (f future[T]) pending() bool { return len(f) == 0 }

func lockErr(_ *Lease, err error) error { return err }

func want(t testing.TB, what string, got, wanted error) {
	t.Helper()
	if !errors.Is(got, wanted) {
		t.Errorf("%s: error %v, want one that matches %v", what, got, wanted)
	}
}

// questions are the queries about a lease, by verb.
var questions = map[string]func(context.Context, *Lease) error{
	"CHECK":  func(ctx context.Context, l *Lease) error { return l.Check(ctx) },
	"EXTEND": func(ctx context.Context, l *Lease) error { return l.Extend(ctx, 0) },
	"BEAT":   func(ctx context.Context, l *Lease) error { return l.Beat(ctx) },
}

// endCause returns the cause of a context's end, or nil.
func endCause(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// nothingLeft checks that the client knows no lease and no request in flight.
func nothingLeft(t testing.TB, c *Client) {
	t.Helper()
	if n := len(c.allLeases()); n > 0 {
		t.Errorf("%d leases are left", n)
	}
	if n, m, o := len(c.calls.lockPermits), len(c.calls.resumePermits), len(c.calls.otherPermits); n+m+o > 0 {
		t.Errorf("%d locks, %d RESUMEs and %d other requests are left in flight", n, m, o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, cl := range c.calls.calls {
		if cl != nil && cl.tag == c.calls.tags[n] && cl.state != stateIdle {
			t.Errorf("request %s is left in state %d", cl.tag, cl.state)
		}
	}
}

// current returns the connection that is in use, or nil.
func (c *Client) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}

// greet accepts a connection and answers HELLO.
func greet(l net.Listener) (net.Conn, error) {
	conn, err := l.Accept()
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var req ipc.Request
	if err := ipc.ParseRequest(line[:len(line)-1], &req); err != nil {
		return nil, err
	}
	_, err = conn.Write([]byte("@" + req.Tag + " OK version=1\n"))
	return conn, err
}
