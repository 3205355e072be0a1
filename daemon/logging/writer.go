package logging

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Writer passes log lines to an output that may block, such as a pipe that nobody
// reads, and never blocks the caller: the same goroutines extend leases and report
// losses. It counts and drops lines that arrive faster than they can be written.
type Writer struct {
	to      io.Writer
	journal bool // to is a stream of systemd's journal, see JournalLines
	lines   chan []byte
	dropped atomic.Int64
	flush   chan chan<- struct{} // sent by Flush, which waits until run closes the inner channel
	closing chan struct{}
	done    chan struct{}
}

const (
	maxQueued    = 1024        // lines that wait to be written
	closeTimeout = time.Second // for Close and Flush to write the queued lines
)

// NewWriter starts a goroutine that writes to to, until Close ends it.
func NewWriter(to io.Writer) *Writer { return newWriter(to, false) }

// NewJournalWriter is NewWriter for a stream of systemd's journal: each line begins
// with its priority. [New] leaves out the time then, because the journal adds it.
func NewJournalWriter(to io.Writer) *Writer { return newWriter(to, true) }

func newWriter(to io.Writer, journal bool) *Writer {
	w := &Writer{to: to, journal: journal, lines: make(chan []byte, maxQueued), flush: make(chan chan<- struct{}), closing: make(chan struct{}), done: make(chan struct{})}
	go w.run() // Close ends it and waits for it, but at most for closeTimeout
	return w
}

// Write queues one entry. It never fails and never blocks.
func (w *Writer) Write(entry []byte) (int, error) { return w.LevelWrite(hclog.NoLevel, entry) }

// LevelWrite is Write with the level of the entry. It makes Writer an hclog.LevelWriter.
func (w *Writer) LevelWrite(level hclog.Level, entry []byte) (int, error) {
	select {
	case w.lines <- w.withPriority(level, entry):
	default:
		w.dropped.Add(1)
	}
	return len(entry), nil
}

// withPriority copies the entry. For the journal it adds priorities.
func (w *Writer) withPriority(level hclog.Level, entry []byte) []byte {
	if w.journal {
		return JournalLines(level, entry)
	}
	return bytes.Clone(entry)
}

// Flush waits until the queued lines are written, at most closeTimeout.
func (w *Writer) Flush() {
	written, late := make(chan struct{}), time.After(closeTimeout)
	select {
	case w.flush <- written:
	case <-w.done:
		return
	case <-late:
		return
	}
	select {
	case <-written:
	case <-late:
	}
}

// Close writes the queued lines. It fails if that takes longer than closeTimeout.
func (w *Writer) Close() error {
	close(w.closing)
	select {
	case <-w.done:
		return nil
	case <-time.After(closeTimeout):
		return fmt.Errorf("the log could not be written within %v", closeTimeout)
	}
}

func (w *Writer) run() {
	defer close(w.done)
	for {
		select {
		case line := <-w.lines:
			w.write(line)
		case written := <-w.flush:
			w.drain()
			close(written)
		case <-w.closing:
			w.drain()
			return
		}
	}
}

func (w *Writer) drain() {
	for {
		select {
		case line := <-w.lines:
			w.write(line)
		default:
			return
		}
	}
}

// write ignores errors: there is no other place to report them.
func (w *Writer) write(line []byte) {
	w.to.Write(line)
	if n := w.dropped.Swap(0); n > 0 {
		w.to.Write(w.withPriority(hclog.Warn, fmt.Appendf(nil, "%d log lines were dropped: they came faster than they could be written\n", n)))
	}
}
