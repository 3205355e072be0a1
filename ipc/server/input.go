package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// readSize is the size of a read. A line of MaxLine bytes always fits.
const readSize = 16 << 10

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// input splits the bytes of a connection into lines. It has a buffer only while there is data in
// it, so an idle connection needs no memory for it. It belongs to the reading goroutine.
//
// From a socket, input takes whole lines. It leaves a partial line in the socket until the line's
// end has come. The socket outlasts the process, even a killed one, but the bytes that the process
// has taken may be lost. The next process would then read the rest of that line as a request of its
// own, such as LOCK from UNLOCK.
type input struct {
	conn     net.Conn
	raw      syscall.RawConn // waits without a buffer; nil if conn is no socket
	buf      *[readSize]byte // nil while no data is in it
	from, to int             // the bytes of buf that are not taken yet
	earlier  []byte          // bytes that an earlier process received; they come first
	skipping bool            // the next bytes are the rest of a line that was too long
	deadline lineDeadline    // for the end of a partial line
	partial  int             // bytes of a partial line that are left in the socket

	tryRead  func(fd uintptr) bool // in.read, kept so that reading allocates nothing
	tryWatch func(fd uintptr) bool // isHungUp, likewise
	isEnded  func(fd uintptr) bool // otherSideEnded, unless a test replaces it
	maxBytes int                   // number of bytes that tryRead takes at once; a longer line is taken whole
	n        int                   // results of tryRead
	err      error
}

func newInput(conn net.Conn, raw syscall.RawConn) input {
	return input{conn: conn, raw: raw, tryWatch: isHungUp, isEnded: otherSideEnded}
}

// line returns the next line without its LF, or false if no line is complete. If a line is too
// long, it returns the first MaxLine bytes, once, before the line is complete. The line is valid
// until the next receive.
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

// skip drops the bytes that have come of a line that was too long.
func (in *input) skip() {
	if in.skipping && in.from < in.to {
		in.from += in.skipIn(in.buf[in.from:in.to])
	}
	if in.skipping && len(in.earlier) > 0 {
		in.earlier = in.earlier[in.skipIn(in.earlier):]
	}
}

// skipIn returns how many bytes of b to skip. It stops skipping at the end of the line.
func (in *input) skipIn(b []byte) int {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return len(b)
	}
	in.skipping, in.deadline = false, lineDeadline{}
	return end + 1
}

// hasPartialLine reports whether a line has begun and not ended, also if it is being skipped.
func (in *input) hasPartialLine() bool {
	return len(in.earlier) == 0 && (in.skipping || in.from < in.to || in.partial > 0)
}

// unread returns the number of bytes in memory that are not taken.
func (in *input) unread() int { return in.to - in.from + len(in.earlier) }

// compact moves a partial line to the start of the buffer; it is shorter than MaxLine.
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

// returnBuffer returns the buffer to the pool if it is empty.
func (in *input) returnBuffer() {
	if in.buf != nil && in.from == in.to {
		readBuffers.Put(in.buf)
		in.buf, in.from, in.to = nil, 0, 0
	}
}

// partialLineWait is how long a partial line stays in the socket. There it uses far more kernel
// memory than its bytes: a client that sends one byte at a time can fill the socket with a few
// hundred.
const partialLineWait = 20 * time.Millisecond

// lineDeadline is the time until which the connection waits for the rest of a line.
type lineDeadline struct {
	due               time.Time // zero: not waiting yet
	take              time.Time // when to take what was left in the socket
	recheckedAfterDue bool      // after due, bytes that had already come were taken
}

// receive waits for input, and takes at most that many bytes, or one line. It returns io.EOF at the
// end, and a timeout if the read deadline wakes it.
func (in *input) receive(maxBytes int) error {
	in.compact()
	if len(in.earlier) > 0 { // what an earlier process received
		in.borrowBuffer()
		n := copy(in.buf[in.to:], in.earlier)
		in.to += n
		if in.earlier = in.earlier[n:]; len(in.earlier) == 0 {
			in.earlier = nil
		}
		return nil
	}
	if in.maxBytes = maxBytes; in.raw == nil { // not a socket, such as a net.Pipe
		in.borrowBuffer()
		in.n, in.err = in.conn.Read(in.buf[in.to:min(in.to+in.maxBytes, readSize)])
		return in.readResult()
	}
	if in.tryRead == nil {
		in.tryRead = in.read
	}
	if err := in.raw.Read(in.tryRead); err != nil {
		return err
	}
	return in.readResult()
}

// receiveNow is receive without waiting. It returns false if there is no input.
func (in *input) receiveNow() (err error, hasInput bool) {
	if in.raw == nil {
		return nil, false
	}
	in.compact()
	if err := in.raw.Control(func(fd uintptr) { hasInput = in.read(fd) }); err != nil {
		return err, true
	}
	if !hasInput {
		return nil, false
	}
	return in.readResult(), true
}

