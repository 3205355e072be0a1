package daemontest

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen at once. It bounds a failing test,
// never a passing one.
const Patience = 20 * time.Second

// pollEvery is how often Eventually asks.
const pollEvery = 2 * time.Millisecond

// Eventually asks until it is so. It is for what nobody reports: keys on a node, answers to
// questions, the descriptors of a process, the state of a package. Wait for a line of a log
// with Log.Await, and for everything else that has a channel on that channel.
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

// Log keeps what is logged. The zero value is ready for use, by several goroutines.
type Log struct {
	mu      sync.Mutex // guards what follows
	text    strings.Builder
	written chan struct{} // closed by the next Write; nil: nobody waits for it
}

// Write takes lines of the log.
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

// Await waits until the log has a text.
func (l *Log) Await(t *testing.T, text string) {
	t.Helper()
	l.AwaitThat(t, text, func(log string) bool { return strings.Contains(log, text) })
}

// AwaitThat looks at the log after each line of it, until it is so.
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

// next returns what was logged, and a channel that is closed when there is more.
func (l *Log) next() (log string, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written == nil {
		l.written = make(chan struct{})
	}
	return l.text.String(), l.written
}
