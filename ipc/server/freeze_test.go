package server

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// stored is a connection whose server end has a duplicate.
type stored struct {
	nc  net.Conn // the client's end
	dup net.Conn // the duplicate of the server's end
}

func (d *fakeDaemon) dialStored(t *testing.T) stored {
	t.Helper()
	nc := d.dial(t)
	say(t, nc, "PING\n")
	hear(t, nc, "OK\n")
	c := d.newest()
	t.Cleanup(func() { c.nc.Close() })
	return stored{nc, duplicateOf(t, c)}
}

// newest returns the connection that was added last.
func (d *fakeDaemon) newest() *Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conns[len(d.conns)-1]
}

// startFrozen serves on a real socket for a test that freezes the server itself.
func startFrozen(t *testing.T, tab *table, set func(*fakeDaemon)) *fakeDaemon {
	t.Helper()
	d := tab.daemon()
	if set != nil {
		set(d)
	}
	d.path = t.TempDir() + "/s"
	l, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- d.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		l.Close()
		if err := await(t, served, "Serve"); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return d
}

// restart returns a daemon that continues the connection from the table.
func (t *table) restart(tb testing.TB, dup net.Conn) (*fakeDaemon, *Restored) {
	tb.Helper()
	d := t.daemon()
	r := t.restore(tb, &d.Server, dup)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.Shutdown(ctx, nil); err != nil {
			tb.Errorf("Shutdown: %v", err)
		}
	})
	return d, r
}

func keepAll(Session) bool { return true }

func freeze(t *testing.T, s *Server, how FreezeOptions) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Freeze(ctx, how); err != nil {
		t.Fatalf("Freeze: %v", err)
	}
}

// A client has waiting requests, with and without tags, and a partial line after them. It notices
// nothing of a restart. The server does not read the partial line before.
func TestFreezeAndRestore(t *testing.T) {
	tab := newTable()
	d := startFrozen(t, tab, nil)
	s := d.dialStored(t)
	say(t, s.nc, "@a LOCK x\nLOCK y\nPING\nUNLOCK z\n@b PING\nPI")
	hear(t, s.nc, "@b OK\n")
	d.waiting(t, "x")
	d.waiting(t, "y")
	freeze(t, &d.Server, FreezeOptions{Keep: keepAll, Seal: tab.seal})
	if tab.rest != "PING\nUNLOCK z\n" || len(tab.open) != 2 {
		t.Errorf("noted are the rest %q and %v", tab.rest, tab.open)
	}
	say(t, s.nc, "NG\n@c PING\n") // while no daemon runs

	d2, r := tab.restart(t, s.dup)
	hear(t, s.nc, "@c OK\n")
	d2.waiting(t, "x")
	d2.waiting(t, "y")
	r.Conn().Send(new(ipc.Response).Notice(ipc.EventBack))
	hear(t, s.nc, "BACK\n")
	close(d2.channel(d2.gates, "y"))
	hear(t, s.nc, "OK lock=y\nOK\nOK lock=z\nOK\n")
	close(d2.channel(d2.gates, "x"))
	hear(t, s.nc, "@a OK lock=x\n")
	if len(tab.open) > 0 {
		t.Errorf("open are still %v", tab.open)
	}
	say(t, s.nc, "QUIT\n")
	hearEnd(t, s.nc, "OK\n")
	d2.hearEnds(t, "input gone=false", "close")
	select {
	case end := <-d.ends:
		t.Errorf("the frozen session got %q", end)
	default:
	}
	close(d.channel(d.gates, "x"))
	close(d.channel(d.gates, "y"))
}

// After Freeze, answers and events are dropped, and no session or context ends.
func TestFreezeIsSilent(t *testing.T) {
	tab := newTable()
	d := startFrozen(t, tab, nil)
	s := d.dialStored(t)
	say(t, s.nc, "@a LOCK x\nLOCK y\n@b PING\n")
	hear(t, s.nc, "@b OK\n")
	d.waiting(t, "x")
	d.waiting(t, "y")
	freeze(t, &d.Server, FreezeOptions{Keep: keepAll})
	close(d.channel(d.gates, "x"))
	close(d.channel(d.gates, "y"))
	c := d.newest()
	c.wg.Wait() // waits for both Works, which have replied
	c.Send(new(ipc.Response).Notice(ipc.EventLost))
	say(t, s.nc, "PING\n")
	if err := d.Shutdown(t.Context(), nil); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	tab.hearLog(t, "asked @a LOCK x", "asked LOCK y")
	checkNoGoroutines(t)
	if _, err := d.Restore(s.dup); !errors.Is(err, ErrShutdown) {
		t.Errorf("Restore: %v, want ErrShutdown", err)
	}
	hearNothing(t, s.nc)
	if len(d.defects) > 0 {
		t.Errorf("a defect that is none: %s", <-d.defects)
	}
}

