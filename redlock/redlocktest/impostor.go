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

// Impostor is a node that answers as a test wants. It passes commands on to a
// redis-server, and passes the replies back as the test says.
type Impostor struct {
	server *Server
	path   string
	say    Answer

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
	Reply    []byte // the server's, as received
	Listener bool   // received on a connection that invalidations are sent to
	Conn     net.Conn
}

// Answer answers a question, and returns false if the connection is to end.
type Answer func(q *Question) bool

// PassOn answers with the server's reply.
func PassOn(q *Question) bool {
	_, err := q.Conn.Write(q.Reply)
	return err == nil
}

// StartImpostor starts an Impostor in front of the server for one test. It calls say for
// each command, one at a time on each connection. say writes the answer to q.Conn. If it
// returns false, the connection ends. It must return once a write fails.
func StartImpostor(tb testing.TB, server *Server, say Answer) *Impostor {
	tb.Helper()
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	i := &Impostor{server: server, path: filepath.Join(dir, "i"), say: say, conns: map[net.Conn]bool{}}
	if i.listener, err = net.Listen("unix", i.path); err != nil {
		tb.Fatal(err)
	}
	i.serving.Go(i.accept)
	tb.Cleanup(i.Close)
	return i
}

// Addr returns the address on which it listens: "unix:/path".
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

// converse asks the server one question after the other.
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
		if !more || !i.say(&Question{Command: words, Reply: reply, Listener: listener, Conn: conn}) {
			return
		}
	}
}

// readAnswers passes on what the server sends without a command. It ends with the server's
// connection, and then closes the other.
func readAnswers(conn, server net.Conn, answers chan<- []byte) {
	defer conn.Close()
	defer close(answers)
	in := bufio.NewReader(server)
	for {
		raw, _, err := readRaw(in)
		if err != nil {
			return
		}
		if raw[0] != '>' {
			answers <- raw // of capacity 1, and one question at a time
		} else if _, err := conn.Write(raw); err != nil {
			return
		}
	}
}

// readRaw reads one message as it is, and the strings in it.
func readRaw(in *bufio.Reader) (raw []byte, words []string, err error) {
	raw, err = in.ReadBytes('\n')
	if err != nil || len(raw) < 3 {
		return nil, nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	text := string(raw[1 : len(raw)-2])
	n, _ := strconv.Atoi(text) // if it is a number
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
