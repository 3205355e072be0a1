package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/redlock/boottime"
)

// daemon is a fake daemon: it greets each connection, and then says what the script says.
type daemon struct {
	path     string
	listener net.Listener
	conns    chan *conn   // greeted, and not yet used by the script
	ahead    atomic.Int64 // nanoseconds by which its clock is ahead of the client's

	accepting, reading sync.WaitGroup

	mu   sync.Mutex // guards open
	open []*conn    // all connections
}

// conn is a connection to the fake daemon.
type conn struct {
	net.Conn
	requests chan string // closed at the end of the connection
}

func startDaemon(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl") // shorter than t.TempDir: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{path: filepath.Join(dir, "s"), conns: make(chan *conn, 100)}
	if d.listener, err = net.Listen("unix", d.path); err != nil {
		t.Fatal(err)
	}
	d.serve()
	t.Cleanup(func() {
		d.end()
		os.RemoveAll(dir)
	})
	return d
}

// end closes everything. The program may still live, and want to reconnect.
func (d *daemon) end() {
	d.listener.Close()
	d.accepting.Wait()
	d.mu.Lock()
	for _, c := range d.open {
		c.Close()
	}
	d.mu.Unlock()
	d.reading.Wait()
}

// serve accepts connections until the listener is closed.
func (d *daemon) serve() {
	listener := d.listener
	d.accepting.Go(func() {
		for {
			accepted, err := listener.Accept()
			if err != nil {
				return
			}
			c := &conn{Conn: accepted, requests: make(chan string, 10_000)}
			d.mu.Lock()
			d.open = append(d.open, c)
			d.mu.Unlock()
			d.reading.Go(func() { d.read(c) })
		}
	})
}

// read greets a connection, and reads its requests until its end.
func (d *daemon) read(c *conn) {
	defer close(c.requests)
	defer c.Close()
	in := bufio.NewReader(c)
	hello, err := in.ReadString('\n')
	if err != nil {
		return
	}
	tag, _, isTagged := strings.Cut(hello, " HELLO 1")
	if !isTagged {
		c.requests <- strings.TrimSuffix(hello, "\n") // the script fails
	}
	if _, err := fmt.Fprintf(c, "%s OK version=1.0.0 ttl=10000 max_ttl=30000 clock=%d new=1\n", tag, d.clock().Milliseconds()); err != nil {
		return
	}
	d.conns <- c
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		c.requests <- strings.TrimSuffix(line, "\n")
	}
}

func (d *daemon) clock() time.Duration { return boottime.Exact() + time.Duration(d.ahead.Load()) }

// next returns the next connection.
func (d *daemon) next(p *player) *conn {
	select {
	case c := <-d.conns:
		return c
	case <-time.After(patience):
		p.fatalf("no connection within %v", patience)
		return nil
	}
}

// stop refuses connections from now on.
func (d *daemon) stop(*player) { d.listener.Close() }

// listen accepts connections again.
func (d *daemon) listen(p *player) {
	var err error
	if d.listener, err = net.Listen("unix", d.path); err != nil {
		p.fatalf("%v", err)
	}
	d.serve()
}

// request returns the next request, or an empty text at the end of the connection.
func (c *conn) request(p *player) string {
	select {
	case line := <-c.requests:
		return line
	case <-time.After(patience):
		p.fatalf("no request within %v", patience)
		return ""
	}
}

func (c *conn) say(p *player, line string) {
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		p.fatalf("the daemon says %.80q: %v", line, err)
	}
}

// sayHalves sends a line in two writes. The client reads the first half alone.
func (c *conn) sayHalves(p *player, line string) {
	middle := len(line) / 2
	if _, err := c.Write([]byte(line[:middle])); err != nil {
		p.fatalf("%v", err)
	}
	c.awaitRead(p)
	c.say(p, line[middle:])
}

// awaitRead waits until the client has read everything. It polls: no event reports that.
func (c *conn) awaitRead(p *player) {
	raw, err := c.Conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		p.fatalf("%v", err)
	}
	for giveUp := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var unread int
		var failed error
		err := raw.Control(func(fd uintptr) { unread, failed = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
		if err = errors.Join(err, failed); err != nil || time.Now().After(giveUp) {
			p.fatalf("%d bytes of the first half are unread: %v", unread, err)
		}
		if unread == 0 {
			return
		}
	}
}

func (c *conn) hangUp() { c.Close() }
