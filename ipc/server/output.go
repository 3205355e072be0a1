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

// flushSize is the number of bytes that are collected before a write.
const flushSize = 64 << 10

// output combines the answers of many goroutines into few writes. Each goroutine appends its
// answer, and the first one writes for all. No goroutine of a request blocks in a write: if the
// socket is full, a separate goroutine writes the rest. finish waits for it.
type output struct {
	conn         net.Conn
	raw          syscall.RawConn // writes without blocking; nil if conn is no socket
	pause        int             // with more unwritten bytes, no request begins
	limit        int             // with as many unwritten bytes, an append ends the connection
	timeout      time.Duration   // of a write that blocks
	spawn        func(func())    // starts a goroutine that the connection waits for
	othersAnswer func() bool     // reports whether another goroutine may be about to append
	onIdle       func()          // called whenever writing has ended for now
	onFailure    func(error)     // called once, when nothing can be written any more

	size atomic.Int64 // bytes that are not written yet

	mu      sync.Mutex // guards the fields below; not held during I/O; no other mutex is taken inside it
	pending *buffer    // nil: nothing
	corked  bool       // the reading goroutine is about to append more, and will write
	writing bool       // a goroutine writes, and will write what is pending too
	err     error      // why nothing is appended any more, or nil

	tryWrite func(fd uintptr) bool // o.write, kept so that writing allocates nothing
	chunk    []byte                // what tryWrite writes
	n        int                   // its results; tryWrite, chunk and n belong to the goroutine that writes
	writeErr error
}

// append queues lines and then r. It writes unless another goroutine is about to.
func (o *output) append(lines []byte, r *ipc.Response) {
	write, err := o.queue(lines, r)
	switch {
	case err != nil:
		o.onFailure(err)
	case write:
		if o.othersAnswer() {
			runtime.Gosched() // goroutines that are about to answer join this write
		}
		o.flush()
	}
}

// queue appends, and reports whether the caller has to write. The first caller that exceeds the
// limit gets the error.
func (o *output) queue(lines []byte, r *ipc.Response) (write bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return false, nil
	case o.size.Load() >= int64(o.limit):
		o.failWithLocked(ErrSlow)
		return false, ErrSlow
	case o.pending == nil:
		o.pending = newBuffer()
	}
	before := len(o.pending.b)
	o.pending.b = append(o.pending.b, lines...)
	o.pending.b = r.AppendTo(o.pending.b)
	o.size.Add(int64(len(o.pending.b) - before))
	return o.beginLocked(), nil
}

// beginLocked reports whether the caller has to write now. The caller holds mu.
func (o *output) beginLocked() bool {
	if o.writing || o.corked || o.pending == nil {
		return false
	}
	o.writing = true
	return true
}

// cork delays writing until uncork, which must follow soon.
func (o *output) cork() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.corked = true
}

func (o *output) uncork() {
	o.mu.Lock()
	o.corked = false
	write := o.beginLocked()
	o.mu.Unlock()
	if write {
		o.flush()
	}
}

// isFull reports whether the client reads too slowly for more requests to begin.
func (o *output) isFull() bool { return o.size.Load() > int64(o.pause) }

// isDrained reports whether nothing is left to write, or nothing can be written.
func (o *output) isDrained() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.writing && o.pending == nil
}

// close ends the output if everything is written, or cannot be. It returns false while a goroutine
// writes.
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

// stop discards unwritten bytes, and everything later. It reports whether the output had not ended
// before.
func (o *output) stop(err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return false
	}
	o.failWithLocked(err)
	return true
}

// failure returns why nothing can be written any more, or nil if the output ended normally.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, net.ErrClosed) {
		return nil
	}
	return o.err
}

// failWithLocked ends the output. The caller holds mu.
func (o *output) failWithLocked(err error) {
	o.err = err
	if o.pending != nil {
		o.size.Add(-int64(len(o.pending.b)))
		o.pending.free()
		o.pending = nil
	}
}

// maxTurns is how many chunks a goroutine writes for others.
const maxTurns = 16

// flush writes until nothing is pending, the socket is full, or it has written maxTurns chunks. A
// new goroutine writes the rest.
func (o *output) flush() {
	for turn := 0; ; turn++ {
		chunk := o.take()
		if chunk == nil {
			o.onIdle()
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
		o.finishChunk(chunk, err)
	}
}

// maxWrite is the size of one write. A Unix socket of Linux takes a write of this size either whole
// or not at all: it becomes one buffer if it is smaller than 36 KiB and than half of SO_SNDBUF.
const maxWrite = 32 << 10

// wholeLines returns the beginning of b to write at once. It ends with a line: the connection may
// outlast the process, even a killed one, and the next process cannot continue half an answer.
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

// flushSlowly writes what the socket did not take at once, from byte n of the first chunk, and then
// everything pending.
func (o *output) flushSlowly(chunk *buffer, n int) {
	for ; chunk != nil; chunk, n = o.take(), 0 {
		o.conn.SetWriteDeadline(time.Now().Add(o.timeout)) // fails only if the write will
		err := o.writeAll(chunk.b[n:])
		o.conn.SetWriteDeadline(time.Time{})
		o.finishChunk(chunk, err)
	}
	o.onIdle()
}

func (o *output) writeAll(b []byte) (err error) {
	for n := 0; len(b) > 0 && err == nil; b = b[n:] {
		n, err = o.conn.Write(wholeLines(b))
	}
	return err
}

// take returns what is pending. It returns nil and ends writing if nothing is.
func (o *output) take() *buffer {
	o.mu.Lock()
	defer o.mu.Unlock()
	chunk := o.pending
	o.pending = nil
	o.writing = chunk != nil
	return chunk
}

// finishChunk frees a chunk that was written, or whose write failed.
func (o *output) finishChunk(chunk *buffer, err error) {
	o.size.Add(-int64(len(chunk.b)))
	chunk.free()
	if err == nil {
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrSlow
	}
	if o.stop(err) {
		o.onFailure(err)
	}
}

// writeSome writes what fits into the socket without blocking.
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

// write returns true, which ends the wait for the socket: flushSlowly writes the rest.
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

// buffer holds bytes to be written.
type buffer struct{ b []byte }

// maxKept is the largest buffer that is reused.
const maxKept = 2 * flushSize

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func newBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) free() {
	if cap(b.b) <= maxKept {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}

// Farewell writes the last words on a connection before it is closed. It does not wait: a few lines
// fit into the socket, or its client does not read. (A deadline would not do: if this process is
// delayed, the deadline passes before the first byte is written.)
func Farewell(nc net.Conn, words []byte) {
	if socket, ok := nc.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_, _ = (&output{raw: raw}).writeSome(words)
			return
		}
	}
	nc.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // a pipe, in tests
	_, _ = nc.Write(words)
}
