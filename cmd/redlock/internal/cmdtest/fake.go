package cmdtest

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// HealthyStatus is the status of a daemon without findings of redlock doctor.
var HealthyStatus = &client.Status{Quorum: 2, Spare: 1, MaxTTL: 30 * time.Second, Text: "locks work", Nodes: []client.Node{
	{Name: "a", Address: "10.0.0.1:6379", State: "ready", RTT: 2 * time.Millisecond, Wakeups: "pubsub"},
	{Name: "b", Address: "10.0.0.2:6379", State: "ready", RTT: time.Millisecond, Wakeups: "pubsub"},
	{Name: "c", Address: "[2001:db8::3]:6379", State: "ready", RTT: time.Millisecond, Wakeups: "pubsub"},
}}

// Fake is a daemon whose replies the test chooses.
type Fake struct {
	t            *testing.T
	Socket       string
	answers      Replies
	Requests     chan ipc.Request // all requests except HELLO and those in Looks
	Looks        chan ipc.Verb    // STATUS, WHO and LIST, which a long wait sends
	disconnected chan struct{}    // receives when a connection has ended
	testEnded    chan struct{}    // closed at the end of the test
	wg           sync.WaitGroup

	listener net.Listener

	mu    sync.Mutex // guards conns; no other mutex is taken inside it
	conns []net.Conn
}

// Replies are the lines that answer a verb, without the tag; if empty, there is no answer. Several
// lines are one reply.
type Replies map[ipc.Verb]func() []string

// Reply returns a function that returns the same lines each time.
func Reply(lines ...string) func() []string { return func() []string { return lines } }

// Granting grants each lock for longer than a test takes.
func Granting() Replies {
	return Replies{ipc.VerbLock: GrantFor(2 * Timeout), ipc.VerbUnlock: Reply("OK")}
}

// GrantFor grants a lock for ttl.
func GrantFor(ttl time.Duration) func() []string {
	return func() []string { return []string{GrantLine(boottime.Exact()+ttl, ttl)} }
}

func GrantLine(deadline, ttl time.Duration) string {
	return fmt.Sprintf("OK lock=job lease=secret fence=77 ttl=%d deadline=%d", ttl.Milliseconds(), deadline.Milliseconds())
}

func StartFake(t *testing.T, a Replies) *Fake {
	t.Helper()
	return StartFakeAt(t, NewSocket(t), a)
}

// StartFakeAt is StartFake with a path for the socket.
func StartFakeAt(t *testing.T, socket string, a Replies) *Fake {
	t.Helper()
	f := &Fake{t: t, Socket: socket, answers: a, Requests: make(chan ipc.Request, 100), Looks: make(chan ipc.Verb, 100), disconnected: make(chan struct{}, 100), testEnded: make(chan struct{})}
	l, err := net.Listen("unix", f.Socket)
	if err != nil {
		t.Fatal(err)
	}
	f.listener = l
	f.wg.Go(func() { f.accept(l) })
	t.Cleanup(func() {
		l.Close()
		close(f.testEnded)
		f.HangUp()
		f.wg.Wait()
	})
	return f
}

func (f *Fake) accept(l net.Listener) {
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

// HangUp closes all connections. Clients can connect again.
func (f *Fake) HangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		conn.Close()
	}
	f.conns = nil
}

// Stop closes the socket and all connections.
func (f *Fake) Stop() {
	f.listener.Close()
	f.HangUp()
}

func (f *Fake) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		sendUntilTestEnd(f, f.disconnected, struct{}{})
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

func (f *Fake) answer(conn net.Conn, req *ipc.Request) {
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
		sendUntilTestEnd(f, f.Looks, req.Verb)
	default:
		sendUntilTestEnd(f, f.Requests, *req)
	}
	for _, line := range lines {
		fmt.Fprintf(conn, "@%s %s\n", req.Tag, line) // the client may have disconnected
	}
}

// sendUntilTestEnd waits until there is room, or the test has ended.
func sendUntilTestEnd[T any](f *Fake, to chan<- T, what T) {
	select {
	case to <- what:
	case <-f.testEnded:
	}
}

// Broadcast sends an event to all connections.
func (f *Fake) Broadcast(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		fmt.Fprintln(conn, line)
	}
}

// Grant answers a LOCK that was not answered yet.
func (f *Fake) Grant(lock ipc.Request) {
	f.Broadcast("@" + lock.Tag + " " + GrantLine(boottime.Exact()+time.Minute, time.Minute))
}

// ExpectLook waits for the next query of a long wait.
func (f *Fake) ExpectLook(want ipc.Verb) {
	f.t.Helper()
	select {
	case got := <-f.Looks:
		if got != want {
			f.t.Errorf("the daemon read %v, want %v", got, want)
		}
	case <-time.After(Timeout):
		f.t.Fatalf("no %v came", want)
	}
}

// ExpectRequest waits for the next request other than CHECK.
func (f *Fake) ExpectRequest(want ipc.Verb) ipc.Request {
	f.t.Helper()
	late := time.After(Timeout)
	for {
		select {
		case req := <-f.Requests:
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

// AwaitDisconnect waits until the connection has ended, and returns the verbs of the requests that
// the test has not read.
func (f *Fake) AwaitDisconnect() (verbs []ipc.Verb) {
	f.t.Helper()
	select {
	case <-f.disconnected:
	case <-time.After(Timeout):
		f.t.Fatal("the connection does not end")
	}
	for len(f.Requests) > 0 {
		verbs = append(verbs, (<-f.Requests).Verb)
	}
	return slices.Clip(verbs)
}

var NothingHeld = Replies{
	ipc.VerbWho:    Reply("OK n=0"),
	ipc.VerbList:   Reply("OK n=0"),
	ipc.VerbStatus: Reply("- node=a address=:1 state=ready", "OK n=1 nodes=1 quorum=1 spare=0 leases=0 : locks work, but no further node may fail"),
}

const (
	StatusReady       = "OK n=0 nodes=5 quorum=3 spare=2 : ready"
	StatusQuarantined = "OK n=0 nodes=5 quorum=3 spare=-1 left=28000 : no quorum for another 28s"
)

// ForgetLooks drops earlier queries, so that ExpectLook waits for the next one.
func (f *Fake) ForgetLooks() {
	for len(f.Looks) > 0 {
		<-f.Looks
	}
}