// hearNothing checks that nothing was sent. (A read with a deadline in the past would not look.)
func hearNothing(t *testing.T, nc net.Conn) {
	t.Helper()
	got, n, err := make([]byte, 1000), 0, error(nil)
	rawOf(nc).Control(func(fd uintptr) { n, err = ipc.RawRead(fd, got) })
	if !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("the client read %q: %v", got[:max(n, 0)], err)
	}
}

// An answer right before Freeze is written, even if the reading goroutine was about to add more.
func TestPipeFreezeBetweenTwoLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		d := tab.daemon()
		open, frozen := d.Open, make(chan error, 1)
		d.Open = func(c *Conn) (Session, error) {
			session, err := open(c)
			return freezer{session.(journaled), func() {
				go func() { frozen <- d.Freeze(t.Context(), FreezeOptions{Keep: keepAll, Seal: tab.seal}) }()
				for !c.freezing.Load() {
					runtime.Gosched()
				}
			}}, err
		}
		nc, over := pipeFake(d)
		say(t, nc, "@a PING\n@b PING\n")
		hear(t, nc, "@a OK\n")
		if err := <-frozen; err != nil {
			t.Errorf("Freeze: %v", err)
		}
		<-over
		tab.mu.Lock()
		defer tab.mu.Unlock()
		if tab.rest != "@b PING\n" {
			t.Errorf("the rest is %q, want what was not begun", tab.rest)
		}
	})
}

// freezer freezes the server during Begin.
type freezer struct {
	journaled
	freeze func()
}

func (f freezer) Begin(call *Call) Work {
	f.freeze()
	return f.journaled.Begin(call)
}

// Connections that are not kept end as in Shutdown, before Seal is called.
func TestFreezeEndsTheOthers(t *testing.T) {
	tab := newTable()
	d := startFrozen(t, tab, nil)
	s := d.dialStored(t)
	keep := d.firstConn(t)
	idle, waiting, half := d.dial(t), d.dial(t), d.dial(t)
	say(t, waiting, "@a LOCK x\nLOCK y\nPING\n")
	say(t, half, "QUIT\n")
	hearEnd(t, half, "OK\n")
	d.hearEnds(t, "input gone=false", "close")
	say(t, idle, "PING\n")
	hear(t, idle, "OK\n")
	d.waiting(t, "x")
	d.waiting(t, "y")
	freeze(t, &d.Server, FreezeOptions{
		Keep: func(s Session) bool { return s.(journaled).conn == keep },
		Bye: func(s Session) *ipc.Response {
			if s.(journaled).conn == keep {
				t.Error("the kept connection gets a BYE")
			}
			return new(ipc.Response).Notice(ipc.EventBye).Ms("resume", time.Second)
		},
		Seal: func() {
			d.hearEndsOf(t, 2)
			tab.seal()
		},
	})
	hearEnd(t, idle, "BYE resume=1000\n")
	hearSorted(t, waiting, "@a ERR SHUTDOWN : the daemon is stopping\n",
		"ERR SHUTDOWN : the daemon is stopping\n", "ERR SHUTDOWN : the daemon is stopping\n", "BYE resume=1000\n")
	tab.restart(t, s.dup)
	say(t, s.nc, "PING\n")
	hear(t, s.nc, "OK\n")
}

// If a client has sent QUIT, its connection ends, even if Keep would keep it.
func TestFreezeEndsQuittingConnections(t *testing.T) {
	tab := newTable()
	d := startFrozen(t, tab, nil)
	s := d.dialStored(t)
	say(t, s.nc, "@a LOCK x\nQUIT\n")
	d.waiting(t, "x")
	hear(t, s.nc, "OK\n")
	freeze(t, &d.Server, FreezeOptions{Keep: keepAll, Seal: tab.seal})
	hearEnd(t, s.nc, "@a ERR SHUTDOWN : the daemon is stopping\n")
}

