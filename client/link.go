package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// readBuffer holds many replies, and is longer than the longest line.
const readBuffer = 4 * ipc.MaxLine

// maxSpare is the largest buffer that is kept for the next write.
const maxSpare = 64 << 10

// link is one connection of a Client, whose peer has answered HELLO. One goroutine reads it.
type link struct {
	conn net.Conn
	in   *bufio.Reader
	raw  syscall.RawConn // writes without blocking; nil if conn is no socket

	clock   daemonClock
	saidBye bool   // the daemon said BYE before it answered HELLO
	refused *Error // why it closes the connection instead
	number  int    // core.link while it is in use

	// Client.mu guards the fields below.
	writing bool   // a goroutine writes, and will write what the core adds too
	spare   []byte // the buffer of the last write

	// The goroutine that writes owns the fields below. tryOnce is l.write, kept so that a write
	// allocates nothing.
	tryOnce  func(fd uintptr) bool
	chunk    []byte
	n        int
	writeErr error
}

func newLink(conn net.Conn) *link {
	l := &link{conn: conn, in: bufio.NewReaderSize(newInput(conn), readBuffer)}
	if socket, ok := conn.(syscall.Conn); ok {
		l.raw, _ = socket.SyscallConn() // an error leaves it nil, which is slower
	}
	l.tryOnce = l.write
	return l
}

// errRestarted means that a restart kept the connection, and may have lost the answer to HELLO. The
// client then makes another connection, because the daemon could answer a second HELLO twice.
var errRestarted = errors.New("it was restarted meanwhile")

const (
	// minPause and maxPause bound the time between two attempts to connect.
	minPause = 10 * time.Millisecond
	maxPause = time.Second
	// attemptTimeout bounds one attempt: a daemon that hangs does not answer.
	attemptTimeout = 5 * time.Second
)

// maxFirstTry bounds the pause between two attempts of Dial to less than maxPause.
const maxFirstTry = 5

// firstLink is newLink for Dial: it repeats the attempt while a daemon may still come.
func (c *Client) firstLink(ctx context.Context) (*link, error) {
	waiting, waits := ctx, c.dialWait > 0
	if _, bounded := ctx.Deadline(); c.dialWait == untilDeadline {
		waits = bounded
	} else {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, c.dialWait)
		defer cancel()
	}
	for try := 1; ; try++ {
		l, err := c.newLink(ctx)
		if err == nil || ctx.Err() != nil || !mayComeLater(err) {
			return l, err
		}
		if !waits || !pause(waiting, min(try, maxFirstTry)) {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// pause waits before every attempt but the first. The time is random, because many clients lose
// their connections at the same time. It returns false if ctx is done.
func pause(ctx context.Context, try int) bool {
	if try == 0 {
		return ctx.Err() == nil
	}
	most := min(minPause<<min(try-1, 10), maxPause)
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// mayComeLater reports whether a failed attempt means that there is no daemon yet, or that it is
// being restarted. A refusal by the daemon or the system is final.
func mayComeLater(err error) bool {
	if refused, is := errors.AsType[*Error](err); is {
		return refused.Code == string(ipc.CodeShutdown)
	}
	if errors.Is(err, errProtocol) || errors.Is(err, errNotSocket) {
		return false
	}
	if number, is := errors.AsType[syscall.Errno](err); is {
		return slices.Contains([]syscall.Errno{syscall.ENOENT, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, syscall.EAGAIN}, number)
	}
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrShutdown)
}

// newLink dials until ctx is done, and checks that the daemon speaks version 1. If it fails, it
// leaves no connection open.
func (c *Client) newLink(ctx context.Context) (*link, error) {
	for {
		conn, err := c.dial(ctx)
		if err != nil {
			return nil, err
		}
		l := newLink(conn)
		if err = c.greet(ctx, l); err == nil {
			return l, nil
		}
		l.hangUp()
		if !errors.Is(err, errRestarted) || ctx.Err() != nil {
			return nil, fmt.Errorf("dial %s: %w", c.path, err)
		}
	}
}

// dialError says what to do about a socket that cannot be opened.
func dialError(ctx context.Context, path string, err error) error {
	switch {
	case ctx.Err() != nil:
		return contextError("dial", path, ctx)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("dial %s: %w: this user may not open it: join the group of the socket (usermod -aG), and log in again (%w)", path, ErrDenied, systemError(err))
	case errors.Is(err, syscall.ECONNREFUSED) && fileKind(path) != "":
		return fmt.Errorf("dial %s: %w: %w, but a %s", path, ErrUnavailable, errNotSocket, fileKind(path))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("dial %s: %w: nobody listens there, is redlockd running? (%w)", path, ErrUnavailable, systemError(err))
	case errors.Is(err, syscall.EINVAL) && len(path) > ipc.MaxSocketPath:
		return fmt.Errorf("dial %s: %w: the path has %d bytes; a socket's may have at most %d (%w)", path, ErrUnavailable, len(path), ipc.MaxSocketPath, systemError(err))
	}
	return fmt.Errorf("dial %s: %w: %w", path, ErrUnavailable, systemError(err))
}

// errNotSocket means that the path of the socket names another kind of file.
var errNotSocket = errors.New("it is not a socket")

// fileKind names the kind of a file that is not a socket. It returns "" for a socket, and if the
// file cannot be examined.
func fileKind(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil || info.Mode().Type() == fs.ModeSocket:
		return ""
	case info.IsDir():
		return "directory"
	case info.Mode().IsRegular():
		return "regular file"
	}
	return "file of another kind"
}

// systemError returns the system's error without the path: the caller names the path.
func systemError(err error) error {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return err
}

// greet sends HELLO, and waits for the answer until ctx is done.
func (c *Client) greet(ctx context.Context, l *link) error {
	stop := context.AfterFunc(ctx, func() { l.conn.SetDeadline(time.Unix(1, 0)) })
	err := l.hello(c.clock)
	if !stop() {
		return contextError(op(ipc.VerbHello), "", ctx) // the deadline of the connection is in the past, or will be
	}
	if _, refused := errors.AsType[*Error](err); refused || err == nil {
		return err
	}
	return endError(err, c.ctx.Err() != nil, l.saidBye, l.refused)
}

// hello sends HELLO and reads up to the answer. HELLO is the first request, so its answer is the
// only one with a tag.
func (l *link) hello(clock func() time.Duration) error {
	req := ipc.Request{Tag: "0", Verb: ipc.VerbHello, Words: []string{protocolVersion}}
	sent := clock()
	_, failed := l.conn.Write(req.AppendTo(nil))
	for {
		var r ipc.Response
		if err := l.readLine(&r); errors.Is(err, io.EOF) && failed != nil {
			return failed // otherwise the daemon may have said why the write failed
		} else if err != nil {
			return err
		}
		switch {
		case r.Kind == ipc.KindEvent && r.Event == ipc.EventBack:
			return errRestarted
		case r.Kind == ipc.KindEvent:
			l.saidBye = l.saidBye || r.Event == ipc.EventBye
		case r.Kind == ipc.KindErr && r.Tag == "":
			l.refused = refusalError("connection", "", &r)
		case r.Tag != req.Tag:
			return fmt.Errorf("%w: %w", errProtocol, errNoCall)
		case r.Kind == ipc.KindErr:
			return refusalError(op(req.Verb), "", &r)
		case r.Kind == ipc.KindOK:
			l.clock.note(&r, sent, clock())
			return nil
		}
	}
}

// readLine reads one line from the daemon into r.
func (l *link) readLine(r *ipc.Response) error {
	line, err := l.in.ReadSlice('\n')
	if err == nil {
		err = ipc.ParseResponse(line[:len(line)-1], r)
	} else if !errors.Is(err, bufio.ErrBufferFull) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w: %.80q", errProtocol, err, line)
	}
	return nil
}

