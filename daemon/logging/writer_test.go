package logging

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
)

// blockedWriter blocks each Write until released is closed, like a pipe that nobody reads.
type blockedWriter struct {
	bytes.Buffer
	released chan struct{}
}

func (w *blockedWriter) Write(p []byte) (int, error) {
	<-w.released
	return w.Buffer.Write(p)
}

// Lines that cannot be written are counted, and the log reports them.
func TestLogNeverBlocks(t *testing.T) {
	to := &blockedWriter{released: make(chan struct{})}
	w := NewWriter(to)
	for range 2 * maxQueued {
		w.Write([]byte("line\n"))
	}
	close(to.released)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(to.String(), "log lines were dropped") {
		t.Errorf("the dropped lines are not reported")
	}
	if written := strings.Count(to.String(), "line\n"); written < maxQueued {
		t.Errorf("%d lines were written, want at least %d", written, maxQueued)
	}
}

// When Flush returns, the lines are written. If the output blocks, it returns after a timeout.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &blockedWriter{released: make(chan struct{})}
		w := NewWriter(to)
		w.Write([]byte("line\n"))
		w.Flush()
		close(to.released)
		w.Write([]byte("another\n"))
		w.Flush()
		if got := to.String(); got != "line\nanother\n" {
			t.Errorf("got %q, want both lines", got)
		}
		w.Close()
		w.Flush()
	})
}
