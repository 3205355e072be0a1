package server

import (
	"bytes"
	"github.com/redlockd/redlockd/ipc"
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
	earlier  []byte          // comes before what the connection receives
	skipping bool            // what follows is the rest of a line that was too long
	deadline lineDeadline    // for the end of the line that is begun
	partial  int             // of that line, bytes that were seen in the socket, and left there

	tryRead  func(fd uintptr) bool // in.read, kept so that reading allocates nothing
	tryWatch func(fd uintptr) bool // hungUp, likewise
	ended    func(fd uintptr) bool // endsBehind
	most     int                   // tryRead takes no more at once, but for a line
	n        int                   // results of tryRead
	err      error
}

func newInput(conn net.Conn, raw syscall.RawConn) input {
	return input{conn: conn, raw: raw, tryWatch: isHungUp, ended: otherSideEnded}
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
		in.deadline = lineDeadline{}
		return rest[:end], true
	case len(rest) >= ipc.MaxLine:
		in.from = in.to
		in.skipping = true
		return rest[:ipc.MaxLine], true
	}
	return nil, false
}

// skip drops what is there of a line that was too long.
func (in *input) skip() {
	if in.skipping && in.from < in.to {
		in.from += in.skipIn(in.buf[in.from:in.to])
	}
	if in.skipping && len(in.earlier) > 0 {
		in.earlier = in.earlier[in.skipIn(in.earlier):]
	}
}

// skipIn is how many bytes to skip, and ends that where the line does.
func (in *input) skipIn(b []byte) int {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return len(b)
	}
	in.skipping, in.deadline = false, lineDeadline{}
	return end + 1
}

// begun tells that of a line a part has come, or was skipped, and no more is here.
func (in *input) hasPartialLine() bool {
	return len(in.earlier) == 0 && (in.skipping || in.from < in.to || in.partial > 0)
}

// unread is how many bytes are here and not taken.
func (in *input) unread() int { return in.to - in.from + len(in.earlier) }

// appendUnread appends them.
func (in *input) appendUnread(b []byte) []byte {
	if in.from < in.to {
		b = append(b, in.buf[in.from:in.to]...)
	}
	return append(b, in.earlier...)
}

// compact makes room behind the beginning of a line, which is shorter than MaxLine.
func (in *input) compact() {
	if in.buf != nil {
		in.from, in.to = 0, copy(in.buf[:], in.buf[in.from:in.to])
		in.returnBuffer()
	}
}

func (in *input) borrowBuffer() {
	if in.buf == nil {
		in.buf = readBuffers.Get().(*[readSize]byte)
	}
}

// giveBack returns the buffer if it is empty.
func (in *input) returnBuffer() {
	if in.buf != nil && in.from == in.to {
		readBuffers.Put(in.buf)
		in.buf, in.from, in.to = nil, 0, 0
	}
}

// discard forgets what was not taken. Were it left in the socket, the client would hear
// of a reset instead of the end.
func (in *input) discard() {
	if in.partial > 0 {
		in.takePartial()
	}
	in.from, in.earlier = in.to, nil
	in.returnBuffer()
}
