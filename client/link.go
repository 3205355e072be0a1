package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// readBuffer holds many replies, and more than the longest line.
const readBuffer = 4 * ipc.MaxLine

// errProtocol: what is read is none of this protocol.
var errProtocol = errors.New("it does not speak the protocol")

// link is one connection of a Client. One goroutine reads it, whose bye and notice are.
type link struct {
	c      *Client
	number uint64 // from 1 on
	conn   net.Conn
	in     *bufio.Reader
	out    *sender
	ctx    context.Context // ends with the connection
	end    context.CancelFunc

	bye          bool   // the daemon said that it is stopping
	hangUpReason *Error // why the daemon hangs up on a new connection
}

// errRestarted: the answer to HELLO may have been lost, in a restart that kept the
// connection. Said twice, it could be answered twice: another connection is simpler.
var errRestarted = errors.New("it was restarted meanwhile")

// newLink dials and makes sure that the other side speaks version 1, until ctx is
// done. No link is left when it fails.
func (c *Client) newLink(ctx context.Context, number uint64) (*link, error) {
	for {
		l, err := c.tryLink(ctx, number)
		if !errors.Is(err, errRestarted) || ctx.Err() != nil {
			return l, err
		}
	}
}

func (c *Client) tryLink(ctx context.Context, number uint64) (*link, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{c: c, number: number, conn: conn, in: bufio.NewReaderSize(newInput(conn), readBuffer)}
	l.out = newSender(conn, c.spawn, c.calls.severalInUse)
	l.ctx, l.end = context.WithCancel(c.ctx)
	if err := errors.Join(c.inheritIfWanted(l), l.greet(ctx)); err != nil {
		l.end()
		l.hangUp()
		return nil, fmt.Errorf("dial %s: %w", c.path, err)
	}
	return l, nil
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, dialError(ctx, path, err)
	}
	return conn, nil
}

// dialError says what can be done about a socket that cannot be opened.
func dialError(ctx context.Context, path string, err error) error {
	switch {
	case ctx.Err() != nil:
		return contextError("dial", path, ctx)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("dial %s: %w: this user needs the group of the socket: %w", path, ErrDenied, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("dial %s: %w: nobody listens there, is redlockd running? %w", path, ErrUnavailable, err)
	case errors.Is(err, syscall.EINVAL) && len(path) > ipc.MaxSocketPath:
		return fmt.Errorf("dial %s: %w: the path is %d bytes long, and a socket's may be %d: %w", path, ErrUnavailable, len(path), ipc.MaxSocketPath, err)
	}
	return fmt.Errorf("dial %s: %w: %w", path, ErrUnavailable, err)
}

// greet says HELLO, and waits for the answer until ctx is done.
func (l *link) greet(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { l.conn.SetDeadline(time.Unix(1, 0)) })
	err := l.hello()
	if !stop() {
		return contextError(op(ipc.VerbHello), "", ctx) // the deadline of the connection is, or will be, spoilt
	}
	if _, refused := errors.AsType[*Error](err); refused {
		return err
	} else if err != nil {
		return l.endError(err)
	}
	return nil
}

// hello reads up to the answer. It is the first request: no other reply has a tag.
func (l *link) hello() error {
	req := ipc.Request{Tag: "0", Verb: ipc.VerbHello, Words: []string{protocolVersion}}
	_, failed := l.conn.Write(req.AppendTo(nil))
	for {
		var r ipc.Response
		if err := l.readLine(&r); err != nil {
			return readOrWriteError(failed, err)
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
			return nil
		}
	}
}

// cmpOr prefers what was read last to a write that failed: the daemon may have
// said why.
func readOrWriteError(written, read error) error {
	if errors.Is(read, io.EOF) && written != nil {
		return written
	}
	return read
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

// readLines returns why there are no more lines.
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

// ending says why the connection is over.
func (l *link) endError(err error) error {
	switch {
	case l.c.closed():
		return ErrClosed
	case l.hangUpReason != nil:
		return fmt.Errorf("%w: it hung up: %w", ErrUnavailable, l.hangUpReason)
	case l.bye:
		return fmt.Errorf("%w: it said BYE", ErrShutdown)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it hung up: stopped or killed?", ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// isEndedHere tells whether the daemon may take the end of the connection for that of its
// client: it has neither ended it itself nor said BYE. So it is where writing failed for a
// fault of this host (no memory for what is to be sent), and nothing is read any more.
func (l *link) isEndedHere(err error) bool {
	switch {
	case errors.Is(err, errProtocol):
		return true
	case l.bye:
		return false
	}
	return !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET)
}

// leaves: the daemon stops, and will hang up. It is not waited for too long.
func (l *link) daemonStops() {
	if !l.bye {
		l.bye = true
		l.conn.SetReadDeadline(time.Now().Add(lastWords)) // fails only if the connection is closed: as well
	}
}

// hangUp ends the connection, for processes that have inherited it as well: the
// daemon reads its end, which it would not where only this process closed it.
func (l *link) hangUp() {
	if socket, ok := l.conn.(*net.UnixConn); ok {
		_ = socket.CloseWrite() // it fails where the connection has ended
	}
	l.conn.Close()
}

// passOn makes a connection one that is inherited, where that is wanted.
func (c *Client) inheritIfWanted(l *link) error {
	c.mu.Lock()
	wanted := c.inherit
	c.mu.Unlock()
	if !wanted {
		return nil
	}
	if err := inheritable(l.conn); err != nil {
		return fmt.Errorf("inherit: %w", err)
	}
	return nil
}
