package server

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

const lineTooLong = "ERR TOOLONG : a line is at most 4096 bytes, its LF included\n"

// lateAnswer is the answer to the client of pipeLate.
const lateAnswer = "ERR SYNTAX : a line was not ended within 30s: end each line with LF; this connection ends now\nBYE resume=7\n"

// pipeLate is pipeFake with a BYE line.
func pipeLate() (*fakeDaemon, net.Conn, <-chan struct{}) {
	d := newFake()
	d.Bye = func(Session) *ipc.Response {
		return new(ipc.Response).Notice(ipc.EventBye).Ms("resume", 7*time.Millisecond)
	}
	nc, over := pipeFake(d)
	return d, nc, over
}

// isLate checks that the server ended the connection, after exactly that time, because a line was
// late.
func (d *fakeDaemon) isLate(t *testing.T, over <-chan struct{}, start time.Time, after time.Duration) {
	t.Helper()
	<-over
	if took := time.Since(start); took != after {
		t.Errorf("ended after %v, want %v", took, after)
	}
	if why := <-d.drops; !errors.Is(why, ErrLate) {
		t.Errorf("ended because of %v, want %v", why, ErrLate)
	}
	if !d.newest().WasCut() {
		t.Error("WasCut is false for a cut connection")
	}
	d.hearEnds(t, "input gone=false", "close")
}

// notCut closes the client's end, and checks that the server had not cut it.
func (d *fakeDaemon) notCut(t *testing.T, nc net.Conn, over <-chan struct{}) {
	t.Helper()
	nc.Close()
	<-over
	if len(d.drops) != 0 {
		t.Errorf("cut because of %v", <-d.drops)
	}
}

// If a client sends a line at a byte a second, the line times out exactly at the timeout. So does
// the rest of a skipped line.
func TestPipeLineTimesOut(t *testing.T) {
	for what, c := range map[string]struct{ begin, answer string }{
		"a byte":           {"P", ""},
		"a blank":          {" ", ""},
		"behind a line":    {"@a PING\nP", "@a OK\n"},
		"too long already": {strings.Repeat("x", ipc.MaxLine), lineTooLong},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, nc, over := pipeLate()
				time.Sleep(time.Hour) // fake time: a client that sends nothing is not late
				start := time.Now()
				say(t, nc, c.begin)
				var writing sync.WaitGroup
				writing.Go(func() {
					for err := error(nil); err == nil; _, err = io.WriteString(nc, "x") {
						time.Sleep(time.Second)
					}
				})
				hearEnd(t, nc, c.answer+lateAnswer)
				d.isLate(t, over, start, DefaultLineTimeout)
				nc.Close()
				writing.Wait()
			})
		})
	}
}

// Each line has its own timeout, even if its beginning came with the end of another line.
func TestPipeLineJustInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nc, over := pipeLate()
		say(t, nc, "PI")
		for range 3 {
			time.Sleep(DefaultLineTimeout - 1) // fake time
			say(t, nc, "NG\nPI")
			hear(t, nc, "OK\n")
		}
		time.Sleep(DefaultLineTimeout - 1)
		say(t, nc, "NG\n"+strings.Repeat("x", ipc.MaxLine))
		hear(t, nc, "OK\n"+lineTooLong)
		time.Sleep(DefaultLineTimeout - 1)
		say(t, nc, "x\nPI")
		time.Sleep(DefaultLineTimeout - 1)
		say(t, nc, "NG\n")
		hear(t, nc, "OK\n")
		time.Sleep(time.Hour)
		d.notCut(t, nc, over)
	})
}

// While the server does not read, no line times out. The time starts anew afterwards.
func TestPipeLineWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		d.MaxQueued = 100
		nc, over := pipeFake(d)
		lines := strings.Repeat("PING\n", 21)
		say(t, nc, "PI")
		time.Sleep(DefaultLineTimeout - 1) // fake time
		say(t, nc, "NG\nLOCK x\n"+lines+"PI")
		hear(t, nc, "OK\n")
		time.Sleep(time.Hour)
		close(d.channel(d.gates, "x"))
		hear(t, nc, "OK lock=x\n"+strings.Repeat("OK\n", 21))
		time.Sleep(DefaultLineTimeout - 1)
		say(t, nc, "NG\n")
		hear(t, nc, "OK\n")
		d.notCut(t, nc, over)
	})
}

