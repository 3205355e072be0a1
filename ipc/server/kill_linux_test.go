package server

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

// mortal is a session of a process that is killed at an event: a record, or the beginning of a
// request.
type mortal struct {
	*table
	last  int // number of events before the kill; 0: no kill
	dead  chan struct{}
	over  chan struct{} // closed when the test ends
	mu    sync.Mutex    // guards the fields below
	past  int
	begun []string
}

func newMortal(t *testing.T, tab *table, last int) *mortal {
	m := &mortal{table: tab, last: last, dead: make(chan struct{}), over: make(chan struct{})}
	t.Cleanup(func() { close(m.over) })
	return m
}

// lives counts an event. It never returns once the process is dead.
func (m *mortal) lives() {
	m.mu.Lock()
	m.past++
	killed := m.past == m.last
	m.mu.Unlock()
	if killed {
		close(m.dead)
		<-m.over
		runtime.Goexit()
	}
}

func (m *mortal) RecordRequest(call *Call, line []byte, rest *UnreadChange) {
	m.lives()
	m.table.RecordRequest(call, line, rest)
}

func (m *mortal) RecordAnswer(call *Call) {
	m.lives()
	m.table.RecordAnswer(call)
}

func (m *mortal) RecordUnread(rest UnreadChange) {
	m.lives()
	m.table.RecordUnread(rest)
}

func (m *mortal) Begin(call *Call) Work {
	m.lives()
	m.mu.Lock()
	m.begun = append(m.begun, fmt.Sprint(call.Verb, " ", call.Names))
	m.mu.Unlock()
	call.Reply(call.OK())
	return nil
}

func (*mortal) InputEnded(bool) {}
func (*mortal) Close()          {}

// serve serves the connection as the table has recorded it.
func (m *mortal) serve(t *testing.T, nc net.Conn) *Server {
	s := &Server{Open: func(*Conn) (Session, error) { return m, nil }}
	m.restore(t, s, nc)
	return s
}

// killing is a connection that a killed process served, and the next process continues.
type killing struct {
	client net.Conn
	dup    net.Conn    // a duplicate of the server's end
	heard  chan string // answers
	tab    *table
	first  *mortal
	serves *Server
}

// killAt sends in to a process that is killed at an event.
func killAt(t *testing.T, in string, event int) *killing {
	file, server := socketPair(t)
	defer file.Close()
	client, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	k := &killing{client: client, dup: duplicateOf(t, server.(syscall.Conn)), heard: make(chan string, 1000), tab: newTable()}
	go func() {
		defer close(k.heard)
		for lines := bufio.NewScanner(client); lines.Scan(); {
			k.heard <- lines.Text()
		}
	}()
	k.first = newMortal(t, k.tab, event)
	k.serves = k.first.serve(t, server)
	say(t, client, in)
	return k
}

// goOn lets the next process read the rest, and returns the requests that it begins.
func (k *killing) goOn(t *testing.T, rest string) []string {
	t.Helper()
	m := newMortal(t, k.tab, 0)
	s := m.serve(t, k.dup)
	say(t, k.client, rest+"@end PING\n")
	for answer := ""; answer != "@end OK"; {
		answer = await(t, k.heard, "the answers")
		if strings.HasPrefix(answer, "ERR") && !strings.HasPrefix(answer, "ERR TOOLONG") {
			t.Errorf("answered %q, and nothing wrong was sent", answer)
		}
	}
	k.client.Close()
	if err := s.Shutdown(t.Context(), nil); err != nil {
		t.Error(err)
	}
	return m.begun
}

// eventsOf returns the number of events until all complete lines of in are answered.
func eventsOf(t *testing.T, in string) int {
	t.Helper()
	k := killAt(t, in, 0)
	for range wantAnswers([]byte(in)) {
		await(t, k.heard, "an answer")
	}
	freeze(t, k.serves, FreezeOptions{Keep: keepAll, Seal: k.tab.seal})
	k.client.Close()
	k.dup.Close()
	return k.first.past
}

// requestsIn returns the requests of in, in the format of mortal.
func requestsIn(in string) (requests []string) {
	for line := range strings.Lines(in) {
		var r ipc.Request
		if ipc.ParseRequest([]byte(strings.TrimSuffix(line, "\n")), &r) == nil {
			requests = append(requests, fmt.Sprint(r.Verb, " ", r.Names))
		}
	}
	return requests
}

// The input is cut at any byte, and the process is killed at any event. The next process begins the
// whole line that was cut, and all lines after it. It never begins the end of a line, such as the
// LOCK of UNLOCK. If the first process took a partial line from the socket because nothing
// followed, that line may be lost, but its end never begins either.
func TestKilledAnywhere(t *testing.T) {
	const short = "UNLOCK a\nPING\n@t UNLOCK b\nUNLOCK c\nUNLOCK d\n"
	long := strings.Repeat("x", ipc.MaxLine) + " LOCK x\nUNLOCK e\nUNLOCK f\n"
	for cut := range short {
		t.Run(fmt.Sprint(cut), func(t *testing.T) { killedAnywhere(t, short, cut) })
	}
	for _, cut := range []int{1, ipc.MaxLine - 1, ipc.MaxLine, ipc.MaxLine + 1, ipc.MaxLine + 7, ipc.MaxLine + 8, ipc.MaxLine + 10} {
		t.Run(fmt.Sprint("too long ", cut), func(t *testing.T) { killedAnywhere(t, long, cut) })
	}
}

func killedAnywhere(t *testing.T, in string, cut int) {
	t.Parallel()
	begins := strings.LastIndexByte(in[:cut], '\n') + 1
	ends := begins + strings.IndexByte(in[begins:], '\n') + 1
	whole, behind := requestsIn(in[begins:]+"@end PING\n"), requestsIn(in[ends:]+"@end PING\n")
	if begins == cut || cut-begins >= ipc.MaxLine { // the socket has no partial line
		for event := range eventsOf(t, in[:cut]) {
			goesOn(t, in, cut, event+1, whole)
		}
		return
	}
	events := eventsOf(t, in[:begins])
	for event := range events + 1 {
		goesOn(t, in, cut, event+1, whole)
	}
	goesOn(t, in, cut, events+2, behind)
}

// goesOn checks that want are the last requests to begin if the process is killed at that event.
func goesOn(t *testing.T, in string, cut, event int, want []string) {
	t.Helper()
	k := killAt(t, in[:cut], event)
	await(t, k.first.dead, "the kill")
	got := k.goOn(t, in[cut:])
	n := len(got) - len(want)
	if n < 0 || !slices.Equal(got[n:], want) {
		t.Fatalf("killed at event %d: begun are %q, want in the end %q", event, got, want)
	}
	for _, before := range got[:n] {
		if !slices.Contains(requestsIn(in[:cut]), before) {
			t.Errorf("killed at event %d: begun is %q, which was not sent", event, before)
		}
	}
}
