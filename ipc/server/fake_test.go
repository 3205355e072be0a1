package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// patience bounds waits on real sockets. Only a failing test takes that long.
const patience = 10 * time.Second

// fakeDaemon is a server whose locks are gates: LOCK waits until UNLOCK opens the gate of that
// name.
type fakeDaemon struct {
	Server
	path    string // of the socket
	ends    chan string
	defects chan string
	drops   chan error
	bulk    string // part of the answer to LIST

	mu    sync.Mutex
	gates map[string]chan struct{}
	begun map[string]chan struct{} // closed once a LOCK of that name is waiting
	conns []*Conn
}

func newFake() *fakeDaemon {
	d := &fakeDaemon{
		ends:    make(chan string, 10000),
		defects: make(chan string, 100),
		drops:   make(chan error, 100),
		gates:   make(map[string]chan struct{}),
		begun:   make(map[string]chan struct{}),
	}
	d.Open = d.open
	d.Defect = func(_ *Conn, what any, _ []byte) { d.defects <- fmt.Sprint(what) }
	d.Dropped = func(_ *Conn, why error) { d.drops <- why }
	return d
}

// startFake serves on a real socket until the test ends, and then checks that no goroutine is left.
func startFake(t testing.TB, set func(*fakeDaemon)) *fakeDaemon {
	t.Helper()
	d := newFake()
	if set != nil {
		set(d)
	}
	d.path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- d.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.Shutdown(ctx, nil); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := await(t, served, "Serve to return"); err != nil {
			t.Errorf("Serve: %v", err)
		}
		l.Close()
		checkNoGoroutines(t)
	})
	return d
}

// checkNoGoroutines waits until the goroutines that Shutdown waited for have returned.
func checkNoGoroutines(t testing.TB) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		all := stacks[:runtime.Stack(stacks, true)]
		if !bytes.Contains(all, []byte("server.(*Conn)")) && !bytes.Contains(all, []byte("server.(*output)")) &&
			!bytes.Contains(all, []byte("server.(*workers")) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("goroutines are left:\n%s", all)
		}
	}
}

func (d *fakeDaemon) open(c *Conn) (Session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, c)
	return &fakeSession{d: d, conn: c}, nil
}

func (d *fakeDaemon) channel(m map[string]chan struct{}, name string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m[name] == nil {
		m[name] = make(chan struct{})
	}
	return m[name]
}

// waiting returns when a LOCK of name waits.
func (d *fakeDaemon) waiting(t testing.TB, name string) {
	t.Helper()
	await(t, d.channel(d.begun, name), "LOCK "+name+" to wait")
}

func await[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

func (d *fakeDaemon) dial(t testing.TB) *net.UnixConn {
	t.Helper()
	nc, err := net.Dial("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return nc.(*net.UnixConn)
}

type fakeSession struct {
	d    *fakeDaemon
	conn *Conn
}

func (s *fakeSession) InputEnded(gone bool) { s.d.ends <- fmt.Sprintf("input gone=%v", gone) }
func (s *fakeSession) Close()               { s.d.ends <- "close" }

func (s *fakeSession) Begin(call *Call) Work {
	switch call.Verb {
	case ipc.VerbPing:
		call.Reply(call.OK())
	case ipc.VerbLock:
		return &fakeLock{s, call}
	case ipc.VerbUnlock:
		name := call.Names[0] // after its answer the call may be reused
		call.Reply(call.OK().Str("lock", name))
		close(s.d.channel(s.d.gates, name))
	case ipc.VerbCancel:
		call.Reply(call.OK().Str("found", fmt.Sprint(s.conn.Cancel(call.Words[0]))))
	case ipc.VerbWho:
		return workFunc(func() { answerLines(call) })
	case ipc.VerbList:
		call.Reply(call.OK().Say(s.d.bulk))
	case ipc.VerbForce:
		var event ipc.Response
		s.conn.Send(event.Notice(ipc.EventLost).Str("lock", call.Names[0]))
		call.Reply(call.OK())
	case ipc.VerbCheck:
		panic("check")
	case ipc.VerbBeat:
		return workFunc(func() { panic("beat") })
	case ipc.VerbExtend:
		return workFunc(func() {})
	case ipc.VerbStatus:
		call.Reply(call.OK())
		call.Reply(call.OK())
	case ipc.VerbQuit:
		call.Quit()
		call.Reply(call.OK())
	}
	return nil
}

func answerLines(call *Call) {
	var r ipc.Response
	for i := range int64(3) {
		call.Line(r.Line("").Int("i", i))
		runtime.Gosched() // lets other goroutines send lines
	}
	call.Reply(call.OK().Int("n", 3))
}

type workFunc func()

func (f workFunc) Run() { f() }

type fakeLock struct {
	s    *fakeSession
	call *Call
}

func (l *fakeLock) Run() {
	name := l.call.Names[0]
	if begun := l.s.d.channel(l.s.d.begun, name); name[0] != '-' {
		close(begun)
	}
	select {
	case <-l.s.d.channel(l.s.d.gates, name):
		l.call.Reply(l.call.OK().Str("lock", name))
	case <-l.call.Context().Done():
		cause := context.Cause(l.call.Context())
		l.call.Reply(l.call.Err(codeOfCause(cause), cause.Error()))
	}
}

func codeOfCause(cause error) ipc.Code {
	switch {
	case errors.Is(cause, ErrShutdown):
		return ipc.CodeShutdown
	case errors.Is(cause, ErrCancelled):
		return ipc.CodeCancelled
	}
	return ipc.CodeInternal
}

// say writes each element of lines with one write.
func say(t testing.TB, nc net.Conn, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(nc, line); err != nil {
			t.Fatalf("writing %q: %v", line, err)
		}
	}
}

// hear reads exactly want.
func hear(t testing.TB, nc net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(nc, got)
	compare(t, string(got[:n]), want, err)
}

// hearEnd reads want and then the end.
func hearEnd(t testing.TB, nc net.Conn, want string) {
	t.Helper()
	got, err := io.ReadAll(nc)
	compare(t, string(got), want, err)
}

// compare shows where two long strings differ.
func compare(t testing.TB, got, want string, err error) {
	t.Helper()
	if got == want && err == nil {
		return
	}
	same := 0
	for same < min(len(got), len(want)) && got[same] == want[same] {
		same++
	}
	t.Fatalf("after %d of %d bytes (%v)\n got %.300q\nwant %.300q", same, len(want), err, got[same:], want[same:])
}

func (d *fakeDaemon) hearEnds(t testing.TB, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := await(t, d.ends, w); got != w {
			t.Errorf("the session got %q, want %q", got, w)
		}
	}
}

// hearEndsOf is hearEnds for n sessions, which end at the same time.
func (d *fakeDaemon) hearEndsOf(t testing.TB, n int) {
	t.Helper()
	heard := map[string]int{}
	for range 2 * n {
		heard[await(t, d.ends, "the end of a session")]++
	}
	if heard["input gone=false"] != n || heard["close"] != n {
		t.Errorf("%d sessions got %v", n, heard)
	}
}

func (d *fakeDaemon) hearDefects(t testing.TB, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := await(t, d.defects, w); !strings.Contains(got, w) {
			t.Errorf("the defect is %q, want %q", got, w)
		}
	}
}
