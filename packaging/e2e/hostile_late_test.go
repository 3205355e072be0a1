//go:build linux

package e2e

import (
	"strings"
	"testing"
	"time"
)

// lineTimeout is how long a line may take after its first byte.
const lineTimeout = 30 * time.Second

// The daemon drops a client that does not end a line. That takes half a minute, in which other
// tests run.
func TestUnendedLineIsDropped(t *testing.T) {
	w := newSlowWriter(t)
	t.Parallel()
	w.isDropped()
}

// slowWriter is a client that begins a line and sends one more byte each second.
type slowWriter struct {
	*arena
	bad, idle *guest
	start     time.Time
	told      chan error   // whether the daemon has sent anything to bad
	at        time.Time    // when told received
	next      chan granted // the grant to the waiter for the lock that bad holds
	stop      chan struct{}
}

func newSlowWriter(t *testing.T) *slowWriter {
	t.Helper()
	w := &slowWriter{arena: newArena(t), told: make(chan error, 1), next: make(chan granted, 1), stop: make(chan struct{})}
	w.bad, w.idle = w.as(t, badUser), w.as(t, goodUser)
	w.bad.ask("LOCK kept ttl=6s", "OK lock=kept") // extended every 2 s
	waiter := w.as(t, goodUser)
	waiter.write("LOCK kept\n")
	go func() {
		line, _ := waiter.in.ReadString('\n')
		w.next <- granted{line, time.Now()}
	}()
	t.Cleanup(func() { close(w.stop) })
	w.start = time.Now()
	w.bad.conn.SetReadDeadline(w.start.Add(lineTimeout + patience))
	go drop(w.bad, w.stop)
	go func() {
		_, err := w.bad.in.Peek(1)
		w.at = time.Now()
		w.told <- err
	}()
	return w
}

// isDropped checks that the daemon sends the error after half a minute, not before, and drops the
// client. The client keeps its lock until its stated deadline. The daemon does not drop clients
// that only wait.
func (w *slowWriter) isDropped() {
	w.t.Helper()
	if err := await(w.t, lineTimeout+2*patience, w.told, "an answer to a line that does not end", nil); err != nil {
		w.t.Fatalf("the client that writes a byte a second got nothing: %v", err)
	}
	w.bad.comes("ERR SYNTAX : a line was not ended within 30s")
	if took := w.at.Sub(w.start); took < lineTimeout || took > lineTimeout+patience/2 {
		w.t.Errorf("got the error after %v, want %v", took, lineTimeout)
	}
	w.bad.comes("BYE resume=0 ")
	if line, more := w.bad.line(); more {
		w.t.Errorf("got %s after BYE, want the end", line)
	}
	if line := awaitLog(w.daemon, "connection cut"); !strings.Contains(line, "the client did not end a line in time") || !strings.Contains(line, "uid=") {
		w.t.Errorf("the log says %s, want the reason and the user", line)
	}
	next := await(w.t, 2*patience, w.next, "the lock of the client that was cut to be granted to the next one", w.daemon.stderr.text)
	if kept := next.at.Sub(w.at); !strings.HasPrefix(next.line, "OK lock=kept") || kept < 3*time.Second {
		w.t.Errorf("%v after the error the waiter got %s, want the lock at its deadline, because the holder may still work", kept, next.line)
	}
	w.idle.ask("PING", "OK")
}

// drop sends one byte a second of a line without an end.
func drop(bad *guest, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for bad.write("x") {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}
