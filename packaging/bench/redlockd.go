package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redlockd/redlockd/client"
)

// redlockdContender talks to the daemon through its socket, from this process.
type redlockdContender struct {
	daemon  *daemon
	clients []*client.Client // worker w uses the client with the number w modulo their count
}

// openRedlockdTags opens one connection that all workers share by tags.
func openRedlockdTags(ctx context.Context, f *fleet) (contender, error) {
	return openRedlockd(ctx, f.daemon, 1)
}

func openRedlockdConns(ctx context.Context, f *fleet) (contender, error) {
	return openRedlockd(ctx, f.daemon, workersAtOnce)
}

func openBeforeTags(ctx context.Context, f *fleet) (contender, error) {
	return openRedlockd(ctx, f.before, 1)
}

func openBeforeConns(ctx context.Context, f *fleet) (contender, error) {
	return openRedlockd(ctx, f.before, workersAtOnce)
}

func openRedlockd(ctx context.Context, d *daemon, conns int) (contender, error) {
	c := &redlockdContender{daemon: d}
	for range conns {
		one, err := d.dial(ctx)
		if err != nil {
			c.close()
			return nil, d.failed(err)
		}
		c.clients = append(c.clients, one)
	}
	return c, nil
}

// redlockdAt connects to the socket of a daemon that another process has started.
func redlockdAt(ctx context.Context, socket []string) (contender, error) {
	d := &daemon{socket: socket[0], nodes: serverCount}
	one, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &redlockdContender{daemon: d, clients: []*client.Client{one}}, nil
}

func (c *redlockdContender) locker(w int) locker {
	return redlockdLocker{c.clients[w%len(c.clients)]}
}

// settle waits until the daemon uses every node.
func (c *redlockdContender) settle(ctx context.Context) error {
	return poll(5*time.Second, func() error { return nodesReady(ctx, c.clients[0], c.daemon.nodes) })
}

func (c *redlockdContender) close() {
	for _, one := range c.clients {
		one.Close()
	}
}

// nodesReady returns nil if the daemon uses every one of that many nodes.
func nodesReady(ctx context.Context, c *client.Client, nodes int) error {
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if len(status.Nodes) != nodes {
		return fmt.Errorf("the daemon has %d nodes, not %d", len(status.Nodes), nodes)
	}
	for _, n := range status.Nodes {
		if n.State != "ready" {
			return fmt.Errorf("node %s is %s %s", n.Name, n.State, n.Reason)
		}
	}
	return nil
}

type redlockdLocker struct{ *client.Client }

func (l redlockdLocker) lock(ctx context.Context, name string, ttl time.Duration) (held, error) {
	lease, err := l.Lock(ctx, name, client.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	return redlockdLock{lease}, nil
}

type redlockdLock struct{ *client.Lease }

func (l redlockdLock) Unlock(ctx context.Context) error { return l.Lease.Unlock(ctx) }

func (l redlockdLock) over() error { return context.Cause(l.Context()) }

// rawConn speaks the protocol itself, one request at a time, for options that package client may
// not have.
type rawConn struct {
	net.Conn
	lines *bufio.Reader
}

func dialRaw(ctx context.Context, socket string) (*rawConn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return &rawConn{Conn: conn, lines: bufio.NewReader(conn)}, nil
}

// refusal is an answer other than OK: "ERR HELD lock=…".
type refusal string

func (r refusal) Error() string { return string(r) }

// code returns the word after ERR.
func (r refusal) code() string {
	fields := strings.Fields(string(r))
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// ask sends a request and waits for its answer. It skips events. If the daemon refuses, the error
// is a refusal.
func (c *rawConn) ask(format string, args ...any) error {
	if _, err := io.WriteString(c, fmt.Sprintf(format, args...)+"\n"); err != nil {
		return err
	}
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return err
		}
		switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word {
		case "OK":
			return nil
		case "ERR":
			return refusal(strings.TrimSpace(line))
		}
	}
}
