package systemd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// heardWith returns the next message and its descriptors.
func heardWith(t *testing.T, conn *net.UnixConn) (message string, fds []int) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	buffer, rights := make([]byte, 4096), make([]byte, 4096)
	n, m, _, _, err := conn.ReadMsgUnix(buffer, rights)
	if err != nil {
		t.Fatal(err)
	}
	controls, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil {
		t.Fatal(err)
	}
	for _, control := range controls {
		sent, err := unix.ParseUnixRights(&control)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, sent...)
	}
	return string(buffer[:n]), fds
}

// managed returns the Manager of a process that the fake manager started.
func managed(t *testing.T) *Manager {
	t.Helper()
	m, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pair returns both ends of a connection: the daemon's and the client's.
func pair(t *testing.T, kind int) (conn, client *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		defer file.Close()
		end, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end.Close() })
		ends[i] = end.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

func store(t *testing.T, m *Manager, name string, conn *net.UnixConn) error {
	t.Helper()
	c, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return m.Store(name, c)
}

// passes checks that the data one end writes arrives at the other.
func passes(t *testing.T, from, to *net.UnixConn) {
	t.Helper()
	if _, err := from.Write([]byte("hello")); err != nil {
		t.Error(err)
		return
	}
	to.SetReadDeadline(time.Now().Add(20 * time.Second))
	buffer := make([]byte, 100)
	if n, err := to.Read(buffer); err != nil || string(buffer[:n]) != "hello" {
		t.Errorf("got %q, %v; want hello", buffer[:n], err)
	}
}

// The store keeps the connection: it stays open if this process closes it, and the next process
// talks to the same client.
func TestStore(t *testing.T) {
	listener := fakeManager(t)
	m := managed(t)
	conn, client := pair(t, unix.SOCK_STREAM)
	if err := store(t, m, "conn-7", conn); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	message, fds := heardWith(t, listener)
	if message != "FDSTORE=1\nFDNAME=conn-7" || len(fds) != 1 {
		t.Fatalf("got %q with the descriptors %v, want FDSTORE of conn-7 with one", message, fds)
	}
	next := &Manager{passedFDs: []*os.File{os.NewFile(uintptr(fds[0]), "conn-7")}}
	stored := next.Stored("conn-")
	if len(stored) != 1 || stored[0].Name != "conn-7" || stored[0].Err != nil {
		t.Fatalf("got %v, want conn-7", stored)
	}
	defer stored[0].Conn.Close()
	passes(t, client, stored[0].Conn)
	passes(t, stored[0].Conn, client)
}

// A process that could serve a number of connections can also take them over: none needs two
// descriptors meanwhile.
func TestStoredNeedsNoMoreFiles(t *testing.T) {
	const many, spare = 40, 10
	var files []*os.File
	for range many {
		conn, _ := pair(t, unix.SOCK_STREAM)
		files = append(files, handed(t, "conn-7", conn))
	}
	var limit, low unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low = limit
	low.Cur = uint64(files[many-1].Fd()) + spare
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	stored := (&Manager{passedFDs: files}).Stored("conn-")
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, s := range stored {
		if s.Err != nil {
			t.Error(s.Err)
			continue
		}
		s.Conn.Close()
	}
	if len(stored) != many {
		t.Errorf("got %d, want %d", len(stored), many)
	}
}

func TestUnstore(t *testing.T) {
	listener := fakeManager(t)
	if err := managed(t).Unstore("conn-7"); err != nil {
		t.Fatal(err)
	}
	if message, fds := heardWith(t, listener); message != "FDSTOREREMOVE=1\nFDNAME=conn-7" || len(fds) != 0 {
		t.Errorf("got %q with the descriptors %v, want FDSTOREREMOVE of conn-7", message, fds)
	}
}

