package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

func TestServerScripts(t *testing.T) {
	tests := []struct{ name, say, hear string }{
		{"ping", "PING\n", "OK\n"},
		{"case, spaces, CR, tag", " @a1  pInG \r\n", "@a1 OK\n"},
		{"empty lines", "\n \r\n\t\n@a PING\n", "@a OK\n"},
		{"several lines", "WHO a\nWHO a\n", "- i=0\n- i=1\n- i=2\nOK n=3\n- i=0\n- i=1\n- i=2\nOK n=3\n"},
		{"event before the reply", "FORCE a%20b\n", "LOST lock=a%20b\nOK\n"},
		{"syntax", "@\n@x\nLICK\nLOCK a,a\nPING \x00\nLOCK a b=c\n",
			"ERR SYNTAX : \"@\" is not a tag: @ and 1 to 16 letters or digits\n" +
				"@x ERR SYNTAX : a verb must follow the tag, such as PING: HELP lists them\n" +
				"ERR VERB : \"LICK\" is not a verb: HELP lists them\n" +
				"ERR NAME : the name \"a\" is given twice\n" +
				"ERR SYNTAX : byte 6 of the line is the control character U+0000: write it as %00\n" +
				"ERR OPTION : \"b\" is not an option: LOCK takes ttl= wait= mode= slots= hold= pid= max= linger= beat= owner= guard= reentrant= note= id= min= (write = in a name as %3D)\n"},
		{"too long", "@a PING" + strings.Repeat(" ", 9000) + "\nPING" + strings.Repeat(" ", 4091) + "\nPING" + strings.Repeat(" ", 4092) + "\nPING\n",
			"@a ERR TOOLONG : a line is at most 4096 bytes, its LF included\nOK\n" +
				"ERR TOOLONG : a line is at most 4096 bytes, its LF included\nOK\n"},
		{"tags beside a wait", "@a LOCK -x\nLOCK -y\n@b PING\n@c UNLOCK -x\n", "@b OK\n@c OK lock=-x\n@a OK lock=-x\n"},
		{"untagged behind a wait", "LOCK -x\nPING\nLICK\n@b UNLOCK -x\n",
			"@b OK lock=-x\nOK lock=-x\nOK\nERR VERB : \"LICK\" is not a verb: HELP lists them\n"},
		{"cancel nothing", "CANCEL a\n", "OK found=false\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			nc := startFake(t, nil).dial(t)
			say(t, nc, tt.say)
			hear(t, nc, tt.hear)
		})
		t.Run(tt.name+" byte by byte", func(t *testing.T) {
			nc := startFake(t, nil).dial(t)
			say(t, nc, strings.SplitAfter(tt.say, "")...)
			hear(t, nc, tt.hear)
		})
	}
}

// Refused is called for every ERR, of the parser and of the session.
func TestServerRefused(t *testing.T) {
	refused := make(chan ipc.Code, 10)
	nc := startFake(t, func(d *fakeDaemon) { d.Refused = func(code ipc.Code) { refused <- code } }).dial(t)
	say(t, nc, "PING\nLICK\nBEAT a\nLOCK a,a\nPING\n")
	hear(t, nc, "OK\nERR VERB : \"LICK\" is not a verb: HELP lists them\nERR INTERNAL : "+defectText+"\nERR NAME : the name \"a\" is given twice\nOK\n")
	close(refused)
	var got []ipc.Code
	for code := range refused {
		got = append(got, code)
	}
	if want := []ipc.Code{ipc.CodeVerb, ipc.CodeInternal, ipc.CodeName}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestServerQuit(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, "LOCK -x\nPING\n@b UNLOCK -x\nQUIT\nPING\n")
	hearEnd(t, nc, "@b OK lock=-x\nOK lock=-x\nOK\nOK\n")
	d.hearEnds(t, "input gone=false", "close")
	d.newest().Send((&ipc.Response{}).Notice(ipc.EventLost)) // an event after the end is dropped
	d.wantNotCut(t)
}

// QUIT with a tag overtakes the queue, which is still answered.
func TestServerQuitWithTag(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, "LOCK -x\nPING\n@q QUIT\nPING\n")
	hear(t, nc, "@q OK\n")
	close(d.channel(d.gates, "-x"))
	hearEnd(t, nc, "OK lock=-x\nOK\n")
	d.hearEnds(t, "input gone=false", "close")
}