// hearSorted reads lines until the end, in any order except for the last one.
func hearSorted(t *testing.T, nc net.Conn, want ...string) {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 1000)
	n, err := nc.Read(buf)
	for ; err == nil; n, err = nc.Read(buf) {
		got.Write(buf[:n])
	}
	for _, line := range want {
		if strings.Count(got.String(), line) == 0 {
			t.Errorf("%q is not in %q", line, got.String())
		}
	}
	if len(strings.Join(want, "")) != got.Len() || !strings.HasSuffix(got.String(), want[len(want)-1]) {
		t.Errorf("got %q, want %q", got.String(), want)
	}
}

// A recorded answer is written, even if it races with Freeze. Any other request is answered after
// the restart.
func TestFreezeLosesNoAnswer(t *testing.T) {
	for range 20 {
		tab := newTable()
		d := startFrozen(t, tab, nil)
		s := d.dialStored(t)
		const n = 20
		say(t, s.nc, strings.Repeat("WHO x\n", n))
		hear(t, s.nc, "- i=0\n- i=1\n- i=2\nOK n=3\n")
		freeze(t, &d.Server, FreezeOptions{Keep: keepAll, Seal: tab.seal})
		tab.restart(t, s.dup)
		hear(t, s.nc, strings.Repeat("- i=0\n- i=1\n- i=2\nOK n=3\n", n-1))
		say(t, s.nc, "PING\n")
		hear(t, s.nc, "OK\n")
	}
}

// Freeze waits for a session that is about to record an answer. If a session announces that after
// Freeze has begun, it does not record the answer, and its goroutine ends with Freeze.
func TestFreezeWaitsForRecordingAnswer(t *testing.T) {
	tab := newTable()
	tab.noting = true
	d := startFrozen(t, tab, nil)
	s := d.dialStored(t)
	say(t, s.nc, "@a LOCK x\n@b PING\n")
	hear(t, s.nc, "@b OK\n")
	d.waiting(t, "x") // after RecordingAnswer
	frozen := make(chan struct{})
	c := d.newest()
	go func() {
		defer close(frozen)
		freeze(t, &d.Server, FreezeOptions{Keep: keepAll, Seal: tab.seal})
	}()
	for !c.writesLastAnswers.Load() {
		runtime.Gosched()
	}
	late := make(chan struct{})
	go func() {
		defer close(late)
		newCall(c).RecordingAnswer()
		t.Error("an answer can still be recorded")
	}()
	select {
	case <-frozen:
		t.Error("frozen although an answer is being noted")
	default:
	}
	select {
	case <-late:
		t.Error("the later session goes on before Freeze has returned")
	default:
	}
	close(d.channel(d.gates, "x"))
	await(t, frozen, "Freeze")
	await(t, late, "the end of the later session's goroutine")
	hear(t, s.nc, "@a OK lock=x\n")
}

// If an answer is recorded more than once, or after it was sent, Freeze waits once.
func TestFreezeAfterRecordingAnswerTwice(t *testing.T) {
	tab := newTable()
	d := startFrozen(t, tab, func(d *fakeDaemon) {
		open := d.Open
		d.Open = func(c *Conn) (Session, error) {
			s, err := open(c)
			return notedTwice{s.(journaled)}, err
		}
	})
	s := d.dialStored(t)
	say(t, s.nc, "@a PING\nPING\n")
	hear(t, s.nc, "@a OK\nOK\n")
	freeze(t, &d.Server, FreezeOptions{Keep: keepAll, Seal: tab.seal})
}

// notedTwice is a session that calls RecordingAnswer several times.
type notedTwice struct{ journaled }

func (s notedTwice) Begin(call *Call) Work {
	call.RecordingAnswer()
	call.RecordingAnswer()
	work := s.journaled.Begin(call)
	call.RecordingAnswer()
	return work
}

// If the server is stopping, Freeze fails. A second Freeze does nothing.
func TestFreezeOnce(t *testing.T) {
	d := newFake()
	freeze(t, &d.Server, FreezeOptions{Keep: keepAll})
	if err := d.Freeze(t.Context(), FreezeOptions{Seal: func() { t.Error("sealed twice") }}); !errors.Is(err, ErrShutdown) {
		t.Errorf("the second Freeze: %v", err)
	}
	if err := d.Shutdown(t.Context(), nil); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}