// The same if the server pauses until the client reads.
func TestPipeLineWhileUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		d.PauseOutput = 1
		nc, over := pipeFake(d)
		say(t, nc, "@a LOCK x\nPI")
		time.Sleep(DefaultLineTimeout / 2) // fake time
		close(d.channel(d.gates, "x"))
		time.Sleep(DefaultWriteTimeout - 1)
		hear(t, nc, "@a OK lock=x\n")
		time.Sleep(DefaultLineTimeout - 1)
		say(t, nc, "NG\n")
		hear(t, nc, "OK\n")
		d.notCut(t, nc, over)
	})
}

// Earlier requests are answered first, in order. The timeout does not wait for them.
func TestPipeLineTimesOutAfterRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nc, over := pipeLate()
		start := time.Now()
		say(t, nc, "LOCK y\nPING\n@a PING\nPI")
		hear(t, nc, "@a OK\n")
		hearEnd(t, nc, "ERR INTERNAL : "+ErrLate.Error()+"\nOK\n"+lateAnswer)
		d.isLate(t, over, start, DefaultLineTimeout)
	})
}

// If a part of a line was read before a restart, its time starts anew.
func TestPipeRestoredLineTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		tab.rest = "PI"
		d, nc := pipeRestored(t, tab)
		time.Sleep(DefaultLineTimeout - 1) // fake time
		say(t, nc, "N")
		start := time.Now()
		hearEnd(t, nc, strings.TrimSuffix(lateAnswer, "BYE resume=7\n"))
		if took := time.Since(start); took != 1 {
			t.Errorf("ended after another %v, want 1ns", took)
		}
		d.hearEnds(t, "input gone=false", "close")
	})
}

// Shutdown wakes a connection that waits for the rest of a line.
func TestPipeHalfLineShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nc, over := pipeLate()
		start := time.Now()
		say(t, nc, "PI")
		synctest.Wait()
		go d.Shutdown(t.Context(), func(Session) *ipc.Response { return new(ipc.Response).Notice(ipc.EventBye) })
		hearEnd(t, nc, "BYE\n")
		<-over
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v, want no time", took)
		}
	})
}

// If the process did not run when the line was due, it first takes what has come meanwhile. It does
// so once.
func TestLineTimesOutAfterPause(t *testing.T) {
	d := newFake()
	d.LineTimeout = time.Nanosecond
	file, nc := socketPair(t)
	defer file.Close()
	c := newConn(&d.Server, nc)
	c.session, _ = d.open(c)
	receive := func(text string) (lines int) {
		t.Helper()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		c.receive()
		for {
			if _, ok := c.in.line(); !ok {
				return lines
			}
			lines++
		}
	}
	receive("PI")
	c.in.deadline.due = time.Now().Add(-time.Second)
	if lines := receive("NG\nPI"); lines != 1 || c.lineTimedOut.Load() {
		t.Fatalf("%d lines were taken, want that which had come; late: %v", lines, c.lineTimedOut.Load())
	}
	c.in.deadline.due = time.Now().Add(-time.Second)
	if receive("N"); c.lineTimedOut.Load() {
		t.Fatal("what had come was not taken")
	}
	if receive("G"); !c.lineTimedOut.Load() {
		t.Fatal("the server waits again for a client that goes on sending")
	}
	nc.Close()
}

// A wake just before the wait for the rest of a line ends that wait. The same holds if the line's
// bytes were already taken from the socket.
func TestWakeBeforeWaitForLineEnd(t *testing.T) {
	d := newFake()
	file, nc := socketPair(t)
	defer file.Close()
	c := newConn(&d.Server, nc)
	if _, err := file.WriteString("PI"); err != nil {
		t.Fatal(err)
	}
	c.receive()
	c.takePartialLine()
	c.wake()
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		c.receive()
	}()
	await(t, woken, "the wake")
	nc.Close()
}
