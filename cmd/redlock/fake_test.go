package main

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// fake is a daemon that answers as a test tells it to.
type fake struct {
	t        *testing.T
	socket   string
	answers  answers
	requests chan ipc.Request // all but HELLO, and what any long wait asks for
	looks    chan ipc.Verb    // that
	gone     chan struct{}    // filled when a connection has ended
	over     chan struct{}    // closed at the end of the test, when nobody reads these any more
	wg       sync.WaitGroup

	listener net.Listener

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

// answers says what is answered to a request, without its tag; "" is nothing.
// Several lines are one reply.
type answers map[ipc.Verb]func() []string

// says is the same reply each time.
func says(lines ...string) func() []string { return func() []string { return lines } }

// holding grants each lock, for as long as a test can take.
func holding() answers {
	return answers{ipc.VerbLock: grants(2 * patience), ipc.VerbUnlock: says("OK")}
}

// grants grants a lock for ttl.
func grants(ttl time.Duration) func() []string {
	return func() []string { return []string{granted(boottime.Exact()+ttl, ttl)} }
}

func granted(deadline, ttl time.Duration) string {
	return fmt.Sprintf("OK lock=job lease=secret fence=77 ttl=%d deadline=%d", ttl.Milliseconds(), deadline.Milliseconds())
}

func startFake(t *testing.T, a answers) *fake {
	t.Helper()
	f := &fake{t: t, socket: newSocket(t), answers: a, requests: make(chan ipc.Request, 100), looks: make(chan ipc.Verb, 100), gone: make(chan struct{}, 100), over: make(chan struct{})}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	f.listener = l
	f.wg.Go(func() { f.accept(l) })
	t.Cleanup(func() {
		l.Close()
		close(f.over)
		f.hangUp()
		f.wg.Wait()
	})
	return f
}

func (f *fake) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
		f.wg.Go(func() { f.serve(conn) })
	}
}

// hangUp ends all connections; there can be others.
func (f *fake) hangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		conn.Close()
	}
	f.conns = nil
}

// stop is hangUp, and nobody listens from then on.
func (f *fake) stop() {
	f.listener.Close()
	f.hangUp()
}

func (f *fake) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		tell(f, f.gone, struct{}{})
	}()
	for in := bufio.NewScanner(conn); in.Scan(); {
		var req ipc.Request
		if err := ipc.ParseRequest(in.Bytes(), &req); err != nil {
			f.t.Errorf("the daemon read %q: %v", in.Text(), err)
			return
		}
		f.answer(conn, &req)
	}
}

func (f *fake) answer(conn net.Conn, req *ipc.Request) {
	var lines []string
	switch answer := f.answers[req.Verb]; {
	case answer != nil:
		lines = answer()
	case req.Verb == ipc.VerbHello:
		lines = []string{"OK protocol=1"}
	}
	switch req.Verb {
	case ipc.VerbHello:
	case ipc.VerbStatus, ipc.VerbWho, ipc.VerbList:
		tell(f, f.looks, req.Verb)
	default:
		tell(f, f.requests, *req)
	}
	for _, line := range lines {
		fmt.Fprintf(conn, "@%s %s\n", req.Tag, line) // the other side may be gone
	}
}

// tell waits until there is room, or the test is over.
func tell[T any](f *fake, to chan<- T, what T) {
	select {
	case to <- what:
	case <-f.over:
	}
}

// say tells an event on all connections.
func (f *fake) say(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		fmt.Fprintln(conn, line)
	}
}

// grant answers a LOCK that was left waiting.
func (f *fake) grant(lock ipc.Request) {
	f.say("@" + lock.Tag + " " + granted(boottime.Exact()+time.Minute, time.Minute))
}

// asked waits until a long wait asks for what it is to say.
func (f *fake) asked(want ipc.Verb) {
	f.t.Helper()
	select {
	case got := <-f.looks:
		if got != want {
			f.t.Errorf("the daemon read %v, want %v", got, want)
		}
	case <-time.After(patience):
		f.t.Fatalf("no %v came", want)
	}
}

// read waits for the next request that is none of CHECK.
func (f *fake) read(want ipc.Verb) ipc.Request {
	f.t.Helper()
	late := time.After(patience)
	for {
		select {
		case req := <-f.requests:
			if req.Verb == ipc.VerbCheck {
				continue
			}
			if req.Verb != want {
				f.t.Errorf("the daemon read %v, want %v", req.Verb, want)
			}
			return req
		case <-late:
			f.t.Fatalf("no %v came", want)
		}
	}
}

// left waits until the connection has ended, and is what was asked before that.
func (f *fake) left() (verbs []ipc.Verb) {
	f.t.Helper()
	select {
	case <-f.gone:
	case <-time.After(patience):
		f.t.Fatal("the connection does not end")
	}
	for len(f.requests) > 0 {
		verbs = append(verbs, (<-f.requests).Verb)
	}
	return slices.Clip(verbs)
}
