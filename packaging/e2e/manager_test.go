//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// manager is a service manager with the functions that a restart needs: it listens on the daemon's
// socket, starts the daemon, keeps descriptors for it, and passes them to the next one.
type manager struct {
	t        *testing.T
	host     *host
	listener *os.File
	places   int
	flushed  chan struct{} // receives when a flush message was read

	mu     sync.Mutex // guards the fields below
	notify *net.UnixConn
	stored []storedFile
}

type storedFile struct {
	name string
	file *os.File
}

// newManager listens on the host's socket. places is how many descriptors the daemon may store.
func newManager(t *testing.T, h *host, places int) *manager {
	t.Helper()
	made, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	made.SetUnlinkOnClose(false)
	m := &manager{t: t, host: h, places: places, flushed: make(chan struct{}, 1)}
	if m.listener, err = made.File(); err != nil {
		t.Fatal(err)
	}
	m.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(h.dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{})
	go m.listen(heard)
	t.Cleanup(func() {
		m.notify.Close()
		await(t, patience, heard, "the listener for the daemon's messages to end", nil)
		m.listener.Close()
		for _, s := range m.stored {
			s.file.Close()
		}
	})
	return m
}

// serve starts a daemon with all stored descriptors, and returns when it serves.
func (m *manager) serve() *process {
	m.t.Helper()
	d := m.start()
	awaitLog(d, "serving: ")
	return d
}

// start starts a daemon with all stored descriptors.
func (m *manager) start() *process {
	m.t.Helper()
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, filepath.Join(binaries, "redlockd"), "-config", m.host.config)
	cmd.Dir = m.host.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	names, files := m.handOver()
	defer closeFiles(files)
	cmd.ExtraFiles = append([]*os.File{m.listener}, files...)
	names = append([]string{"redlockd"}, names...)
	cmd.Env = append(os.Environ(),
		"NOTIFY_SOCKET="+filepath.Join(m.host.dir, "n"),
		fmt.Sprint("FDSTORE=", m.places),
		fmt.Sprint("LISTEN_FDS=", len(names)),
		"LISTEN_FDNAMES="+strings.Join(names, ":"))
	return startCommand(m.t, cmd)
}

// flush returns when all earlier messages were read.
func (m *manager) flush() {
	m.t.Helper()
	conn, err := net.Dial("unixgram", filepath.Join(m.host.dir, "n"))
	if err != nil {
		m.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience)) // the queue of messages may be full
	if _, err := conn.Write([]byte("FLUSH")); err != nil {
		m.t.Fatal(err)
	}
	await(m.t, patience, m.flushed, "the daemon's earlier messages to be heard", nil)
}

// handOver returns duplicates of the stored descriptors: the old daemon's last messages may remove
// descriptors meanwhile.
func (m *manager) handOver() (names []string, files []*os.File) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropOver()
	for _, s := range m.stored {
		fd, err := unix.FcntlInt(s.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			m.t.Fatal(err)
		}
		names, files = append(names, s.name), append(files, os.NewFile(uintptr(fd), s.name))
	}
	return names, files
}

func closeFiles(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

// dropOver closes connections whose peer has closed them, as systemd does.
func (m *manager) dropOver() {
	kept := m.stored[:0]
	for _, s := range m.stored {
		fds := []unix.PollFd{{Fd: int32(s.file.Fd())}}
		if n, err := unix.Poll(fds, 0); err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
			s.file.Close()
			continue
		}
		kept = append(kept, s)
	}
	m.stored = kept
}

// listen reads the daemon's messages until the socket is closed.
func (m *manager) listen(over chan<- struct{}) {
	defer close(over)
	text, oob := make([]byte, 4096), make([]byte, 4096)
	for {
		n, oobn, _, _, err := m.notify.ReadMsgUnix(text, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			m.t.Error(err)
			return
		}
		m.take(text[:n], passed(m.t, oob[:oobn]))
	}
}

func passed(t *testing.T, oob []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		t.Error(err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			t.Error(err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "stored"))
		}
	}
	return files
}

func (m *manager) take(text []byte, files []*os.File) {
	var name string
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("FDNAME=")); ok {
			name = string(value)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case bytes.HasPrefix(text, []byte("FDSTORE=1")):
		for _, file := range files {
			m.stored = append(m.stored, storedFile{name, file})
		}
	case bytes.HasPrefix(text, []byte("FDSTOREREMOVE=1")):
		kept := m.stored[:0]
		for _, s := range m.stored {
			if s.name == name {
				s.file.Close()
				continue
			}
			kept = append(kept, s)
		}
		m.stored = kept
	case bytes.Equal(text, []byte("FLUSH")): // this test's own message
		m.flushed <- struct{}{}
	default:
		for _, file := range files { // of a barrier message
			file.Close()
		}
	}
}

// has returns how many connections are stored.
func (m *manager) has() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropOver()
	for _, s := range m.stored {
		if s.name != "mark" {
			n++
		}
	}
	return n
}
