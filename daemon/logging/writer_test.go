package logging

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
)

// blockedWriter is a pipe that nobody reads until it is released.
type blockedWriter struct {
	bytes.Buffer
	released chan struct{}
}

func (w *blockedWriter) Write(p []byte) (int, error) {
	<-w.released
	return w.Buffer.Write(p)
}

// TestLogNeverBlocks: what cannot be written is counted, and said so.
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
		t.Errorf("nothing is said of the dropped lines")
	}
	if written := strings.Count(to.String(), "line\n"); written < maxQueued {
		t.Errorf("%d lines written, want those that fit, %d", written, maxQueued)
	}
}

// TestFlush: the lines are written when it returns, but it does not wait forever for an output
// that blocks.
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
			t.Errorf("%q is written, want both lines", got)
		}
		w.Close()
		w.Flush()
	})
}
