package daemon

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// LogWriter hands log lines on to a writer that may block, such as a pipe that
// nobody reads, without ever blocking who logs: leases are extended and losses
// told on the same goroutines. Lines that come faster than they can be written
// are counted and dropped.
type LogWriter struct {
	to      io.Writer
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
func NewLogWriter(to io.Writer) *LogWriter {
	w := &LogWriter{to: to, lines: make(chan []byte, logLines), closing: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

// Write takes one line. It never fails and never blocks.
func (w *LogWriter) Write(line []byte) (int, error) {
	select {
	case w.lines <- append([]byte(nil), line...):
	default:
		w.dropped.Add(1)
	}
	return len(line), nil
}

// Close writes what waits, for a second at most.
func (w *LogWriter) Close() error {
	close(w.closing)
	select {
	case <-w.done:
		return nil
	case <-time.After(logClose):
		return fmt.Errorf("the log could not be written within %v", logClose)
	}
}

func (w *LogWriter) run() {
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

func (w *LogWriter) drain() {
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
func (w *LogWriter) write(line []byte) {
	w.to.Write(line)
	if n := w.dropped.Swap(0); n > 0 {
		fmt.Fprintf(w.to, "%d log lines were dropped: they came faster than they could be written\n", n)
	}
}
