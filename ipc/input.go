package ipc

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// readSize is what is read at once. It is more than a line, so that a line
// always fits.
const readSize = 16 << 10

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// input takes what a connection receives apart into lines. It holds a buffer
// only while something is in it, so that idle connections cost nothing. It
// belongs to the goroutine that reads.
type input struct {
	conn     net.Conn
	raw      syscall.RawConn // waits without a buffer; nil where conn is no socket
	buf      *[readSize]byte // nil while it is empty
	from, to int             // what of buf is not taken yet
	ahead    []byte          // comes before what the connection receives
	skipping bool            // what follows is the rest of a line that was too long
	wait     lineWait        // for the end of the line that is begun

	tryRead  func(fd uintptr) bool // in.read, kept so that reading allocates nothing
	tryWatch func(fd uintptr) bool // hungUp, likewise
	most     int                   // tryRead reads no more at once
	n        int                   // results of tryRead
	err      error
}

func newInput(conn net.Conn, raw syscall.RawConn) input {
	return input{conn: conn, raw: raw, tryWatch: hungUp}
}

// line is the next line without its LF; ok is false if none is complete. A line
// that is too long is returned once, as its first MaxLine bytes, before it is
// complete. The line is valid until the next receive.
func (in *input) line() (line []byte, ok bool) {
	if in.skip(); in.from == in.to {
		return nil, false
	}
	rest := in.buf[in.from:in.to]
	end := bytes.IndexByte(rest, '\n')
	switch {
	case end >= 0:
		in.from += end + 1
		in.wait = lineWait{}
		return rest[:end], true
	case len(rest) >= MaxLine:
		in.from = in.to
		in.skipping = true
		return rest[:MaxLine], true
	}
	return nil, false
}

// skip drops what is there of a line that was too long.
func (in *input) skip() {
	if in.skipping && in.from < in.to {
		in.from += in.skipIn(in.buf[in.from:in.to])
	}
	if in.skipping && len(in.ahead) > 0 {
		in.ahead = in.ahead[in.skipIn(in.ahead):]
	}
}

// skipIn is how many bytes to skip, and ends that where the line does.
func (in *input) skipIn(b []byte) int {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return len(b)
	}
	in.skipping, in.wait = false, lineWait{}
	return end + 1
}

// begun tells that of a line a part has been received, or skipped, and no more is here.
func (in *input) begun() bool { return len(in.ahead) == 0 && (in.skipping || in.from < in.to) }

// unread is how many bytes are here and not taken.
func (in *input) unread() int { return in.to - in.from + len(in.ahead) }

// appendUnread appends them.
func (in *input) appendUnread(b []byte) []byte {
	if in.from < in.to {
		b = append(b, in.buf[in.from:in.to]...)
	}
	return append(b, in.ahead...)
}

// receive waits for more, and takes at most so many bytes. It returns io.EOF at the
// end, and a timeout when the connection's read deadline wakes it.
func (in *input) receive(most int) error {
	in.compact()
	if len(in.ahead) > 0 {
		in.receiveAhead()
		return nil
	}
	if in.most = most; in.raw == nil {
		return in.receivePlain()
	}
	if in.tryRead == nil {
		in.tryRead = in.read
	}
	if err := in.raw.Read(in.tryRead); err != nil {
		return err
	}
	return in.received(in.n, in.err)
}

// receiveNow is receive without waiting. It is false if nothing is there.
func (in *input) receiveNow() (err error, some bool) {
	if in.raw == nil {
		return nil, false
	}
	in.compact()
	if err := in.raw.Control(func(fd uintptr) { some = in.read(fd) }); err != nil {
		return err, true
	}
	if !some {
		return nil, false
	}
	return in.received(in.n, in.err), true
}

// receiveAhead takes what an earlier process received.
func (in *input) receiveAhead() {
	in.borrow()
	n := copy(in.buf[in.to:], in.ahead)
	in.to += n
	if in.ahead = in.ahead[n:]; len(in.ahead) == 0 {
		in.ahead = nil
	}
}

// receivePlain is for connections that are no sockets, such as net.Pipe's.
func (in *input) receivePlain() error {
	in.borrow()
	n, err := in.conn.Read(in.room())
	if n == 0 && err == nil {
		return nil
	}
	return in.received(n, err)
}

// read reads once without waiting, and tells whether that was to any effect.
func (in *input) read(fd uintptr) bool {
	in.borrow()
	for {
		in.n, in.err = RawRead(fd, in.room())
		switch {
		case in.err == nil:
			return true
		case errors.Is(in.err, syscall.EAGAIN):
			in.giveBack()
			return false
		case !errors.Is(in.err, syscall.EINTR):
			return true
		}
	}
}

// room is for what is read next.
func (in *input) room() []byte {
	return in.buf[in.to:min(in.to+in.most, readSize)]
}

func (in *input) received(n int, err error) error {
	if n > 0 {
		in.to += n
		return nil
	}
	in.giveBack()
	if err == nil {
		return io.EOF
	}
	return err
}

// compact makes room behind the beginning of a line, which is shorter than MaxLine.
func (in *input) compact() {
	if in.buf != nil {
		in.from, in.to = 0, copy(in.buf[:], in.buf[in.from:in.to])
		in.giveBack()
	}
}

func (in *input) borrow() {
	if in.buf == nil {
		in.buf = readBuffers.Get().(*[readSize]byte)
	}
}

// giveBack returns the buffer if it is empty.
func (in *input) giveBack() {
	if in.buf != nil && in.from == in.to {
		readBuffers.Put(in.buf)
		in.buf, in.from, in.to = nil, 0, 0
	}
}

// discard forgets what was not taken.
func (in *input) discard() {
	in.from, in.ahead = in.to, nil
	in.giveBack()
}

// canWatch tells whether watch works.
func (in *input) canWatch() bool { return in.raw != nil }

// watch waits until the other side has closed altogether: it neither sends nor
// reads. It reads nothing, and returns a timeout when the read deadline wakes it.
func (in *input) watch() error { return in.raw.Read(in.tryWatch) }

// closedByPeer tells whether the other side has closed altogether, as far as
// can be known. What has no halves has.
func (in *input) closedByPeer() bool {
	if in.raw == nil {
		return true
	}
	closed := false
	err := in.raw.Control(func(fd uintptr) { closed = hungUp(fd) })
	return closed || err != nil
}
