package ipc

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// duplicateOf is what the service manager has of a connection: it goes on when the
// one here is closed.
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

// The end of a connection is the end of its duplicates: the client hears the
// last answer, and then the end.
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
	c.cut(ErrSlow)
	hearEnd(t, nc, "")
	d.hearEnds(t, "input gone=true", "close")
}

func TestConnWithoutDescriptor(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	if _, err := newConn(&Server{}, there).SyscallConn(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the descriptor of a pipe: %v, want ErrUnsupported", err)
	}
}
