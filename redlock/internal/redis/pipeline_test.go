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
)

// pipeNode logs in over a connection to a node in this process, and returns both ends.
func pipeNode(t *testing.T) (Conn, net.Conn) {
	t.Helper()
	ours, theirs := socketPair(t)
	const hello = "%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+proto\r\n:3\r\n"
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

// A group that was sent ahead reaches the node once, although the driver writes it again.
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

// The driver panics if it gets a reply that it does not wait for. Here a connection is closed
// when such replies have been read, and others are in transit. Guards guardedConn.Read.
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

// When the driver is closed, it may read on. Then it panics if it reads a reply to a group that
// it refused to send. Guards guardedConn.end.
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

// The driver must write exactly the bytes that were sent ahead. Guards guardedConn.repeat.
func TestDriverMustRepeatWhatWasSent(t *testing.T) {
	for name, repeated := range map[string]string{"other bytes": "abX", "more": "abcd", "less": "ab", "the same": "abc"} {
		ours, _ := socketPair(t)
		c := &guardedConn{Conn: ours}
		c.expectWritten([]byte("abc"))
		_, err := c.Write([]byte(repeated))
		if left := c.endWritten(); err == nil {
			err = left
		}
		if want := name != "the same"; errors.Is(err, errNotRepeated) != want {
			t.Errorf("%s: got error %v", name, err)
		}
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
