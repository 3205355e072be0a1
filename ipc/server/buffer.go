package server

import "sync"

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
