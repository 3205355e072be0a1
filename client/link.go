package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// readBuffer holds many replies, and is longer than the longest line.
const readBuffer = 4 * ipc.MaxLine

// errProtocol means that the other side sent something that is not this protocol.
var errProtocol = errors.New("it does not speak the protocol")

// link is one connection of a Client. One goroutine reads it, and owns bye and hangUpReason.
type link struct {
	c    *Client
	conn net.Conn
	in   *bufio.Reader
	out  *sender
	ctx  context.Context // ends with the connection
	end  context.CancelFunc

	bye          bool   // the daemon said BYE
	hangUpReason *Error // the reason with which the daemon closed a new connection
}

// errRestarted means that a restart kept the connection, and may have lost the answer to HELLO. The
// client then makes another connection, because the daemon could answer a second HELLO twice.
var errRestarted = errors.New("it was restarted meanwhile")

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
		l := &link{c: c, conn: conn, in: bufio.NewReaderSize(newInput(conn), readBuffer), out: newSender(conn, c.spawn, &c.mu)}
		l.ctx, l.end = context.WithCancel(c.ctx)
		if err = l.greet(ctx); err == nil {
			return l, nil
		}
		l.end()
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
func (l *link) greet(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { l.conn.SetDeadline(time.Unix(1, 0)) })
	err := l.hello()
	if !stop() {
		return contextError(op(ipc.VerbHello), "", ctx) // the deadline of the connection is in the past, or will be
	}
	if _, refused := errors.AsType[*Error](err); refused {
		return err
	} else if err != nil {
		return l.endError(err)
	}
	return nil
}

// hello sends HELLO and reads up to the answer. HELLO is the first request, so its answer is the
// only one with a tag.
func (l *link) hello() error {
	req := ipc.Request{Tag: "0", Verb: ipc.VerbHello, Words: []string{protocolVersion}}
	sent := l.c.clock()
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
			l.bye = l.bye || r.Event == ipc.EventBye
		case r.Kind == ipc.KindErr && r.Tag == "":
			l.hangUpReason = refusalError("connection", "", &r)
		case r.Tag != req.Tag:
			return fmt.Errorf("%w: %w", errProtocol, errNoCall)
		case r.Kind == ipc.KindErr:
			return refusalError(op(req.Verb), "", &r)
		case r.Kind == ipc.KindOK:
			l.c.daemonClock.note(&r, sent, l.c.clock())
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

// readLines reads until an error, and returns it.
func (l *link) readLines() error {
	var r ipc.Response
	for {
		if err := l.readLine(&r); err != nil {
			return err
		}
		if err := l.handleLine(&r); err != nil {
			return fmt.Errorf("%w: %w: tag %.20q", errProtocol, err, r.Tag)
		}
	}
}

// endError returns why the connection has ended.
func (l *link) endError(err error) error {
	switch {
	case l.c.closed():
		return ErrClosed
	case l.hangUpReason != nil:
		return fmt.Errorf("%w: it closed the connection: %w", ErrUnavailable, l.hangUpReason)
	case l.bye:
		return fmt.Errorf("%w: it said BYE", ErrShutdown)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it closed the connection (stopped or killed?)", ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// noteDaemonStopping is called when the daemon says that it stops and will close the connection. It
// bounds the wait for that.
func (l *link) noteDaemonStopping() {
	if !l.bye {
		l.bye = true
		l.conn.SetReadDeadline(time.Now().Add(byeTimeout)) // fails only if the connection is already closed
	}
}

// hangUp shuts the connection down, also for processes that have inherited it, so that the daemon
// reads its end. A close in this process alone would not end it.
func (l *link) hangUp() {
	if socket, ok := l.conn.(*net.UnixConn); ok {
		_ = socket.CloseWrite() // fails if the connection has ended
	}
	l.conn.Close()
}
