package server

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// duplicateOf returns a duplicate of the connection's descriptor, like the one that the service
// manager stores. It stays open when the connection is closed.
func duplicateOf(t testing.TB, c syscall.Conn) net.Conn {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	dup := -1
	if err := raw.Control(func(fd uintptr) { dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return connOf(t, dup)
}

// When the server ends a connection, its duplicates end too: the client reads the last answer, and
// then the end.
func TestConnEndsWithDuplicate(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, "PING\n")
	hear(t, nc, "OK\n")
	defer duplicateOf(t, d.firstConn(t)).Close()
	say(t, nc, "@a PING\nQUIT\n")
	hearEnd(t, nc, "@a OK\nOK\n")
	d.hearEnds(t, "input gone=false", "close")
}

func TestConnCutWithDuplicate(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, "PING\n")
	hear(t, nc, "OK\n")
	c := d.firstConn(t)
	defer duplicateOf(t, c).Close()
	c.cutOff(ErrSlow)
	hearEnd(t, nc, "")
	d.hearEnds(t, "input gone=true", "close")
}

// The server reports that it cuts a connection before the client, or the owner of a duplicate, can
// see the end: the process may be killed in between.
func TestConnCutIsReportedFirst(t *testing.T) {
	var dup net.Conn
	over := make(chan bool, 1)
	look := func(fd uintptr) { over <- isHungUp(fd) }
	d := startFake(t, func(d *fakeDaemon) { d.Dropped = func(*Conn, error) { rawOf(dup).Control(look) } })
	nc := d.dial(t)
	say(t, nc, "PING\n")
	hear(t, nc, "OK\n")
	c := d.firstConn(t)
	dup = duplicateOf(t, c)
	defer dup.Close()
	c.cutOff(ErrSlow)
	if <-over {
		t.Error("the connection ended before Dropped was called")
	}
	hearEnd(t, nc, "")
	d.hearEnds(t, "input gone=true", "close")
}

// The server distinguishes a client that it cut for not reading from a client that has closed.
func TestConnDistinguishesClosedFromCut(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EPIPE: true, syscall.ECONNRESET: true, io.ErrClosedPipe: true,
		syscall.ENOMEM: false, ErrSlow: false, ErrShutdown: false, os.ErrDeadlineExceeded: false,
	} {
		if got := isGone(&net.OpError{Op: "write", Err: err}); got != want {
			t.Errorf("%v: isGone is %v, want %v", err, got, want)
		}
	}
}

// With the default bounds, reading pauses long before a client is cut.
func TestConnBoundsOfOutput(t *testing.T) {
	for _, tt := range []struct {
		s            *Server
		pause, limit int
	}{
		{&Server{}, 128 << 10, 1 << 20},
		{&Server{MaxOutput: 100_000}, 50_000, 100_000},
		{&Server{MaxOutput: 10 << 20}, 128 << 10, 10 << 20},
		{&Server{PauseOutput: 70_000, MaxOutput: 100_000}, 70_000, 100_000},
	} {
		here, there := net.Pipe()
		defer here.Close()
		if o := &newConn(tt.s, there).out; o.pause != tt.pause || o.limit != tt.limit {
			t.Errorf("MaxOutput %d: reading pauses at %d, the cut is at %d; want %d and %d", tt.s.MaxOutput, o.pause, o.limit, tt.pause, tt.limit)
		}
	}
}

func TestConnWithoutDescriptor(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	if _, err := newConn(&Server{}, there).SyscallConn(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the descriptor of a pipe: %v, want ErrUnsupported", err)
	}
}

// HungUp is true if a client has closed both directions, even before its data is read. If it has
// closed only its sending side, it may still wait for answers.
func TestConnHungUp(t *testing.T) {
	client, nc := socketPair(t)
	defer nc.Close()
	c := newConn(&Server{}, nc)
	if _, err := client.WriteString("PING\n"); err != nil {
		t.Fatal(err)
	}
	if c.HungUp() {
		t.Error("HungUp is true for a connected client")
	}
	if err := unix.Shutdown(int(client.Fd()), unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if c.HungUp() {
		t.Error("HungUp is true for a client that still reads")
	}
	client.Close()
	if !c.HungUp() {
		t.Error("a client that has closed counts as being there")
	}
	here, there := net.Pipe()
	defer here.Close()
	if newConn(&Server{}, there).HungUp() {
		t.Error("a pipe, of which nothing is known, counts as closed")
	}
}
