package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// queueCommand is the first argument of this program when it is the bare queue.
const queueCommand = "queue"

// bareQueue is a contender without nodes: a process that grants one lock in the order of the
// requests, and does nothing else. It shows how long a hand-over between two clients of a process
// takes at least on this machine.
type bareQueue struct {
	*child
	conns []*rawConn // one for each worker
}

// openQueue starts the process and connects all workers.
func openQueue(ctx context.Context, dir string) (_ *bareQueue, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, queueCommand+".sock")
	c, err := startChild(dir, queueCommand, self, queueCommand, socket)
	if err != nil {
		return nil, err
	}
	q := &bareQueue{child: c}
	defer func() {
		if err != nil {
			q.close()
		}
	}()
	connect := func() error {
		conn, err := dialRaw(ctx, socket)
		if err == nil {
			q.conns = append(q.conns, conn)
		}
		return err
	}
	err = q.ready(10*time.Second, connect)
	for err == nil && len(q.conns) < workersAtOnce {
		err = connect()
	}
	return q, err
}

func (q *bareQueue) locker(w int) locker          { return queueLocker{q.conns[w%len(q.conns)]} }
func (q *bareQueue) settle(context.Context) error { return nil }

func (q *bareQueue) close() {
	for _, conn := range q.conns {
		conn.Close()
	}
	q.kill()
}

// queueLocker is both a locker and the lock that it holds.
type queueLocker struct{ *rawConn }

func (l queueLocker) lock(ctx context.Context, _ string, _ time.Duration) (held, error) {
	err := l.ask("LOCK")
	if err == nil && ctx.Err() != nil { // the slice ended while the worker waited
		return nil, errors.Join(ctx.Err(), l.ask("UNLOCK"))
	}
	return l, err
}

func (l queueLocker) Unlock(context.Context) error { return l.ask("UNLOCK") }

// runQueue is the process. Its argument is the path of its socket. It ends only with an error, or
// when it is killed.
func runQueue(args []string, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintf(stderr, "bench queue: want the path of a socket, got %q\n", args)
		return 1
	}
	listener, err := net.Listen("unix", args[0])
	if err != nil {
		fmt.Fprintln(stderr, "bench queue:", err)
		return 1
	}
	var q waiters
	for {
		conn, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(stderr, "bench queue:", err)
			return 1
		}
		go q.serve(conn) // ends with the connection, or with the process
	}
}

// waiters is one lock, and the connections that wait for it, the first one first.
type waiters struct {
	mu    sync.Mutex // guards what follows; held while a grant is written, which never blocks
	held  bool
	queue []io.Writer
}

// serve answers the requests of a connection until it ends.
func (q *waiters) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch lines.Text() {
		case "LOCK":
			q.lock(conn)
		case "UNLOCK":
			q.unlock()
			io.WriteString(conn, "OK\n")
		default:
			io.WriteString(conn, "ERR SYNTAX\n")
		}
	}
}

func (q *waiters) lock(conn io.Writer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held {
		q.queue = append(q.queue, conn)
		return
	}
	q.held = true
	io.WriteString(conn, "OK\n")
}

// unlock grants the lock to the first waiter.
func (q *waiters) unlock() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held = len(q.queue) > 0; q.held {
		io.WriteString(q.queue[0], "OK\n")
		q.queue = q.queue[1:]
	}
}
