package server

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// inputOf returns an input that has received sent. If ended, the peer has closed the connection.
func inputOf(t *testing.T, sent string, ended bool) *input {
	t.Helper()
	file, server := socketPair(t)
	if _, err := file.WriteString(sent); err != nil {
		t.Fatal(err)
	}
	if ended {
		file.Close()
	} else {
		t.Cleanup(func() { file.Close() })
	}
	t.Cleanup(func() { server.Close() })
	in := newInput(server, rawOf(server))
	return &in
}

func (in *input) wantLine(t *testing.T, want string) {
	t.Helper()
	if line, ok := in.line(); !ok || string(line) != want {
		t.Fatalf("got %.100q, %v; want %.100q", line, ok, want)
	}
}

// receive takes at most the given number of bytes: whole lines, or the first line if it is longer.
func TestReceiveAtMost(t *testing.T) {
	for most, want := range map[int]int{1: 5, 4: 5, 5: 5, 9: 5, 10: 10, 16: 10, 17: 17} {
		in := inputOf(t, "PING\nLIST\nSTATUS\n", false)
		if in.receive(most); in.to-in.from != want {
			t.Errorf("receive(%d) took %d bytes, want %d", most, in.to-in.from, want)
		}
	}
	long := strings.Repeat("x", ipc.MaxLine-1)
	in := inputOf(t, long+"\nPING\n", false)
	in.receive(1)
	in.wantLine(t, long)
}

// A partial line at the end of the input is not returned as a line. receive returns the end at
// once.
func TestReceiveEndAfterPartialLine(t *testing.T) {
	in := inputOf(t, "PING\nLI", true)
	in.receive(readSize)
	in.wantLine(t, "PING")
	if !in.hasPartialLine() || in.from < in.to {
		t.Errorf("the line is not begun, or %q of it was taken", in.buf[in.from:in.to])
	}
	if err := in.receive(readSize); err != io.EOF {
		t.Errorf("got %v, want the end", err)
	}
}

// receive loses no bytes that arrive between its look at a partial line and its check for the end.
func TestReceiveBytesBeforeTheEnd(t *testing.T) {
	for rest, want := range map[string]string{"NG\n@a LIST\n": "PING", "NG": ""} {
		file, server := socketPair(t)
		defer server.Close()
		in := newInput(server, rawOf(server))
		in.isEnded = func(fd uintptr) bool {
			file.WriteString(rest) // the second call fails, because the file is closed
			file.Close()
			return otherSideEnded(fd)
		}
		if _, err := file.WriteString("PI"); err != nil {
			t.Fatal(err)
		}
		in.receive(readSize)
		if err := in.receive(readSize); err != nil {
			t.Errorf("after PI: got %q, then %v", rest, err)
		}
		if want != "" {
			in.wantLine(t, want)
			in.wantLine(t, "@a LIST")
		}
		if err := in.receive(readSize); err != io.EOF {
			t.Errorf("got %v, want the end", err)
		}
	}
}

// A line that is too long is reported even if it follows another line and the input ends without
// its LF.
func TestReceiveTooLongBeforeTheEnd(t *testing.T) {
	file, server := socketPair(t)
	defer server.Close()
	in := newInput(server, rawOf(server))
	long := strings.Repeat("x", ipc.MaxLine)
	if _, err := file.WriteString("PING\n" + long); err != nil {
		t.Fatal(err)
	}
	file.Close()
	in.receive(readSize)
	in.wantLine(t, "PING")
	if err := in.receive(readSize); err != nil {
		t.Fatalf("got %v, want the line", err)
	}
	in.wantLine(t, long)
}

// If a client is killed before it has read everything, receive returns ECONNRESET instead of the
// end.
func TestReceiveReset(t *testing.T) {
	file, server := socketPair(t)
	defer server.Close()
	if _, err := server.Write([]byte("OK\n")); err != nil {
		t.Fatal(err)
	}
	file.Close()
	in := newInput(server, rawOf(server))
	server.SetReadDeadline(time.Now().Add(patience))
	if err := in.receive(readSize); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want %v", err, syscall.ECONNRESET)
	}
}

// A partial line wakes receive once. Until more bytes come, receive waits; otherwise the goroutine
// would spin.
func TestPartialLineWakesReceiveOnce(t *testing.T) {
	file, server := socketPair(t)
	defer server.Close()
	defer file.Close()
	in := newInput(server, rawOf(server))
	for _, part := range []string{"P", "IN"} {
		if _, err := file.WriteString(part); err != nil {
			t.Fatal(err)
		}
		if err, some := in.receiveNow(); err != nil || !some {
			t.Errorf("behind %q: %v, %v; want that there is something", part, err, some)
		}
		if err, some := in.receiveNow(); err != nil || some {
			t.Errorf("behind %q, once more: %v, %v; want nothing", part, err, some)
		}
	}
	if _, err := file.WriteString("G\n"); err != nil {
		t.Fatal(err)
	}
	if err := in.receive(readSize); err != nil {
		t.Fatal(err)
	}
	in.wantLine(t, "PING")
}
