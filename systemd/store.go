package systemd

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// StoreMax returns how many descriptors the manager keeps for the next process of this service. It
// is 0 if there is no manager, or it keeps none. The manager silently drops descriptors beyond that
// number.
func (m *Manager) StoreMax() int {
	if m == nil || m.notifier == nil {
		return 0
	}
	return m.storeMax
}

// Store gives a duplicate of a descriptor to the manager. The manager passes it under that name to
// the next process of this service, however this process ends; see Stored. If the peer closes the
// connection, the manager drops it. Until then the manager keeps it open, even if this process
// closes it: see Unstore.
//
// Store blocks while the manager's queue is full, for ever if the manager hangs. So call it on a
// goroutine that need not end. The connection may be closed meanwhile. A nil error does not mean
// that the manager keeps the descriptor: see StoreMax.
func (m *Manager) Store(name string, raw syscall.RawConn) error {
	if m == nil || m.notifier == nil {
		return nil
	}
	if !validName(name) {
		return fmt.Errorf("%q is no name for a descriptor: 1 to 255 printable ASCII characters, and no colon", name)
	}
	fd, err := duplicateOf(raw)
	if err != nil {
		return fmt.Errorf("storing %s with the service manager: %w", name, err)
	}
	defer unix.Close(fd)
	return m.notify("FDSTORE=1\nFDNAME="+name, fd)
}

// Unstore removes all descriptors of that name from the manager's store. It blocks as Store does.
func (m *Manager) Unstore(name string) error {
	return m.notify("FDSTOREREMOVE=1\nFDNAME=" + name)
}

// CloseStored closes the descriptors that earlier processes have stored under that name, and
// reports whether there were any. The manager keeps its copies.
func (m *Manager) CloseStored(name string) bool {
	files := m.takeNamed(name)
	closeAll(files)
	return len(files) > 0
}

// StoredConn is a connection that an earlier process of this service has stored.
type StoredConn struct {
	Name string
	Conn *net.UnixConn // nil: see Err
	Err  error
}

// Stored takes the connections that earlier processes have stored under names with that prefix, in
// any order. Several may have the same name. If a descriptor is not a Unix stream connection, it is
// closed and returned with an error. It stays in the manager's store until Unstore.
func (m *Manager) Stored(prefix string) []StoredConn {
	files := m.takeFunc(func(name string) bool { return strings.HasPrefix(name, prefix) })
	stored := make([]StoredConn, len(files))
	for i, file := range files {
		conn, err := unixConn(file)
		stored[i] = StoredConn{Name: file.Name(), Conn: conn, Err: err}
		file.Close() // before the next one, because two descriptors for each could exceed the limit
	}
	return stored
}

// unixConn makes a connection of a duplicate of the file's descriptor.
func unixConn(file *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("the descriptor %q of the service manager is not a connection: %w", file.Name(), err)
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok || conn.LocalAddr().Network() != "unix" || listens(socket) {
		defer conn.Close()
		return nil, fmt.Errorf("the descriptor %q of the service manager is not a connection on a Unix stream socket (found %s)",
			file.Name(), conn.LocalAddr().Network())
	}
	return socket, nil
}

func listens(socket *net.UnixConn) (so bool) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		value, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		so = err == nil && value != 0
	})
	return so
}

// duplicateOf returns a duplicate. It does not prevent raw from being closed.
func duplicateOf(raw syscall.RawConn) (fd int, err error) {
	closed := raw.Control(func(original uintptr) {
		fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	})
	if closed != nil {
		return 0, closed
	}
	return fd, err
}

// validName follows the rules for FDNAME= in sd_pid_notify_with_fds(3).
func validName(name string) bool {
	if len(name) < 1 || len(name) > 255 {
		return false
	}
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' || c == ':' {
			return false
		}
	}
	return true
}
