package systemd

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// StoreMax is how many descriptors the manager keeps for the next process of this
// service; 0 where there is no manager, or it keeps none. The manager drops what is
// beyond that, and does not say so.
func (m *Manager) StoreMax() int {
	if m == nil || m.notifier == nil {
		return 0
	}
	return m.storeMax
}

// Store leaves a duplicate of a descriptor with the manager, which hands it over by
// that name to the next process of this service, however this one ends; see Stored.
// A connection whose other end is closed leaves the store by itself; until then the
// store keeps it open, also where this process closes it: see Unstore.
//
// Store blocks as long as the manager's queue is full, for ever where the manager
// hangs: call it from a goroutine that nobody waits for. The connection can be
// closed meanwhile. Nil is no promise that it was kept: see StoreMax.
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

// Unstore takes all descriptors of that name out of the manager's store. It blocks
// as Store does.
func (m *Manager) Unstore(name string) error {
	return m.notify("FDSTOREREMOVE=1\nFDNAME=" + name)
}

// Take closes what earlier processes have stored by that name, which stays in the
// store, and tells whether there was something.
func (m *Manager) Take(name string) bool {
	files := m.take(name)
	closeAll(files)
	return len(files) > 0
}

// StoredConn is a connection that an earlier process of this service has stored.
type StoredConn struct {
	Name string
	Conn *net.UnixConn // nil: Err says why
	Err  error
}

// Stored takes what earlier processes have stored by names with that prefix, in no
// order; a name may come several times. What is no Unix stream connection is
// closed, and comes with an error: it stays in the store until Unstore.
func (m *Manager) Stored(prefix string) []StoredConn {
	files := m.takeFunc(func(name string) bool { return strings.HasPrefix(name, prefix) })
	stored := make([]StoredConn, len(files))
	for i, file := range files {
		conn, err := unixConn(file)
		stored[i] = StoredConn{Name: file.Name(), Conn: conn, Err: err}
		file.Close() // before the next: all twice may be more files than are allowed
	}
	return stored
}

// unixConn makes a connection of a duplicate of the file's descriptor.
func unixConn(file *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("the descriptor %q of the service manager is no connection: %w", file.Name(), err)
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok || conn.LocalAddr().Network() != "unix" || listens(socket) {
		defer conn.Close()
		return nil, fmt.Errorf("the descriptor %q of the service manager is no connection on a Unix stream socket (found %s)",
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

// duplicateOf is a descriptor that does not keep raw from being closed.
func duplicateOf(raw syscall.RawConn) (fd int, err error) {
	closed := raw.Control(func(original uintptr) {
		fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	})
	if closed != nil {
		return 0, closed
	}
	return fd, err
}

// validName: sd_pid_notify_with_fds(3), FDNAME=.
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
