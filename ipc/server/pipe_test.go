package server

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// These tests run on fake time. A synctest bubble ends only when all goroutines of the server have
// ended.

// pipeFake serves one end of a pipe, and closes the channel when serving ends.
func pipeFake(d *fakeDaemon) (net.Conn, <-chan struct{}) {
	here, there := net.Pipe()
	over := make(chan struct{})
	go func() {
		defer close(over)
		d.ServeConn(there)
	}()
	return here, over
}

func TestPipeClosedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		nc, over := pipeFake(d)
		say(t, nc, "@a LOCK x\nLOCK y\nPING\n")
		synctest.Wait()
		start := time.Now()
		nc.Close()
		<-over
		if took := time.Since(start); took != 0 {
			t.Errorf("noticed after %v, want at once", took)
		}
		d.hearEnds(t, "input gone=true", "close")
		d.wantNotCut(t)
	})
}

// wantNotCut checks that the client ended the connection, not the server.
func (d *fakeDaemon) wantNotCut(t *testing.T) {
	t.Helper()
	if c := d.newest(); c.WasCut() || len(d.drops) != 0 {
		t.Errorf("cut because of %v, and %d times", c.out.failure(), len(d.drops))
	}
}

// Every call of Context returns the same context.
func TestCallContextIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		var contexts []context.Context
		d.Open = func(c *Conn) (Session, error) {
			return &beginning{fakeSession{d, c}, func(call *Call) Work {
				return workFunc(func() {
					contexts = append(contexts, call.Context(), call.Context())
					<-contexts[0].Done()
					call.Reply(call.OK())
				})
			}}, nil
		}
		nc, over := pipeFake(d)
		say(t, nc, "@a LOCK x\n")
		synctest.Wait()
		nc.Close()
		<-over
		if contexts[0] != contexts[1] || context.Cause(contexts[1]) != ErrGone {
			t.Errorf("the causes are %v and %v", context.Cause(contexts[0]), context.Cause(contexts[1]))
		}
	})
}

// The context of a call ends with the call, even if a goroutine still uses it.
func TestCallContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		var ctx context.Context
		d.Open = func(c *Conn) (Session, error) {
			return &beginning{fakeSession{d, c}, func(call *Call) Work {
				ctx = call.Context()
				call.Reply(call.OK())
				return nil
			}}, nil
		}
		nc, over := pipeFake(d)
		say(t, nc, "PING\n")
		hear(t, nc, "OK\n")
		<-ctx.Done()
		if cause := context.Cause(ctx); cause != context.Canceled {
			t.Errorf("the cause is %v, want %v", cause, context.Canceled)
		}
		nc.Close()
		<-over
	})
}

// beginning is a session whose Begin is a function of the test.
type beginning struct {
	fakeSession
	begin func(*Call) Work
}

func (b *beginning) Begin(call *Call) Work { return b.begin(call) }

// Unread returns the number of bytes that the client has not read. The test then closes the
// session.
func TestPipeUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		nc, over := pipeFake(d)
		wantUnread := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := d.newest().Unread(); got != want {
				t.Errorf("%d bytes are unread, want %d", got, want)
			}
		}
		say(t, nc, "FORCE a\n")
		wantUnread(len("LOST lock=a\nOK\n"))
		hear(t, nc, "LOST lock=a\nOK\n")
		wantUnread(0)
		say(t, nc, "QUIT\n")
		wantUnread(len("OK\n"))
		d.hearEnds(t, "input gone=false")
		if len(d.ends) != 0 {
			t.Error("the session is closed before the last answer is read")
		}
		hearEnd(t, nc, "OK\n")
		<-over
		d.hearEnds(t, "close")
	})
}

// If a connection is cut, output that waits for its turn or for the client does not delay its end.
func TestPipeCutWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		d.PauseOutput = 1
		nc, over := pipeFake(d)
		say(t, nc, "LOCK x\nPING\n")
		synctest.Wait()
		c := d.newest()
		for range 2 { // one line is being written, and one waits
			c.Send((&ipc.Response{}).Notice(ipc.EventLost))
		}
		synctest.Wait()
		c.cutOff(ErrSlow)
		<-over
		if why := <-d.drops; why != ErrSlow || !c.WasCut() {
			t.Errorf("cut because of %v", why)
		}
		d.hearEnds(t, "input gone=true", "close")
	})
}

