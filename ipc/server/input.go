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

// leftFor is how long the beginning of a line is left in the socket, where it takes room
// far beyond its bytes: who sends a byte at a time cannot send hundreds.
const partialLineWait = 20 * time.Millisecond

// lineWait is how long the rest of a line is waited for.
type lineDeadline struct {
	due    time.Time // zero: it is not waited for yet
	take   time.Time // what was left in the socket by then is taken
	looked bool      // once it was due, what had come already was taken
}

// waitUntil is the next instant at which something is to be done about a line that is
// begun.
func (in *input) nextDeadline() time.Time {
	if in.partial > 0 && in.deadline.take.Before(in.deadline.due) {
		return in.deadline.take
	}
	return in.deadline.due
}

// receive waits for more, and takes at most so many bytes, or a line. It returns io.EOF
// at the end, and a timeout when the connection's read deadline wakes it.
func (in *input) receive(most int) error {
	in.compact()
	if len(in.earlier) > 0 {
		in.receiveEarlier()
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
	return in.received()
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
	return in.received(), true
}

// receiveAhead takes what an earlier process received.
func (in *input) receiveEarlier() {
	in.borrowBuffer()
	n := copy(in.buf[in.to:], in.earlier)
	in.to += n
	if in.earlier = in.earlier[n:]; len(in.earlier) == 0 {
		in.earlier = nil
	}
}

// receivePlain is for connections that are no sockets, such as net.Pipe's.
func (in *input) receivePlain() error {
	in.borrowBuffer()
	in.n, in.err = in.conn.Read(in.buf[in.to:min(in.to+in.most, readSize)])
	return in.received()
}

func (in *input) received() error {
	in.to += in.n
	in.returnBuffer()
	if in.n > 0 {
		return nil // an error comes again
	}
	return in.err
}

// read looks once without waiting, and tells whether that was to any effect.
func (in *input) read(fd uintptr) (news bool) {
	in.borrowBuffer()
	switch n, err := in.peek(fd); {
	case n > 0 && peeks:
		in.n, in.err, news = in.takeSeen(fd, in.buf[in.to:in.to+n])
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

// peek sees what is there: none at the end, also where the beginning of a line is left
// that has been seen before, and is not too long. The end is looked for first: what came
// before it is there.
func (in *input) peek(fd uintptr) (n int, err error) {
	n, err = rawPeek(fd, in.room())
	if n <= 0 || n != in.partial || n >= ipc.MaxLine || !in.ended(fd) {
		return n, err
	}
	if n, err = rawPeek(fd, in.room()); n == in.partial {
		return 0, nil
	}
	return n, err
}

// room is for what is seen next. A line fits.
func (in *input) room() []byte {
	return in.buf[in.to:min(in.to+max(in.most, ipc.MaxLine), readSize)]
}

// see takes lines from the socket, of what is there, and tells how many bytes, and
// whether anything is new.
func (in *input) takeSeen(fd uintptr, seen []byte) (n int, err error, news bool) {
	if in.skipping {
		return 0, in.takeSkipped(fd, seen), true
	}
	lines := in.linesIn(seen)
	switch {
	case lines > 0:
		in.partial = len(seen) - lines
		return lines, discardSeen(fd, seen[:lines]), true
	case in.to-in.from+len(seen) >= ipc.MaxLine: // it is too long, and is taken as it is skipped
		in.partial = 0
		return len(seen), nil, true
	case len(seen) == in.partial:
		return 0, nil, false
	}
	in.partial = len(seen)
	return 0, nil, true
}

// seeSkipped takes what is there of a line that is skipped. Its LF stays, as a blank
// line, so that the journal is told that it is over before more is taken.
func (in *input) takeSkipped(fd uintptr, seen []byte) error {
	switch end := bytes.IndexByte(seen, '\n'); {
	case end < 0:
		return discardSeen(fd, seen)
	case end > 0:
		return discardSeen(fd, seen[:end])
	}
	in.skipIn(seen)
	return nil
}

// linesIn is how many bytes whole lines are: no more than in.most, but for the first.
func (in *input) linesIn(seen []byte) int {
	end := bytes.LastIndexByte(seen[:min(len(seen), in.most)], '\n')
	if end < 0 {
		end = bytes.IndexByte(seen, '\n')
	}
	return end + 1
}

// takeLeft takes the beginning of a line that was left in the socket.
func (in *input) takePartial() {
	in.compact()
	in.borrowBuffer()
	left := in.buf[in.to : in.to+in.partial]
	in.raw.Control(func(fd uintptr) { discardSeen(fd, left) }) // fails only when closed: the next read tells
	in.to += in.partial
	in.partial = 0
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
	err := in.raw.Control(func(fd uintptr) { closed = isHungUp(fd) })
	return closed || err != nil
}

// queue is lines without a tag that wait for their turn, first come first served.
type lineQueue struct {
	lines []byte // each with an LF
	from  int
}

func (q *lineQueue) empty() bool { return q.from == len(q.lines) }

// size is the bytes that wait.
func (q *lineQueue) size() int { return len(q.lines) - q.from }

// rest is the lines that wait, valid until the next push.
func (q *lineQueue) rest() []byte { return q.lines[q.from:] }

func (q *lineQueue) push(line []byte) {
	if q.from > len(q.lines)/2 {
		q.lines = q.lines[:copy(q.lines, q.lines[q.from:])]
		q.from = 0
	}
	q.lines = append(q.lines, line...)
	q.lines = append(q.lines, '\n')
}

// pop takes the first line, which is valid until the next push. The queue is
// not empty.
func (q *lineQueue) pop() []byte {
	line, _, _ := bytes.Cut(q.lines[q.from:], []byte{'\n'})
	q.from += len(line) + 1
	if q.empty() {
		*q = lineQueue{} // idle connections hold no memory
	}
	return line
}
