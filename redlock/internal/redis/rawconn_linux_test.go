package redis

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// socketPair returns two ends of a TCP connection. The first one uses raw I/O.
func socketPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	if _, ok := withRawIO(ours).(*rawConn); !ok {
		t.Fatal("a TCP connection does not use raw I/O")
	}
	return withRawIO(ours), theirs
}

// Bytes that the socket does not accept at once are written when it does.
func TestRawWriteOfMoreThanFits(t *testing.T) {
	ours, theirs := socketPair(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	done := make(chan error, 1)
	go func() {
		n, err := ours.Write(sent)
		if err == nil && n != len(sent) {
			err = io.ErrShortWrite
		}
		ours.Close()
		done <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("the bytes received differ from those sent (%v)", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRawWriteEndsWithItsDeadline(t *testing.T) {
	ours, theirs := socketPair(t)
	much := make([]byte, 64<<20)
	go func() {
		theirs.Read(make([]byte, 1)) // a part was written
		ours.SetWriteDeadline(time.Now())
	}()
	if n, err := ours.Write(much); !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == len(much) {
		t.Errorf("wrote %d, %v; want a part, and a timeout", n, err)
	}
}

func TestRawWriteToClosedConnection(t *testing.T) {
	ours, theirs := socketPair(t)
	theirs.(*net.TCPConn).SetLinger(0) // a reset
	theirs.Close()
	var err error
	for err == nil {
		_, err = ours.Write([]byte("x"))
	}
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("writing to a closed connection: %v", err)
	}
	ours.Close()
	if _, err := ours.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing after Close: %v, want net.ErrClosed", err)
	}
}

func TestRawReadEndsWithItsDeadline(t *testing.T) {
	ours, theirs := socketPair(t)
	ours.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := ours.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d, %v; want nothing, and a timeout", n, err)
	}
	ours.SetReadDeadline(time.Time{})
	theirs.Write([]byte("late"))
	wantRead(t, ours, "late", nil)
}

func TestRawReadOfNothing(t *testing.T) {
	ours, _ := socketPair(t)
	if n, err := ours.Read(nil); n != 0 || err != nil {
		t.Errorf("read %d, %v; want no wait, and no error", n, err)
	}
}

func TestRawReadToTheEnd(t *testing.T) {
	ours, theirs := socketPair(t)
	theirs.Write([]byte("all"))
	theirs.Close()
	wantRead(t, ours, "all", nil)
	wantRead(t, ours, "", io.EOF)
	ours.Close()
	wantRead(t, ours, "", net.ErrClosed)
}

func TestRawReadOfResetConnection(t *testing.T) {
	ours, theirs := socketPair(t)
	theirs.(*net.TCPConn).SetLinger(0)
	theirs.Close()
	wantRead(t, ours, "", syscall.ECONNRESET)
}

// wantRead reads once and checks the result.
func wantRead(t *testing.T, conn net.Conn, want string, wantErr error) {
	t.Helper()
	b := make([]byte, 100)
	n, err := conn.Read(b)
	if string(b[:n]) != want || !errors.Is(err, wantErr) {
		t.Errorf("read %q, %v; want %q, %v", b[:n], err, want, wantErr)
	}
}