// If Close of a session panics, nothing else ends.
func TestPipeCloseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		d.Open = func(c *Conn) (Session, error) { return &failing{fakeSession{d, c}}, nil }
		nc, over := pipeFake(d)
		say(t, nc, "QUIT\n")
		hearEnd(t, nc, "OK\n")
		<-over
		d.hearDefects(t, "close")
	})
}

// failing panics in Close.
type failing struct{ fakeSession }

func (*failing) Close() { panic("close") }

// If a client reads nothing, the server cuts it exactly when the write timeout has passed.
func TestPipeWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		nc, over := pipeFake(d)
		start := time.Now()
		say(t, nc, "PING\n")
		<-over
		if took := time.Since(start); took != DefaultWriteTimeout {
			t.Errorf("cut after %v, want %v", took, DefaultWriteTimeout)
		}
		if why := <-d.drops; !errors.Is(why, ErrSlow) {
			t.Errorf("cut because of %v", why)
		}
		if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("reading gives %v, want the end", err)
		}
	})
}

// A client that reads slowly, but meets the timeout of each write, is not cut.
func TestPipeSlowReaderInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		nc, over := pipeFake(d)
		for range 3 {
			say(t, nc, "@a PING\n")
			time.Sleep(DefaultWriteTimeout - 1) // fake time
			hear(t, nc, "@a OK\n")
		}
		nc.Close()
		<-over
	})
}

func TestPipeQuitWaitsForRunningRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		nc, over := pipeFake(d)
		say(t, nc, "@a LOCK x\n@q QUIT\n")
		hear(t, nc, "@q OK\n")
		d.hearEnds(t, "input gone=false")
		d.conns[0].Cancel("a")
		hearEnd(t, nc, "@a ERR CANCELLED : cancelled by the client\n")
		<-over
		d.hearEnds(t, "close")
	})
}

// CloseAfterReplies of another goroutine wakes a connection that only reads.
func TestPipeCloseAfterRepliesWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		nc, over := pipeFake(d)
		synctest.Wait()
		d.conns[0].CloseAfterReplies()
		hearEnd(t, nc, "")
		<-over
	})
}

func TestPipeShutdownBoundByContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		nc, over := pipeFake(d)
		say(t, nc, "PING\n") // the test never reads the answer
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if err := d.Shutdown(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		<-over
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it took %v, want 3s", took)
		}
	})
}

// Every caller of Shutdown waits for the end. The first caller's function chooses the last lines.
func TestPipeShutdownTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		nc, over := pipeFake(d)
		say(t, nc, "PING\n")
		synctest.Wait()
		downs := make(chan error, 2)
		for _, word := range []string{"FIRST", "SECOND"} {
			go func() {
				downs <- d.Shutdown(t.Context(), func(Session) *ipc.Response { return new(ipc.Response).Notice(word) })
			}()
			synctest.Wait()
		}
		hearEnd(t, nc, "OK\nFIRST\n")
		<-over
		for range cap(downs) {
			if err := <-downs; err != nil {
				t.Error(err)
			}
		}
	})
}

// If the queue is full, reading pauses. Queued lines are answered in order.
func TestPipePausesAtFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		d.MaxQueued = 100
		nc, over := pipeFake(d)
		written := make(chan struct{})
		go func() {
			defer close(written)
			say(t, nc, "LOCK x\n", strings.Repeat("PING\n", 10000), "@a PING\n")
		}()
		synctest.Wait()
		select {
		case <-written:
			t.Error("all was read although the queue is full")
		default:
		}
		close(d.channel(d.gates, "x"))
		hear(t, nc, "OK lock=x\n"+strings.Repeat("OK\n", 10000)+"@a OK\n")
		nc.Close()
		<-over
	})
}

// While an answer is being appended to the output, the next request without a tag does not begin,
// even if the reading goroutine checks at that moment. Otherwise its answer could come first.
func TestPipeAnswerIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		var nc net.Conn
		var over <-chan struct{}
		d.Refused = func(ipc.Code) {
			say(t, nc, "PING\n@a PING\n")
			time.Sleep(time.Millisecond) // fake time: until every goroutine waits
		}
		nc, over = pipeFake(d)
		say(t, nc, "BEAT x\n")
		hear(t, nc, "@a OK\nERR INTERNAL : "+defectText+"\nOK\n")
		nc.Close()
		<-over
	})
}
