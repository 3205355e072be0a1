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
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.core.leases); n > 0 {
		t.Errorf("%d leases are left", n)
	}
	if c.core.busy != [roomCount]int{} {
		t.Errorf("%v locks, RESUMEs and other requests are left in flight", c.core.busy)
	}
	for cl := range c.core.flight.calls() {
		t.Errorf("request %s %s is left in state %d", cl.op(), cl.lockName, cl.state)
	}
	for room, queue := range c.core.queues {
		if len(queue) > 0 {
			t.Errorf("%d requests are left in queue %d", len(queue), room)
		}
	}
}

// leaseCount returns how many leases the client knows.
func (c *Client) leaseCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.core.leases)
}

// busy returns how many requests of a kind are in flight.
func (c *Client) busy(which room) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.busy[which]
}

// occupy takes room as if n more requests were in flight. A negative n makes room, for requests that wait
// for it as well.
func (c *Client) occupy(which room, n int) {
	c.enter()
	defer c.exit()
	if c.core.busy[which] += n; n < 0 {
		c.core.startNext(which)
	}
}

// apply lets something happen to a lease.
func (c *Client) apply(l *Lease, event leaseEvent, cause error) {
	c.enter()
	defer c.exit()
	c.core.apply(l, event, cause)
}

// failWrites lets all writes fail from now on, as the kernel does.
func (c *Client) failWrites(err error) {
	c.writeFailed(c.current(), err)
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