// The lines of one reply stay together, even if other goroutines send at the same time.
func TestServerKeepsLinesOfReplyTogether(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	const n = 500
	go io.WriteString(nc, strings.Repeat("WHO a\n", n)) // a failure shows as missing answers
	other := (&ipc.Response{}).Notice(ipc.EventLost)
	said := make(chan struct{})
	r := bufio.NewReader(nc)
	for i := range n {
		if i == n/2 {
			go func() {
				defer close(said)
				for range n {
					d.firstConn(t).Send(other)
				}
			}()
		}
		for _, want := range []string{"- i=0\n", "- i=1\n", "- i=2\n", "OK n=3\n"} {
			line, err := r.ReadString('\n')
			for line == "LOST\n" && want == "- i=0\n" {
				line, err = r.ReadString('\n')
			}
			if line != want {
				t.Fatalf("reply %d: got %q (%v), want %q", i, line, err, want)
			}
		}
	}
	await(t, said, "the events to be sent")
}

func TestServerTagStillInFlight(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, "@a LOCK x\n@a PING\n@b PING\n")
	hear(t, nc, "@a ERR SYNTAX : the tag a is still in use: use another, or wait for its answer\n@b OK\n")
	d.waiting(t, "x")
	say(t, nc, "@b CANCEL a\n")
	r := bufio.NewReader(nc)
	got := map[string]bool{}
	for range 2 {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		got[line] = true
	}
	if !got["@b OK found=true\n"] || !got["@a ERR CANCELLED : cancelled by the client\n"] {
		t.Errorf("got %v", got)
	}
	say(t, nc, "@a PING\n")
	if line, err := r.ReadString('\n'); line != "@a OK\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

// An answer frees its own tag only, however many requests are in flight.
func TestServerAnswersOneOfManyTags(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	const n = 2 * maxKeptTags
	for i := range n {
		name := fmt.Sprintf("x%d", i)
		say(t, nc, "@"+name+" LOCK "+name+"\n")
		d.waiting(t, name)
	}
	say(t, nc, "@b PING\n@x1 PING\n")
	hear(t, nc, "@b OK\n@x1 ERR SYNTAX : the tag x1 is still in use: use another, or wait for its answer\n")
	for i := range n {
		if !d.conns[0].Cancel(fmt.Sprintf("x%d", i)) {
			t.Errorf("x%d is not known any more", i)
		}
		line := fmt.Sprintf("@x%d ERR CANCELLED : cancelled by the client\n", i)
		hear(t, nc, line)
	}
}

func TestServerBoundsTags(t *testing.T) {
	d := startFake(t, func(d *fakeDaemon) { d.MaxInFlight = 2 })
	nc := d.dial(t)
	say(t, nc, "@a LOCK -x\n@b LOCK -x\n@c LOCK -x\nPING\n")
	hear(t, nc, "@c ERR LIMIT : 2 requests are in progress on this connection, the maximum: wait for answers\nOK\n")
}

// Ten thousand requests in one write are answered in order, with far fewer writes.
func TestServerPipelining(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	var in, out strings.Builder
	for i := range 10000 {
		if i%3 == 0 {
			in.WriteString("PING\n")
			out.WriteString("OK\n")
		} else {
			fmt.Fprintf(&in, "@t%d PING\n", i)
			fmt.Fprintf(&out, "@t%d OK\n", i)
		}
	}
	go io.WriteString(nc, in.String()) // a failure shows as missing answers
	hear(t, nc, out.String())
}

// Requests take time, with and without tags, and the client writes all of them before it reads.
// They are more than the queue and the output hold.
func TestServerBackPressure(t *testing.T) {
	d := startFake(t, func(d *fakeDaemon) { d.MaxQueued, d.MaxOutput = 1000, 100<<10 })
	d.bulk = strings.Repeat("x", 3000)
	nc := d.dial(t)
	const n = 2000
	list := "OK : " + d.bulk + "\n"
	go io.WriteString(nc, strings.Repeat("WHO a\nLIST\n", n))
	hear(t, nc, strings.Repeat("- i=0\n- i=1\n- i=2\nOK n=3\n"+list, n))
}

func TestServerHalfClose(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, "@a LOCK x\nLOCK y\nPING\nPI")
	if err := nc.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	d.hearEnds(t, "input gone=false")
	other := d.dial(t)
	say(t, other, "UNLOCK x\n")
	hear(t, other, "OK lock=x\n")
	hear(t, nc, "@a OK lock=x\n")
	say(t, other, "UNLOCK y\n")
	hearEnd(t, nc, "OK lock=y\nOK\n")
	d.hearEnds(t, "close")
}

