package logging

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// LogWriter hands log lines on to a writer that may block, such as a pipe that
// nobody reads, without ever blocking who logs: leases are extended and losses
// told on the same goroutines. Lines that come faster than they can be written
// are counted and dropped.
type Writer struct {
	to      io.Writer
	journal bool // to is a stream of systemd's journal: see JournalLines
	lines   chan []byte
	dropped atomic.Int64
	closing chan struct{}
	done    chan struct{}
}

const (
	logLines = 1024        // that wait to be written
	logClose = time.Second // in which they have to be written at the end
)

// NewLogWriter starts to write to to. Close must be called at the end.
func NewWriter(to io.Writer) *Writer { return newWriter(to, false) }

// NewJournalWriter is NewLogWriter where to is a stream of systemd's journal: each line
// begins with its priority. [NewLogger] leaves out the time then, which the journal has.
func NewJournalWriter(to io.Writer) *Writer { return newWriter(to, true) }

func newWriter(to io.Writer, journal bool) *Writer {
	w := &Writer{to: to, journal: journal, lines: make(chan []byte, logLines), closing: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

// Write takes one entry. It never fails and never blocks.
func (w *Writer) Write(entry []byte) (int, error) { return w.LevelWrite(hclog.NoLevel, entry) }

// LevelWrite is Write for a logger, which knows the level (hclog.LevelWriter).
func (w *Writer) LevelWrite(level hclog.Level, entry []byte) (int, error) {
	select {
	case w.lines <- w.marked(level, entry):
	default:
		w.dropped.Add(1)
	}
	return len(entry), nil
}

// marked is a copy of the entry as it is to be written.
func (w *Writer) marked(level hclog.Level, entry []byte) []byte {
	if w.journal {
		return JournalLines(level, entry)
	}
	return bytes.Clone(entry)
}

// Close writes what waits, for a second at most.
func (w *Writer) Close() error {
	close(w.closing)
	select {
	case <-w.done:
		return nil
	case <-time.After(logClose):
		return fmt.Errorf("the log could not be written within %v", logClose)
	}
}

func (w *Writer) run() {
	defer close(w.done)
	for {
		select {
		case line := <-w.lines:
			w.write(line)
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

// write has nowhere to report an error to: the log itself cannot be written.
func (w *Writer) write(line []byte) {
	w.to.Write(line)
	if n := w.dropped.Swap(0); n > 0 {
		w.to.Write(w.marked(hclog.Warn, fmt.Appendf(nil, "%d log lines were dropped: they came faster than they could be written\n", n)))
	}
}
