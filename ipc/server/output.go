package server

import (
	"bytes"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// flushSize is how much is collected before it is written although more may come.
const flushSize = 64 << 10

// output combines the answers of many goroutines into few writes: each appends
// its own, and the first writes for all that join. Nobody blocks in a write:
// what the socket does not take at once is left to a goroutine of its own.
type output struct {
	conn         net.Conn
	raw          syscall.RawConn // writes without blocking; nil where conn is no socket
	pause        int             // of unwritten bytes: with more, no request is to be begun
	limit        int             // of unwritten bytes before an append
	timeout      time.Duration   // of a write that blocks
	spawn        func(func())    // starts a goroutine that the connection waits for
	othersAnswer func() bool     // tells whether somebody else may be about to append
	ended        func()          // called whenever writing has ended for now
	failed       func(error)     // called once, when nothing can be written any more

	size atomic.Int64 // bytes that are not written yet

	mu      sync.Mutex // guards what follows; not held across I/O
	pending *buffer    // nil: nothing
	corked  bool       // the reading goroutine is about to append more, and will write
	writing bool       // somebody writes, and will write what is pending too
	err     error      // nothing is appended any more, and why

	tryWrite func(fd uintptr) bool // o.write, kept so that writing allocates nothing
	chunk    []byte                // what tryWrite writes, and
	n        int                   // its results; all three are whose writing is
	writeErr error
}

// append queues lines and then r, and writes unless somebody else is about to.
func (o *output) append(lines []byte, r *ipc.Response) {
	write, err := o.queue(lines, r)
	switch {
	case err != nil:
		o.failed(err)
	case write:
		if o.othersAnswer() {
			runtime.Gosched() // who is about to answer joins: one write for many
		}
		o.flush()
	}
}

// queue tells whether the caller has to write. The error is for the first one
// whom the limit stops.
func (o *output) queue(lines []byte, r *ipc.Response) (write bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return false, nil
	case o.size.Load() >= int64(o.limit):
		o.endWith(ErrSlow)
		return false, ErrSlow
	case o.pending == nil:
		o.pending = newBuffer()
	}
	before := len(o.pending.b)
	o.pending.b = append(o.pending.b, lines...)
	o.pending.b = r.AppendTo(o.pending.b)
	o.size.Add(int64(len(o.pending.b) - before))
	return o.begin(), nil
}

// begin tells whether the caller has to write now. It needs mu.
func (o *output) begin() bool {
	if o.writing || o.corked || o.pending == nil {
		return false
	}
	o.writing = true
	return true
}

// cork holds writing back until uncork, which must follow soon.
func (o *output) cork() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.corked = true
}

func (o *output) uncork() {
	o.mu.Lock()
	o.corked = false
	write := o.begin()
	o.mu.Unlock()
	if write {
		o.flush()
	}
}

// full tells that the client reads too slowly for more requests to be taken.
func (o *output) full() bool { return o.size.Load() > int64(o.pause) }

// written tells that nothing is left to be written, or can be.
func (o *output) written() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.writing && o.pending == nil
}

// close ends the output if everything is written, or cannot be. It is false
// while somebody writes.
func (o *output) close() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing || o.pending != nil {
		return false
	}
	if o.err == nil {
		o.err = net.ErrClosed
	}
	return true
}

// stop discards what is not written, and everything from now on. It tells
// whether this is the first end.
func (o *output) stop(err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return false
	}
	o.endWith(err)
	return true
}

// failure is why nothing could be written any more; nil where the output ended
// as it should.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, net.ErrClosed) {
		return nil
	}
	return o.err
}

// end needs mu.
func (o *output) endWith(err error) {
	o.err = err
	if o.pending != nil {
		o.size.Add(-int64(len(o.pending.b)))
		o.pending.free()
		o.pending = nil
	}
}

// maxTurns is how many chunks whoever was first writes for others.
const maxTurns = 16

