package systemd

import (
	"fmt"
	"net"
	"os"
	"slices"
)

// ListenerName is what redlockd.socket calls its socket (FileDescriptorName=).
const ListenerName = "redlockd"

// Listener is the socket of that name that the manager listens on for this
// process; nil where it has none. To close it does not end the socket, nor take it
// away from the file system: the manager goes on to listen. An error means that
// something else than one Unix stream socket was handed over by that name.
func (m *Manager) Listener(name string) (*net.UnixListener, error) {
	files := m.take(name)
	defer closeAll(files)
	switch len(files) {
	case 0:
		return nil, nil
	case 1:
		return unixListener(name, files[0])
	}
	return nil, fmt.Errorf("the service manager handed over %d descriptors with the name %q, one was expected: "+
		"one ListenStream= in the .socket unit", len(files), name)
}

func unixListener(name string, file *os.File) (*net.UnixListener, error) {
	listener, err := net.FileListener(file) // a duplicate
	if err != nil {
		return nil, fmt.Errorf("the descriptor %q of the service manager: %w", name, err)
	}
	socket, ok := listener.(*net.UnixListener)
	if !ok {
		defer listener.Close()
		return nil, fmt.Errorf("the descriptor %q of the service manager listens at %s, a Unix socket was wanted: "+
			"a path in ListenStream= of the .socket unit", name, listener.Addr())
	}
	socket.SetUnlinkOnClose(false)
	return socket, nil
}

// take removes the descriptors of that name from those that were handed over.
func (m *Manager) take(name string) []*os.File {
	return m.takeFunc(func(other string) bool { return other == name })
}

// takeFunc removes the descriptors whose names are wanted from those that were
// handed over. They come in any order.
func (m *Manager) takeFunc(wanted func(name string) bool) (taken []*os.File) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handed = slices.DeleteFunc(m.handed, func(file *os.File) bool {
		if !wanted(file.Name()) {
			return false
		}
		taken = append(taken, file)
		return true
	})
	return taken
}

// CloseRest closes what nobody took, and returns its names.
func (m *Manager) CloseRest() (names []string) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	rest := m.handed
	m.handed = nil
	m.mu.Unlock()
	closeAll(rest)
	for _, file := range rest {
		names = append(names, file.Name())
	}
	return names
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}
