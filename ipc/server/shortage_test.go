package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
)

// starving is a connection whose writes fail for lack of kernel memory once it starves.
type starving struct {
	*net.UnixConn
	why     syscall.Errno
	starves func() bool
	slowly  bool // a non-blocking write finds no room, and the blocking write fails
}

func (c *starving) Write(b []byte) (int, error) {
	if c.starves() {
		return 0, &net.OpError{Op: "write", Err: os.NewSyscallError("write", c.why)}
	}
	return c.UnixConn.Write(b)
}

func (c *starving) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.UnixConn.SyscallConn()
	return starvingRaw{raw, c}, err
}

type starvingRaw struct {
	syscall.RawConn
	c *starving
}

func (r starvingRaw) Write(f func(fd uintptr) bool) error {
	switch {
	case !r.c.starves():
		return r.RawConn.Write(f)
	case r.c.slowly:
		return nil // nothing was written
	}
	return r.c.why
}

// If the kernel has no memory for a connection's answers, the server ends it and reports it as cut,
// because its client may still be working. Other connections go on.
func TestServerHasNoMemoryToWrite(t *testing.T) {
	for _, why := range []syscall.Errno{syscall.ENOMEM, syscall.ENOBUFS} {
		for _, slowly := range []bool{false, true} {
			t.Run(why.Error(), func(t *testing.T) { testNoMemoryToWrite(t, why, slowly) })
		}
	}
}

func testNoMemoryToWrite(t *testing.T, why syscall.Errno, slowly bool) {
	d := startFake(t, nil)
	other := d.dial(t)
	say(t, other, "PING\n")
	hear(t, other, "OK\n")
	nc, starve, over := d.dialStarving(t, why, slowly)
	say(t, nc, "@a LOCK x\nPING\n")
	hear(t, nc, "OK\n")
	d.waiting(t, "x")
	c := d.newest()
	starve()
	say(t, nc, "PING\n")
	await(t, over, "the end of the connection")
	if err := await(t, d.drops, "the cut"); !errors.Is(err, why) {
		t.Errorf("cut because of %v, want %v", err, why)
	}
	if !c.WasCut() {
		t.Error("WasCut is false for a cut connection")
	}
	hearEnd(t, nc, "")
	d.hearEnds(t, "input gone=true", "close")
	say(t, other, "PING\n")
	hear(t, other, "OK\n")
}

// dialStarving serves a connection, and closes over when it has ended.
func (d *fakeDaemon) dialStarving(t *testing.T, why syscall.Errno, slowly bool) (nc net.Conn, starve func(), over <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("unix", d.path+"2")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nc, err = net.Dial("unix", d.path+"2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	starved, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		d.ServeConn(&starving{UnixConn: served.(*net.UnixConn), why: why, slowly: slowly, starves: func() bool {
			select {
			case <-starved:
				return true
			default:
				return false
			}
		}})
	}()
	return nc, sync.OnceFunc(func() { close(starved) }), ended
}