// flush writes until nothing is pending, the socket takes no more, or it has
// been at it for long: the rest is left to a goroutine.
func (o *output) flush() {
	for turn := 0; ; turn++ {
		chunk := o.take()
		if chunk == nil {
			o.ended()
			return
		}
		n, err := 0, error(nil)
		if turn < maxTurns {
			n, err = o.writeSome(chunk.b)
		}
		if err == nil && n < len(chunk.b) {
			o.spawn(func() { o.flushSlowly(chunk, n) })
			return
		}
		o.wrote(chunk, err)
	}
}

// maxWrite is what is written at once. A Unix socket of Linux takes as much as this whole
// or not at all: it becomes one buffer, where less than 36 KiB and half of SO_SNDBUF is.
const maxWrite = 32 << 10

// wholeLines is the beginning of b that is written at once: no line is cut. The
// connection may outlast the process, also one that is killed, and the next one can not
// continue half an answer.
func wholeLines(b []byte) []byte {
	if len(b) <= maxWrite {
		return b
	}
	end := bytes.LastIndexByte(b[:maxWrite], '\n')
	if end < 0 {
		end = bytes.IndexByte(b, '\n')
	}
	return b[:end+1]
}

// flushSlowly writes what the socket did not take at once, from byte n of the
// first chunk, and whatever is pending then.
func (o *output) flushSlowly(chunk *buffer, n int) {
	for ; chunk != nil; chunk, n = o.take(), 0 {
		o.conn.SetWriteDeadline(time.Now().Add(o.timeout)) // fails only where the write will
		err := o.writeAll(chunk.b[n:])
		o.conn.SetWriteDeadline(time.Time{})
		o.wrote(chunk, err)
	}
	o.ended()
}

func (o *output) writeAll(b []byte) (err error) {
	for n := 0; len(b) > 0 && err == nil; b = b[n:] {
		n, err = o.conn.Write(wholeLines(b))
	}
	return err
}

// take is what is pending; nil, and nobody writes any more, if nothing is.
func (o *output) take() *buffer {
	o.mu.Lock()
	defer o.mu.Unlock()
	chunk := o.pending
	o.pending = nil
	o.writing = chunk != nil
	return chunk
}

// wrote disposes of a chunk that was written, or failed to be.
func (o *output) wrote(chunk *buffer, err error) {
	o.size.Add(-int64(len(chunk.b)))
	chunk.free()
	if err == nil {
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrSlow
	}
	if o.stop(err) {
		o.failed(err)
	}
}

// writeSome writes what the socket takes without blocking.
func (o *output) writeSome(chunk []byte) (int, error) {
	if o.raw == nil {
		return 0, nil
	}
	if o.tryWrite == nil {
		o.tryWrite = o.write
	}
	o.chunk, o.n, o.writeErr = chunk, 0, nil
	if err := o.raw.Write(o.tryWrite); err != nil {
		return 0, err
	}
	return o.n, o.writeErr
}

// write reports done in any case: what is left is flushSlowly's.
func (o *output) write(fd uintptr) bool {
	for o.n < len(o.chunk) {
		n, err := ipc.RawWrite(fd, wholeLines(o.chunk[o.n:]))
		switch {
		case err == nil:
			o.n += n
		case errors.Is(err, syscall.EAGAIN):
			return true
		case !errors.Is(err, syscall.EINTR):
			o.writeErr = err
			return true
		}
	}
	return true
}

// buffer is bytes on their way out.
type buffer struct{ b []byte }

// maxKept is the largest buffer that is used again.
const maxKept = 2 * flushSize

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func newBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) free() {
	if cap(b.b) <= maxKept {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}

// SayLast writes what is said last on a connection, before it is closed. It waits for nobody: a
// socket takes a few lines at once, or its client reads nothing. (Not with a deadline: where
// this process is held up, that is over before the first byte is written.)
func Farewell(nc net.Conn, words []byte) {
	if socket, ok := nc.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_, _ = (&output{raw: raw}).writeSome(words)
			return
		}
	}
	nc.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // a pipe, of tests
	_, _ = nc.Write(words)
}
