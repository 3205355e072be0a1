package client

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Processes that are started after Inherit hold the connection open; earlier ones do not. Close
// still ends the connection for the daemon.
func TestInherit(t *testing.T) {
	_, c, daemon := overSocket(t)
	before, _ := socketsOf(t) // sockets that this process has inherited
	if err := c.Inherit(); err != nil {
		t.Fatal(err)
	}
	after, child := socketsOf(t)
	if after != before+1 {
		t.Errorf("a child has %d sockets before Inherit and %d after it, want one more", before, after)
	}
	c.Close()
	daemon.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if n, err := daemon.Read(make([]byte, 1)); n > 0 || err == nil || isTimeout(err) {
		t.Errorf("after Close, while a child runs, the daemon reads %d bytes, %v, want the end", n, err)
	}
	child.Close()
}

// If Inherit is called while a connection is being made, that connection is inherited too.
func TestInheritWhileAConnectionIsMade(t *testing.T) {
	l, c, daemon := overSocket(t)
	daemon.Close()
	pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
	daemon, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	in := bufio.NewReader(daemon)
	for _, wanted := range []string{"@0 HELLO 1\n", "@0 PING\n"} {
		if line, err := in.ReadString('\n'); line != wanted {
			t.Fatalf("the daemon reads %q, %v, want %q", line, err, wanted)
		}
		if wanted == "@0 HELLO 1\n" {
			if err := c.Inherit(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := daemon.Write([]byte("@0 OK version=1\n")); err != nil {
			t.Fatal(err)
		}
	}
	pinged.must(t)
	raw, err := c.current().conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			t.Errorf("the connection has the flags %#x (%v), want it to be inherited", flags, err)
		}
	})
}

func TestInheritNoSocket(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	if err := inheritable(ours); err == nil {
		t.Error("a pipe can be inherited")
	}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// overSocket connects a Client over a real socket.
func overSocket(t *testing.T) (l net.Listener, c *Client, daemon net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	accepted := async(func() (net.Conn, error) { return greet(l) })
	c, err = Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	daemon = accepted.must(t)
	t.Cleanup(func() {
		c.Close()
		daemon.Close()
		l.Close()
	})
	return l, c, daemon
}

// child is a process that runs until Close.
type child struct {
	cmd  *exec.Cmd
	done func() error
}

func (c *child) Close() {
	c.done()
	c.cmd.Wait()
}

// socketsOf starts a child and returns how many sockets it has inherited.
func socketsOf(t *testing.T) (count int, running *child) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `ls -l /proc/$$/fd | grep -c socket:; cat`)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running = &child{cmd, stdin.Close}
	t.Cleanup(running.Close)
	stdout.(*os.File).SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := fmt.Fscanln(bufio.NewReader(stdout), &count); err != nil {
		t.Fatal(err)
	}
	return count, running
}
