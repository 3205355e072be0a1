package redis

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis/redistest"
)

// hello is the answer of a Redis to the log-in.
const hello = "%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+proto\r\n:3\r\n"

// pipeNode logs in over a connection to a node in this process, and returns both ends.
func pipeNode(t *testing.T) (Conn, net.Conn) {
	t.Helper()
	ours, theirs := socketPair(t)
	logIn := make(chan error, 1)
	go func() {
		in := bufio.NewReader(theirs)
		for commands := 0; commands < 2; { // HELLO, and CLIENT SETNAME or a similar command
			line, err := in.ReadString('\n')
			if err != nil || strings.HasPrefix(line, "*") {
				commands++
			}
			if err != nil || in.Buffered() == 0 {
				logIn <- err
				_, _ = io.WriteString(theirs, hello)
				return
			}
		}
	}()
	conn, err := dialRedis(t.Context(), Options{Name: "a", Address: "unix:/nowhere", Dial: func(context.Context) (net.Conn, error) { return ours, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := <-logIn; err != nil {
		t.Fatal(err)
	}
	return conn, theirs
}

// Each group reaches the node once, and nothing else does after the log-in. Guards detach.
func TestSentGroupIsWrittenOnce(t *testing.T) {
	conn, node := pipeNode(t)
	if err := conn.Send(t.Context(), []Command{{"GET", "a"}}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Send(t.Context(), []Command{{"GET", "b"}, {"GET", "c"}}); err != nil {
		t.Fatal(err)
	}
	const sent = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n*2\r\n$3\r\nGET\r\n$1\r\nc\r\n"
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(node, got); err != nil || string(got) != sent {
		t.Fatalf("the node read %q, %v", got, err)
	}
	if _, err := io.WriteString(node, "+1\r\n+2\r\n+3\r\n"); err != nil {
		t.Fatal(err)
	}
	replies := make([]Reply, 2)
	if err := conn.Receive(t.Context(), replies[:1]); err != nil || replies[0].Str != "1" {
		t.Fatalf("first group: %q, %v", replies[0].Str, err)
	}
	if err := conn.Receive(t.Context(), replies); err != nil || replies[0].Str != "2" || replies[1].Str != "3" {
		t.Fatalf("second group: %+v, %v", replies, err)
	}
	conn.Close()
	if rest, err := io.ReadAll(node); len(rest) > 0 || err != nil {
		t.Errorf("the node also read %q (%v)", rest, err)
	}
}

// A connection is closed when replies have been read that no Receive has waited for, and others are in
// transit.
func TestCloseWithRepliesUnderWay(t *testing.T) {
	for range 50 {
		conn, node := pipeNode(t)
		for range 4 {
			if err := conn.Send(t.Context(), []Command{{"GET", "a"}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.WriteString(node, "+1\r\n+2\r\n+3\r\n"); err != nil {
			t.Fatal(err)
		}
		replies := make([]Reply, 1)
		if err := conn.Receive(t.Context(), replies); err != nil || replies[0].Str != "1" {
			t.Fatalf("first group: %q, %v", replies[0].Str, err)
		}
		conn.Close()
		if err := conn.Receive(t.Context(), replies); err == nil {
			t.Error("a closed connection returned an answer")
		}
	}
}

// A reply that was read, but that Receive did not wait for in time, answers nothing else.
func TestCloseWithReplyToRefusedGroup(t *testing.T) {
	for range 50 {
		conn, node := pipeNode(t)
		for range 2 {
			if err := conn.Send(t.Context(), []Command{{"GET", "a"}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.WriteString(node, "+1\r\n+2\r\n"); err != nil {
			t.Fatal(err)
		}
		replies := make([]Reply, 1)
		if err := conn.Receive(t.Context(), replies); err != nil {
			t.Fatal(err)
		}
		over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		if err := conn.Receive(over, replies); err == nil {
			t.Error("a group was answered after its deadline")
		}
		cancel()
		conn.Close()
	}
}

// An answer to more commands than were sent ends the connection, as with Do.
func TestAnswerToNothingUnderWay(t *testing.T) {
	conn, node := pipeNode(t)
	if err := conn.Send(t.Context(), []Command{{"GET", "a"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(node, "+1\r\n+2\r\n"); err != nil {
		t.Fatal(err)
	}
	err := conn.Receive(t.Context(), make([]Reply, 1))
	if err == nil { // the second answer came later
		if err = conn.Send(t.Context(), []Command{{"GET", "b"}}); err == nil {
			err = conn.Receive(t.Context(), make([]Reply, 1))
		}
	}
	if !errors.As(err, new(*AnswerError)) {
		t.Errorf("got error %v, want an AnswerError", err)
	}
}

// An answer that comes with the answer to the log-in is the answer to nothing. Guards detach.
func TestAnswerAfterLogin(t *testing.T) {
	_, err := dialRedis(t.Context(), Options{Name: "a", Address: "unix:/nowhere",
		Dial: func(context.Context) (net.Conn, error) {
			return redistest.Scripted{Reader: strings.NewReader(hello + "+1\r\n")}, nil
		}})
	if !errors.Is(err, errUnasked) {
		t.Errorf("got error %v, want %v", err, errUnasked)
	}
}

// Receive does not wait for the answer to nothing.
func TestReceiveOfNothing(t *testing.T) {
	conn, _ := pipeNode(t)
	if err := conn.Receive(t.Context(), make([]Reply, 1)); !errors.Is(err, errNothingSent) {
		t.Errorf("got error %v, want %v", err, errNothingSent)
	}
}

// If a node stops reading, Send returns at its deadline.
func TestSendEndsWithItsDeadline(t *testing.T) {
	conn, _ := pipeNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := conn.Send(ctx, []Command{{"SET", "k", strings.Repeat("x", 64<<20)}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want %v", err, context.DeadlineExceeded)
	}
}