// read passes each line to the core until an error, and returns it.
func (c *Client) read(l *link) error {
	var r ipc.Response
	for {
		if err := l.readLine(&r); err != nil {
			return err
		}
		c.enter()
		err := net.ErrClosed
		if c.link == l {
			err = c.core.line(&r)
		}
		c.exit()
		if err != nil {
			return fmt.Errorf("%w: %w: tag %.20q", errProtocol, err, r.Tag)
		}
	}
}

// flush writes until nothing is left or the socket is full. So the requests of many goroutines are
// combined into few writes: the first goroutine writes for all. No goroutine blocks in a write: if the
// socket is full, because the daemon is slow or hangs, a separate goroutine writes the rest. Closing the
// connection ends it.
func (c *Client) flush(l *link) {
	for chunk := c.takeOut(l); chunk != nil; chunk = c.takeOut(l) {
		n, err := l.tryWrite(chunk)
		if err != nil {
			c.writeFailed(l, err)
		} else if n < len(chunk) {
			c.spawn(func() { c.finish(l, chunk[n:]) })
			return
		}
	}
}

// finish writes the rest that the socket did not take at once, however long that takes, and then what
// the core has added.
func (c *Client) finish(l *link, chunk []byte) {
	for ; chunk != nil; chunk = c.takeOut(l) {
		if _, err := l.conn.Write(chunk); err != nil {
			c.writeFailed(l, err)
		}
	}
}

// takeOut returns what is to be written. It returns nil and ends writing if nothing is.
func (c *Client) takeOut(l *link) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	chunk := c.core.out
	if c.link != l || len(chunk) == 0 {
		l.writing = false
		return nil
	}
	c.core.out, l.spare = l.spare[:0], nil
	if cap(chunk) <= maxSpare {
		l.spare = chunk // used again only after this one is written
	}
	return chunk
}

func (c *Client) writeFailed(l *link, err error) {
	c.enter()
	c.core.writeFailed(l.number, err)
	c.exit()
}

// spawn runs f on a goroutine that Close waits for. f must return when the connection ends. Once run has
// ended, spawn does nothing.
func (c *Client) spawn(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasEnded {
		c.background.Go(f) // run is still counted, so the counter does not rise from zero while Close waits
	}
}

// tryWrite writes what the socket takes without blocking.
func (l *link) tryWrite(chunk []byte) (int, error) {
	if l.raw == nil {
		return 0, nil
	}
	l.chunk, l.n, l.writeErr = chunk, 0, nil
	if err := l.raw.Write(l.tryOnce); err != nil {
		return 0, err
	}
	return l.n, l.writeErr
}

// write returns true, which ends the wait for the socket: the caller handles the rest.
func (l *link) write(fd uintptr) bool {
	for l.n < len(l.chunk) {
		n, err := ipc.RawWrite(fd, l.chunk[l.n:])
		switch {
		case err == nil:
			l.n += n
		case errors.Is(err, syscall.EAGAIN):
			return true
		case !errors.Is(err, syscall.EINTR):
			l.writeErr = err
			return true
		}
	}
	return true
}

// hangUp shuts the connection down, also for processes that have inherited it, so that the daemon
// reads its end. A close in this process alone would not end it.
func (l *link) hangUp() {
	if socket, ok := l.conn.(*net.UnixConn); ok {
		_ = socket.CloseWrite() // fails if the connection has ended
	}
	l.conn.Close()
}