// If a client has closed its reading side, its waiting requests end, even if it may send more.
func TestServerCancelsRequestsOfClosedReader(t *testing.T) {
	causes := make(chan error, 1)
	d := startFake(t, func(d *fakeDaemon) {
		d.Open = func(c *Conn) (Session, error) { return &deaf{fakeSession{d, c}, causes}, nil }
	})
	nc := d.dial(t)
	say(t, nc, "@a LOCK x\nPING\n")
	hear(t, nc, "OK\n")
	if err := nc.CloseRead(); err != nil {
		t.Fatal(err)
	}
	say(t, nc, "PING\n")
	if why := await(t, causes, "the end of LOCK"); why != ErrGone {
		t.Errorf("LOCK ended because of %v, want %v", why, ErrGone)
	}
	nc.Close()
	d.hearEnds(t, "input gone=true", "close")
}

// deaf is a session that reports the cause with which a LOCK ended.
type deaf struct {
	fakeSession
	causes chan error
}

func (s *deaf) Begin(call *Call) Work {
	if call.Verb != ipc.VerbLock {
		return s.fakeSession.Begin(call)
	}
	return workFunc(func() {
		<-call.Context().Done()
		s.causes <- context.Cause(call.Context())
		call.Reply(call.OK())
	})
}

// Requests that a client sent before it closed are executed.
func TestServerExecutesRequestsSentBeforeClose(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, strings.Repeat("LIST\n", 1000)+"UNLOCK x\n")
	nc.Close()
	await(t, d.channel(d.gates, "x"), "UNLOCK")
}

func TestServerCutsClientThatDoesNotRead(t *testing.T) {
	d := startFake(t, func(d *fakeDaemon) { d.MaxOutput = 200 << 10 })
	nc := d.dial(t)
	say(t, nc, "@a LOCK x\nPING\n")
	hear(t, nc, "OK\n")
	d.waiting(t, "x")
	c := d.conns[0]
	event := (&ipc.Response{}).Notice(ipc.EventLost).Say(strings.Repeat("x", 4000))
	for range 1000 {
		c.Send(event) // never blocks
	}
	if why := await(t, d.drops, "the cut"); !errors.Is(why, ErrSlow) {
		t.Errorf("cut because of %v", why)
	}
	d.hearEnds(t, "input gone=true", "close")
	if !c.WasCut() {
		t.Error("that the server ended the connection is not known: its client may be at work")
	}
}

func TestServerCutsSlowReader(t *testing.T) {
	d := startFake(t, func(d *fakeDaemon) { d.WriteTimeout = 50 * time.Millisecond })
	d.bulk = strings.Repeat("x", 4000)
	nc := d.dial(t)
	go io.WriteString(nc, strings.Repeat("LIST\n", 10000))
	if why := await(t, d.drops, "the cut"); !errors.Is(why, ErrSlow) {
		t.Errorf("cut because of %v", why)
	}
	d.hearEnds(t, "input gone=true", "close")
}

func TestServerDefects(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	const internal = "ERR INTERNAL : a defect in the daemon: see its log\n"
	say(t, nc, "CHECK a\n@t CHECK a\nBEAT a\nEXTEND a\nSTATUS\nHELLO\nPING\n")
	hear(t, nc, internal+"@t "+internal+internal+internal+"OK\n"+internal+"OK\n")
	d.hearDefects(t, "check", "check", "beat", "EXTEND", "answered twice", "HELLO")
}

func TestServerOpenFails(t *testing.T) {
	d := startFake(t, func(d *fakeDaemon) {
		d.Open = func(*Conn) (Session, error) { return nil, ipc.Errorf(ipc.CodeLimit, "limits.connections is 0") }
	})
	hearEnd(t, d.dial(t), "ERR LIMIT : limits.connections is 0\n")

	d = startFake(t, func(d *fakeDaemon) { d.Open = func(*Conn) (Session, error) { panic("open") } })
	hearEnd(t, d.dial(t), "ERR INTERNAL : a defect in the daemon: see its log\n")
	d.hearDefects(t, "open")
}

