//go:build linux

package e2e

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A client that sends requests but reads no answers delays no other client, and the daemon cuts it.
// That takes half a minute, in which other tests run.
func TestClientThatDoesNotReadIsCut(t *testing.T) {
	d := newDeaf(t)
	t.Parallel() // only now, because measurements beside it run first
	d.isCut()
}

// deaf is a client that sends requests and reads no answers.
type deaf struct {
	*arena
	guest  *guest
	before figures
	next   chan granted // the grant to the waiter for its lock
}

// granted is an answer with its time.
type granted struct {
	line string
	at   time.Time
}

func newDeaf(t *testing.T) *deaf {
	t.Helper()
	d := &deaf{arena: newArena(t), next: make(chan granted, 1)}
	d.prober = startProber(t, d.socket)
	d.guest = d.as(t, badUser)
	d.guest.ask("LOCK deaf ttl=3s", "OK lock=deaf")
	d.before = d.probe()
	d.guest.conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)) // by then the daemon reads no more
	io.WriteString(d.guest.conn, strings.Repeat("HELP\n@a LIST\n", 100_000))
	d.isNoDelay()
	d.wait()
	return d
}

// wait lets another client wait for the lock.
func (d *deaf) wait() {
	d.t.Helper()
	waiter := d.as(d.t, goodUser)
	waiter.write("LOCK deaf\n")
	go func() { // ends with the connection at the latest
		line, _ := waiter.in.ReadString('\n')
		d.next <- granted{line, time.Now()}
	}()
}

// isNoDelay compares measurements with earlier ones.
func (d *deaf) isNoDelay() {
	d.t.Helper()
	now := d.probeBeside(d.before)
	d.t.Logf("measured: beside a client that does not read: before: %v; meanwhile: %v", d.before, now)
	for _, slower := range now.slower(d.before, "meanwhile") {
		d.t.Error(slower)
	}
	d.isSmall()
}

func (d *deaf) isSmall() {
	d.t.Helper()
	if grown := d.rss() - d.before.rss; grown > 16*mib {
		d.t.Errorf("the daemon has taken %d MiB more, want at most 16", grown/mib)
	}
}

// isCut checks that the log reports the cut. The daemon releases the client's lease at its stated
// deadline, not before. When the client reads, it reaches the end of the connection.
func (d *deaf) isCut() {
	d.t.Helper()
	line := awaitLog(d.daemon, "connection cut")
	if !strings.Contains(line, "uid=5002") || !strings.Contains(line, "does not read its answers") {
		d.t.Errorf("the log says %s, want the user 5002 and the reason", line)
	}
	stamp, _, _ := strings.Cut(line, " ")
	cut, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		d.t.Fatal(err)
	}
	next := await(d.t, 2*patience, d.next, "the lock of the client that was cut to be granted to the next one", d.daemon.stderr.text)
	if kept := next.at.Sub(cut); !strings.HasPrefix(next.line, "OK lock=deaf") || kept < 1500*time.Millisecond {
		d.t.Errorf("%v after the cut the next one got %s, want the lock, not before the deadline of a lease that is extended every second", kept, next.line)
	}
	d.isSmall()
	d.guest.conn.SetReadDeadline(time.Now().Add(patience))
	unread, err := io.Copy(io.Discard, d.guest.conn)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) || unread > mib { // a reset, because the daemon did not read all of the client's output
		d.t.Errorf("it reads %d bytes, and then %v; want at most 1 MiB, and the end", unread, err)
	}
}
