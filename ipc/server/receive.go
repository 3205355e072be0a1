package server

import (
	"bytes"
	"errors"
	"github.com/redlockd/redlockd/ipc"
	"io"
	"syscall"
)

// This file is how an input gets what the client sends. From a socket whole lines are
// taken: the beginning of a line stays there until its end has come. The socket
// outlasts the process, also one that is killed, and what was taken may not: the rest
// of such a line would be read as a request of its own, as LOCK is of UNLOCK.

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