func TestServerShutdown(t *testing.T) {
	d := startFake(t, nil)
	idle, waiting, half := d.dial(t), d.dial(t), d.dial(t)
	say(t, idle, "PING\n")
	hear(t, idle, "OK\n")
	say(t, waiting, "@a LOCK x\nPING\n")
	hear(t, waiting, "OK\n")
	d.waiting(t, "x")
	say(t, half, "LOCK y\nPING\n")
	half.CloseWrite()
	d.waiting(t, "y")
	d.hearEnds(t, "input gone=false")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bye := func(Session) *ipc.Response { return (&ipc.Response{}).Notice(ipc.EventBye).Ms("resume", 5*time.Second) }
	if err := d.Shutdown(ctx, bye); err != nil {
		t.Fatal(err)
	}
	hearEnd(t, idle, "BYE resume=5000\n")
	hearEnd(t, waiting, "@a ERR SHUTDOWN : the daemon is stopping\nBYE resume=5000\n")
	hearEnd(t, half, "ERR SHUTDOWN : the daemon is stopping\nERR SHUTDOWN : the daemon is stopping\nBYE resume=5000\n")
	here, there := net.Pipe()
	d.ServeConn(there)
	hearEnd(t, here, "")
}

func TestServerShutdownInTime(t *testing.T) {
	release := make(chan struct{})
	d := startFake(t, func(d *fakeDaemon) {
		d.Open = func(c *Conn) (Session, error) { return &stubborn{fakeSession{d, c}, release}, nil }
	})
	nc := d.dial(t)
	say(t, nc, "@a WHO x\nPING\n")
	hear(t, nc, "OK\n")
	ctx, cancel := context.WithCancel(t.Context())
	down := make(chan error, 1)
	go func() { down <- d.Shutdown(ctx, nil) }()
	c := d.firstConn(t)
	for !c.stopping.Load() {
		say(t, nc, "@b STATUS\n")
		hear(t, nc, "@b ")
		if _, err := bufio.NewReader(nc).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	say(t, nc, "@b PING\nPING\n")
	hear(t, nc, "@b ERR SHUTDOWN : the daemon is stopping\nERR SHUTDOWN : the daemon is stopping\n")
	cancel()
	if err := await(t, down, "Shutdown"); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	hearEnd(t, nc, "")
	close(release)
	d.hearEnds(t, "input gone=true", "close")
}

// stubborn is a session whose Work ignores the end of its context.
type stubborn struct {
	fakeSession
	release chan struct{}
}

func (s *stubborn) Begin(call *Call) Work {
	if call.Verb != ipc.VerbWho {
		call.Reply(call.OK())
		return nil
	}
	return workFunc(func() {
		<-s.release
		call.Reply(call.OK())
	})
}

func (d *fakeDaemon) firstConn(t *testing.T) *Conn {
	t.Helper()
	all := d.allConns()
	if len(all) != 1 {
		t.Errorf("%d connections, want 1", len(all))
		return nil
	}
	return all[0]
}

func TestServerPeer(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, "PING\n")
	hear(t, nc, "OK\n")
	want := Peer{PID: os.Getpid(), UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Known: true}
	got := d.firstConn(t).Peer()
	got.Groups = nil // see TestPeerGroups
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the peer is %+v, want %+v", got, want)
	}
}

// brokenListener is a listener that fails a few times before it accepts.
type brokenListener struct {
	net.Listener
	failures int
	why      syscall.Errno
}

func (l *brokenListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", l.why)}
	}
	return l.Listener.Accept()
}

func TestServeGoesOnAfterFailures(t *testing.T) {
	for _, shortage := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ECONNABORTED} {
		t.Run(shortage.Error(), func(t *testing.T) { testServeGoesOn(t, shortage) })
	}
}

func testServeGoesOn(t *testing.T, shortage syscall.Errno) {
	d := newFake()
	var pauses []time.Duration
	d.AcceptFailed = func(err error, pause time.Duration) {
		if !errors.Is(err, shortage) {
			t.Errorf("AcceptFailed was called with %v", err)
		}
		pauses = append(pauses, pause)
	}
	d.path = t.TempDir() + "/s"
	l, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, &brokenListener{l, 3, shortage}) }()
	nc := d.dial(t)
	say(t, nc, "QUIT\n")
	hearEnd(t, nc, "OK\n")
	cancel() // closes l, because brokenListener has no SetDeadline
	if err := await(t, served, "Serve"); err != nil {
		t.Error(err)
	}
	if want := []time.Duration{5e6, 10e6, 20e6}; fmt.Sprint(pauses) != fmt.Sprint(want) {
		t.Errorf("pauses %v, want %v", pauses, want)
	}
	if err := d.Shutdown(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
