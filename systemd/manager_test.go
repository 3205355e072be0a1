package systemd

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeManager returns the socket on which a service manager listens.
func fakeManager(t *testing.T) *net.UnixConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "rls") // a short path, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return conn
}

// heard returns the next message.
func heard(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	buffer := make([]byte, 4096)
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}

func TestNotify(t *testing.T) {
	conn := fakeManager(t)
	t.Setenv("WATCHDOG_USEC", "10000000")
	m, err := FromEnvironment()
	if err != nil || !m.Listens() || m.Watchdog() != 10*time.Second {
		t.Fatalf("got %v, listens %v, watchdog %v; want a manager with 10s", err, m.Listens(), m.Watchdog())
	}
	for _, c := range []struct {
		name string
		say  func() error
		want string
	}{
		{"Ready", m.Ready, `READY=1`},
		{"Reloading", m.Reloading, `RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*`},
		{"Stopping", m.Stopping, `STOPPING=1`},
		{"KeepAlive", m.KeepAlive, `WATCHDOG=1`},
		{"Status", func() error { return m.Status("two\nlines") }, `STATUS=two lines`},
	} {
		if err := c.say(); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := heard(t, conn); !regexp.MustCompile("^" + c.want + "$").MatchString(got) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// A reload message has its time, in microseconds of the monotonic clock.
func TestReloadingHasTheTime(t *testing.T) {
	conn := fakeManager(t)
	now := func() int64 {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		return now.Nano() / 1000
	}
	before := now()
	if err := managed(t).Reloading(); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(heard(t, conn), "MONOTONIC_USEC=")
	if told, err := strconv.ParseInt(text, 10, 64); err != nil || told < before || told > now() {
		t.Errorf("got the time %q, want one from %d to %d", text, before, now())
	}
}

// An unchanged status is sent once.
func TestStatusOnce(t *testing.T) {
	conn := fakeManager(t)
	m, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"a", "a", "b", "b", "a"} {
		if err := m.Status(line); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"STATUS=a", "STATUS=b", "STATUS=a"} {
		if got := heard(t, conn); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Without a manager nothing is sent, and there is no error.
func TestNoManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	started, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Manager{nil, started} {
		listener, err := m.Listener(ListenerName)
		if listener != nil || err != nil || m.Listens() || m.Watchdog() != 0 || m.CloseRest() != nil {
			t.Errorf("got listener %v, %v, listens %v, watchdog %v; want none", listener, err, m.Listens(), m.Watchdog())
		}
		if stored := m.Stored(""); m.StoreMax() != 0 || len(stored) != 0 {
			t.Errorf("got a store of %d, and %v in it; want none", m.StoreMax(), stored)
		}
		for _, say := range []func() error{
			m.Ready, m.Reloading, m.Stopping, m.KeepAlive, func() error { return m.Status("x") },
			func() error { return m.Store("x", nil) }, func() error { return m.Unstore("x") },
		} {
			if err := say(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFaultyWatchdog(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "soon")
	if _, err := FromEnvironment(); err == nil || !strings.Contains(err.Error(), `WATCHDOG_USEC="soon"`) {
		t.Errorf("got %v, want an error that names it", err)
	}
}

// If the manager is gone, the error says which message was not sent.
func TestManagerHasEnded(t *testing.T) {
	fakeManager(t).Close()
	m, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "telling the service manager READY") {
		t.Errorf("got %v, want an error that names the message", err)
	}
}

// If the manager does not read, the service can still stop, and the manager reads the messages
// later. At most one message of each repeated kind waits.
func TestManagerThatDoesNotRead(t *testing.T) {
	conn := fakeManager(t)
	m := managed(t)
	const hangs = "it reads no messages"
	said := 0
	for err := error(nil); err == nil; said++ { // until its queue is full, plus one message
		if err = m.Status(strconv.Itoa(said)); err != nil && !strings.Contains(err.Error(), "STATUS: "+hangs) {
			t.Fatalf("got %v, want that it does not read", err)
		}
	}
	for name, say := range map[string]func() error{"STATUS": func() error { return m.Status("again") }, "WATCHDOG": m.KeepAlive, "STOPPING": m.Stopping} {
		if err := say(); err == nil || !strings.Contains(err.Error(), name+": "+hangs) {
			t.Errorf("%s: got %v, want that it does not read", name, err)
		}
	}
	for i := range said {
		if got, want := heard(t, conn), "STATUS="+strconv.Itoa(i); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	if got := heard(t, conn); got != "STOPPING=1" {
		t.Errorf("got %q, want STOPPING=1", got)
	}
	for m.unreadMessages.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := m.Status("again"); err != nil {
		t.Error(err)
	}
	if got := heard(t, conn); got != "STATUS=again" {
		t.Errorf("got %q, want STATUS=again", got)
	}
}

// Messages that several goroutines send at once do not mean that the manager hangs: one goroutine
// may report a reload while another keeps the watchdog alive.
func TestConcurrentMessages(t *testing.T) {
	const speakers, words = 4, 100
	conn := fakeManager(t)
	m := managed(t)
	var speaking sync.WaitGroup
	for range speakers {
		speaking.Go(func() {
			for range words {
				if err := m.KeepAlive(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	go func() {
		speaking.Wait()
		_ = m.Stopping()
	}()
	for heard(t, conn) != "STOPPING=1" {
	}
}

// handed returns a descriptor in the form in which a manager passes it.
func handed(t *testing.T, name string, from interface{ File() (*os.File, error) }) *os.File {
	t.Helper()
	file, err := from.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return os.NewFile(duplicate(t, file), name)
}

func TestListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	made, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	m := &Manager{passedFDs: []*os.File{handed(t, "other", made), handed(t, ListenerName, made)}}
	listener, err := m.Listener(ListenerName)
	if err != nil || listener == nil || listener.Addr().String() != path {
		t.Fatalf("got %v, %v; want a listener at %s", listener, err, path)
	}
	if rest := m.CloseRest(); !slices.Equal(rest, []string{"other"}) {
		t.Errorf("got the rest %q, want other", rest)
	}
	listener.Close()
	if _, err := net.Dial("unix", path); err != nil {
		t.Errorf("after Close: %v; want the manager's socket to go on", err)
	}
	if again := m.CloseRest(); len(again) != 0 {
		t.Errorf("the rest again is %q, want none", again)
	}
	if listener, err := m.Listener(ListenerName); listener != nil || err != nil {
		t.Errorf("asked again: got %v, %v; want none", listener, err)
	}
}

func TestUnusableListeners(t *testing.T) {
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for want, files := range map[string][]*os.File{
		"2 descriptors":        {handed(t, ListenerName, socket), handed(t, ListenerName, socket)},
		"not on a Unix socket": {handed(t, ListenerName, tcp)},
		"socket":               {os.NewFile(duplicate(t, reader), ListenerName)},
	} {
		m := &Manager{passedFDs: files}
		if listener, err := m.Listener(ListenerName); err == nil || listener != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v; want an error with %q", listener, err, want)
		}
	}
}

// duplicate returns a descriptor without an os.File.
func duplicate(t *testing.T, file *os.File) uintptr {
	t.Helper()
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return uintptr(fd)
}