func (in *input) readResult() error {
	in.to += in.n
	in.returnBuffer()
	if in.n > 0 {
		return nil // the next read reports the error again
	}
	return in.err
}

// read reads once without waiting. It reports whether the caller has to act on the result.
func (in *input) read(fd uintptr) (news bool) {
	in.borrowBuffer()
	switch n, err := in.peek(fd); {
	case n > 0 && canPeek:
		in.n, in.err, news = in.takePeeked(fd, in.buf[in.to:in.to+n])
	case n > 0:
		in.n, in.err, news = n, nil, true
	case errors.Is(err, syscall.EAGAIN):
		news = false
	case err == nil:
		in.n, in.err, news = 0, io.EOF, true
	default:
		in.n, in.err, news = 0, err, true
	}
	if !news {
		in.returnBuffer()
	}
	return news
}

// peek looks at the bytes in the socket. It returns 0 at the end, also if only a partial line is
// left that was seen before and is not too long. It checks for the end first: all bytes before the
// end have come then. (If the client sent a descriptor with these, the bytes after them are seen only
// when they were taken.)
func (in *input) peek(fd uintptr) (n int, err error) {
	n, err = rawPeek(fd, in.room())
	if n <= 0 || n != in.partial || n >= ipc.MaxLine || !in.isEnded(fd) {
		return n, err
	}
	if n, err = rawPeek(fd, in.room()); n == in.partial && unreadIn(fd) <= n {
		return 0, nil
	}
	return n, err
}

// room returns the space for the next peek. A line always fits.
func (in *input) room() []byte {
	return in.buf[in.to:min(in.to+max(in.maxBytes, ipc.MaxLine), readSize)]
}

// takePeeked takes whole lines of the seen bytes from the socket. It returns how many bytes it took,
// and whether anything is new.
func (in *input) takePeeked(fd uintptr, seen []byte) (n int, err error, news bool) {
	if in.skipping {
		return 0, in.takeSkipped(fd, seen), true
	}
	// The length of the whole lines, at most in.maxBytes. The first line counts even if it is longer.
	lines := bytes.LastIndexByte(seen[:min(len(seen), in.maxBytes)], '\n') + 1
	if lines == 0 {
		lines = bytes.IndexByte(seen, '\n') + 1
	}
	switch {
	case lines > 0:
		in.partial = len(seen) - lines
		return lines, discardPeeked(fd, seen[:lines]), true
	case in.to-in.from+len(seen) >= ipc.MaxLine: // the line is too long, so it is taken now and skipped later
		in.partial = 0
		return len(seen), nil, true
	case len(seen) == in.partial:
		return 0, nil, false
	}
	in.partial = len(seen)
	return 0, nil, true
}

// takeSkipped takes the bytes of a line that is skipped. It leaves the LF in the socket, as a blank
// line, so that the journal learns of the line's end before more is taken.
func (in *input) takeSkipped(fd uintptr, seen []byte) error {
	switch end := bytes.IndexByte(seen, '\n'); {
	case end < 0:
		return discardPeeked(fd, seen)
	case end > 0:
		return discardPeeked(fd, seen[:end])
	}
	in.skipIn(seen)
	return nil
}

// takePartial takes a partial line that was left in the socket.
func (in *input) takePartial() {
	in.compact()
	in.borrowBuffer()
	left := in.buf[in.to : in.to+in.partial]
	in.raw.Control(func(fd uintptr) { discardPeeked(fd, left) }) // fails only if the socket is closed; the next read reports that
	in.to += in.partial
	in.partial = 0
}

// closedByPeer reports whether the peer has closed both directions. If the connection is not a
// socket, the end of reading counts as both.
func (in *input) closedByPeer() bool {
	if in.raw == nil {
		return true
	}
	closed := false
	err := in.raw.Control(func(fd uintptr) { closed = isHungUp(fd) })
	return closed || err != nil
}

// lineQueue holds lines without a tag, in order, until their turn comes.
type lineQueue struct {
	lines []byte // each with its LF
	from  int
}

func (q *lineQueue) empty() bool { return q.from == len(q.lines) }

// size returns the number of bytes in the queue.
func (q *lineQueue) size() int { return len(q.lines) - q.from }

// rest returns the lines in the queue, valid until the next push.
func (q *lineQueue) rest() []byte { return q.lines[q.from:] }

func (q *lineQueue) push(line []byte) {
	if q.from > len(q.lines)/2 {
		q.lines = q.lines[:copy(q.lines, q.lines[q.from:])]
		q.from = 0
	}
	q.lines = append(q.lines, line...)
	q.lines = append(q.lines, '\n')
}

// pop takes the first line, which is valid until the next push. The queue must not be empty.
func (q *lineQueue) pop() []byte {
	line, _, _ := bytes.Cut(q.lines[q.from:], []byte{'\n'})
	q.from += len(line) + 1
	if q.empty() {
		*q = lineQueue{} // an idle connection holds no memory
	}
	return line
}
