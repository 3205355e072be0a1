package client

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A raw read of a socket behaves like a net.Conn: at its deadline, at the end, and after Close.
func TestInputOfSocket(t *testing.T) {
	ours, theirs := socketPair(t)
	in := newInput(ours)
	ours.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	wantRead(t, in, "", os.ErrDeadlineExceeded)
	ours.SetReadDeadline(time.Time{})
	theirs.Write([]byte("OK\n"))
	theirs.Close()
	wantRead(t, in, "OK\n", nil)
	wantRead(t, in, "", io.EOF)
	ours.Close()
	wantRead(t, in, "", net.ErrClosed)
}

func wantRead(t *testing.T, in io.Reader, want string, wantErr error) {
	t.Helper()
	b := make([]byte, 100)
	n, err := in.Read(b)
	if string(b[:n]) != want || !errors.Is(err, wantErr) {
		t.Errorf("read %q, %v; want %q, %v", b[:n], err, want, wantErr)
	}
}

func socketPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}
