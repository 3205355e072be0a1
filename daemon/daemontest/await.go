package daemontest

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for an event that should come at once. It bounds a failing test,
// never a passing one.
const Patience = 2 * time.Minute

// pollEvery is how often Eventually checks.
const pollEvery = 2 * time.Millisecond

// Eventually polls until isSo returns true. Use it for state that no event reports: keys on a node,
// answers to queries, descriptors of a process, the state of a package. Use Log.Await for a line of
// a log, and a channel for everything that has one.
func Eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for !isSo() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(pollEvery)
	}
}

// Log records a log. The zero value is ready, and several goroutines may use it.
type Log struct {
	mu      sync.Mutex // guards the fields below
	text    strings.Builder
	written chan struct{} // the next Write closes it; nil: no goroutine waits for it
}

// Write appends lines to the log.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written != nil {
		close(l.written)
		l.written = nil
	}
	return l.text.Write(line)
}

// String returns everything that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Await waits until the log contains a text.
func (l *Log) Await(t *testing.T, text string) {
	t.Helper()
	l.AwaitThat(t, text, func(log string) bool { return strings.Contains(log, text) })
}

// AwaitThat checks the log after each write, until isSo returns true.
func (l *Log) AwaitThat(t *testing.T, what string, isSo func(log string) bool) {
	t.Helper()
	late := time.After(Patience)
	for {
		log, written := l.next()
		if isSo(log) {
			return
		}
		select {
		case <-written:
		case <-late:
			t.Fatalf("never logged: %s; logged was:\n%s", what, log)
		}
	}
}

// next returns the log, and a channel that is closed at the next write.
func (l *Log) next() (log string, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written == nil {
		l.written = make(chan struct{})
	}
	return l.text.String(), l.written
}
