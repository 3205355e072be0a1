package redlocktest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// Impostor is a node whose replies a test changes. It forwards commands to a redis-server, and the
// test decides what becomes of each reply.
type Impostor struct {
	server *Server
	path   string
	answer Answer

	listener net.Listener
	serving  sync.WaitGroup
	mu       sync.Mutex // guards what follows
	conns    map[net.Conn]bool
	closed   bool
	dials    int
}

// Question is a command that an Impostor received.
type Question struct {
	Command  []string
	Reply    []byte // the server's reply, as received
	Listener bool   // received on the connection of a listener
	Conn     net.Conn
}

// Answer answers a question. If it returns false, the connection ends.
type Answer func(q *Question) bool

// PassOn answers with the server's reply.
func PassOn(q *Question) bool {
	_, err := q.Conn.Write(q.Reply)
	return err == nil
}

// StartImpostor starts an Impostor in front of the server for one test. It calls say for each
// command; on one connection, one call at a time. say writes the answer to q.Conn, and must return
// when a write fails. If it returns false, the connection ends.
func StartImpostor(tb testing.TB, server *Server, answer Answer) *Impostor {
	tb.Helper()
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	i := &Impostor{server: server, path: filepath.Join(dir, "i"), answer: answer, conns: map[net.Conn]bool{}}
	if i.listener, err = net.Listen("unix", i.path); err != nil {
		tb.Fatal(err)
	}
	i.serving.Go(i.accept)
	tb.Cleanup(i.Close)
	return i
}

// Addr returns the address that it listens on: "unix:/path".
func (i *Impostor) Addr() string { return "unix:" + i.path }

// Dials returns how many connections it has accepted.
func (i *Impostor) Dials() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dials
}

// Close ends all connections and waits until all of its goroutines have ended.
func (i *Impostor) Close() {
	i.mu.Lock()
	i.closed = true
	i.listener.Close()
	for conn := range i.conns {
		conn.Close()
	}
	i.mu.Unlock()
	i.serving.Wait()
}

func (i *Impostor) accept() {
	for {
		conn, err := i.listener.Accept()
		if err != nil {
			return // closed
		}
		if i.add(conn) {
			i.serving.Go(func() { i.serve(conn) })
		}
	}
}

func (i *Impostor) add(conn net.Conn) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		conn.Close()
		return false
	}
	i.conns[conn] = true
	i.dials++
	return true
}

func (i *Impostor) remove(conn net.Conn) {
	conn.Close()
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.conns, conn)
}

// serve runs until either connection ends.
func (i *Impostor) serve(conn net.Conn) {
	defer i.remove(conn)
	server, err := net.Dial("unix", i.server.socketPath())
	if err != nil {
		return
	}
	if !i.add(server) {
		return
	}
	defer i.remove(server)
	answers := make(chan []byte, 1)
	i.serving.Go(func() { readAnswers(conn, server, answers) })
	i.converse(conn, server, answers)
}

// converse forwards one question at a time to the server.
func (i *Impostor) converse(conn, server net.Conn, answers <-chan []byte) {
	in := bufio.NewReader(conn)
	listener := false
	for {
		raw, words, err := readRaw(in)
		if err != nil {
			return
		}
		if _, err := server.Write(raw); err != nil {
			return
		}
		reply, more := <-answers
		listener = listener || len(words) > 1 && words[0] == "HELLO" && words[len(words)-1] == "redlockd-listener"
		if !more || !i.answer(&Question{Command: words, Reply: reply, Listener: listener, Conn: conn}) {
			return
		}
	}
}

// readAnswers collects the server's replies, and the confirmations of SUBSCRIBE. It forwards messages. When the server's
// connection ends, it closes the other one and returns.
func readAnswers(conn, server net.Conn, answers chan<- []byte) {
	defer conn.Close()
	defer close(answers)
	in := bufio.NewReader(server)
	for {
		raw, words, err := readRaw(in)
		if err != nil {
			return
		}
		if raw[0] != '>' || words[0] == "subscribe" {
			answers <- raw // does not block: capacity 1, and one question at a time
		} else if _, err := conn.Write(raw); err != nil {
			return
		}
	}
}

// readRaw reads one message. It returns the bytes, and the strings in them.
func readRaw(in *bufio.Reader) (raw []byte, words []string, err error) {
	raw, err = in.ReadBytes('\n')
	if err != nil || len(raw) < 3 {
		return nil, nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	text := string(raw[1 : len(raw)-2])
	n, _ := strconv.Atoi(text) // 0 if it is not a number
	switch raw[0] {
	case '$', '=':
		if n < 0 {
			return raw, nil, nil
		}
		content := make([]byte, n+2)
		_, err = io.ReadFull(in, content)
		return append(raw, content...), []string{string(content[:n])}, err
	case '%':
		n *= 2
		fallthrough
	case '*', '>', '~':
		for range n {
			item, more, err := readRaw(in)
			if err != nil {
				return nil, nil, err
			}
			raw, words = append(raw, item...), append(words, more...)
		}
		return raw, words, nil
	case '+', '-', ':', '_', '#', ',':
		return raw, []string{text}, nil
	}
	return nil, nil, fmt.Errorf("a message that begins with %q", raw[0])
}