// A manager that reads slowly delays Store and loses nothing. The connection can be closed
// meanwhile.
func TestStoreWhileTheManagerIsBusy(t *testing.T) {
	listener := fakeManager(t)
	m := managed(t)
	const many = 3000 // more than the queue holds
	last, _ := pair(t, unix.SOCK_STREAM)
	stored := make(chan error, 1)
	go func() { // ends with the last Store, which is awaited below
		for i := range many {
			if err := m.Unstore(fmt.Sprint("conn-", i)); err != nil {
				stored <- err
				return
			}
		}
		stored <- store(t, m, "conn-last", last)
	}()
	for i := range many {
		if got, want := heard(t, listener), fmt.Sprint("FDSTOREREMOVE=1\nFDNAME=conn-", i); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	if err := <-stored; err != nil {
		t.Error(err)
	}
	if message, fds := heardWith(t, listener); message != "FDSTORE=1\nFDNAME=conn-last" || len(fds) != 1 {
		t.Errorf("got %q with %d descriptors, want FDSTORE of conn-last", message, len(fds))
	}
}

func TestStoreRefuses(t *testing.T) {
	fakeManager(t)
	m := managed(t)
	conn, _ := pair(t, unix.SOCK_STREAM)
	for _, name := range []string{"", "a:b", "a\nFDSTORE=1", "ä", strings.Repeat("a", 256)} {
		if err := store(t, m, name, conn); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("name %q: got %v, want an error that quotes it", name, err)
		}
	}
	if err := store(t, m, strings.Repeat("a", 255), conn); err != nil {
		t.Errorf("the longest name: got %v, want none", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := m.Store("conn-7", raw); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed connection: got %v, want an error that says so", err)
	}
}

func TestStoreMax(t *testing.T) {
	fakeManager(t)
	for text, want := range map[string]int{"": 0, "0": 0, "16384": 16384} {
		t.Setenv("FDSTORE", text)
		if got := managed(t).StoreMax(); got != want {
			t.Errorf("FDSTORE=%q: got %d, want %d", text, got, want)
		}
	}
	for _, text := range []string{"many", "-1", "5000000000"} {
		t.Setenv("FDSTORE", text)
		if _, err := FromEnvironment(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("FDSTORE=%q", text)) {
			t.Errorf("FDSTORE=%q: got %v, want an error that names it", text, err)
		}
	}
	t.Setenv("FDSTORE", "16384")
	t.Setenv("NOTIFY_SOCKET", "")
	if got := managed(t).StoreMax(); got != 0 {
		t.Errorf("without a manager: got %d, want 0", got)
	}
}

// The unit sets FDSTORE if systemd is too old to set it.
func TestStoreMaxOfTheUnit(t *testing.T) {
	unit, err := os.ReadFile("redlockd.service")
	if err != nil {
		t.Fatal(err)
	}
	kept := regexp.MustCompile(`(?m)^FileDescriptorStoreMax=([1-9]\d*)$`).FindSubmatch(unit)
	told := regexp.MustCompile(`(?m)^Environment=FDSTORE=(\d+)$`).FindSubmatch(unit)
	if kept == nil || told == nil || string(kept[1]) != string(told[1]) {
		t.Errorf("the unit has FileDescriptorStoreMax=%q and Environment=FDSTORE=%q, want one number", kept, told)
	}
}

// Several connections may have the same name. Unusable descriptors are reported. Descriptors with
// another name stay.
func TestStored(t *testing.T) {
	stream, _ := pair(t, unix.SOCK_STREAM)
	datagram, _ := pair(t, unix.SOCK_DGRAM)
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	m := &Manager{passedFDs: []*os.File{
		handed(t, "conn-1", stream), handed(t, "other", stream), handed(t, "conn-1", stream), handed(t, "conn-datagram", datagram),
		handed(t, "conn-listener", socket), os.NewFile(duplicate(t, reader), "conn-pipe"),
	}}
	var usable []string
	unusable := map[string]error{}
	for _, s := range m.Stored("conn-") {
		if s.Err != nil {
			unusable[s.Name] = s.Err
			continue
		}
		defer s.Conn.Close()
		usable = append(usable, s.Name)
	}
	if !slices.Equal(usable, []string{"conn-1", "conn-1"}) {
		t.Errorf("got the connections %q, want conn-1 twice", usable)
	}
	for _, name := range []string{"conn-datagram", "conn-listener", "conn-pipe"} {
		if err := unusable[name]; err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%s: got %v, want an error that names it", name, err)
		}
	}
	if again := m.Stored("conn-"); len(again) != 0 {
		t.Errorf("asked again: got %v, want none", again)
	}
	if rest := m.CloseRest(); !slices.Equal(rest, []string{"other"}) {
		t.Errorf("got the rest %q, want other", rest)
	}
}

// A stored connection ends when every process has closed it: neither storing nor passing leaves a
// duplicate.
func TestNoDuplicateIsLeft(t *testing.T) {
	listener := fakeManager(t)
	keeper := managed(t)
	one := func(conn *net.UnixConn) *Manager { return &Manager{passedFDs: []*os.File{handed(t, "conn-7", conn)}} }
	for name, use := range map[string]func(conn *net.UnixConn){
		"Store": func(conn *net.UnixConn) {
			if err := store(t, keeper, "conn-7", conn); err != nil {
				t.Error(err)
			}
			heard(t, listener) // heard reads the message without its descriptor
		},
		"Stored":    func(conn *net.UnixConn) { one(conn).Stored("conn-")[0].Conn.Close() },
		"Take":      func(conn *net.UnixConn) { one(conn).CloseStored("conn-7") },
		"CloseRest": func(conn *net.UnixConn) { one(conn).CloseRest() },
	} {
		conn, client := pair(t, unix.SOCK_STREAM)
		use(conn)
		conn.Close()
		client.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: the client reads %v, want the end of the connection", name, err)
		}
	}
}

// A manager that listens again gets messages again, with descriptors.
func TestManagerListensAgain(t *testing.T) {
	listener := fakeManager(t)
	m := managed(t)
	if err := m.Ready(); err != nil {
		t.Fatal(err)
	}
	address := &net.UnixAddr{Name: listener.LocalAddr().String(), Net: "unixgram"}
	conn, _ := pair(t, unix.SOCK_STREAM)
	for want, say := range map[string]func() error{
		"STOPPING=1":               m.Stopping,
		"FDSTORE=1\nFDNAME=conn-7": func() error { return store(t, m, "conn-7", conn) },
	} {
		listener.Close()
		if err := os.Remove(address.Name); err != nil {
			t.Fatal(err)
		}
		var err error
		if listener, err = net.ListenUnixgram("unixgram", address); err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		if err := say(); err != nil {
			t.Fatal(err)
		}
		message, fds := heardWith(t, listener)
		if stores := strings.HasPrefix(want, "FDSTORE"); message != want || stores != (len(fds) == 1) {
			t.Errorf("got %q with the descriptors %v, want %q", message, fds, want)
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
}
