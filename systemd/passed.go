package systemd

import (
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
)

// ListenerName is the name of the socket in redlockd.socket (FileDescriptorName=).
const ListenerName = "redlockd"

// Passed is a descriptor that Replace passes to the next process.
type Passed struct {
	Name string
	FD   syscall.RawConn
}

const (
	passedVariable = "REDLOCKD_PASSED" // the descriptor of the list of descriptors, for the next process
	passedName     = "redlockd-passed" // the name of the list, in /proc
)

// File returns the passed descriptor of that name, or nil if there is none.
func (m *Manager) File(name string) *os.File {
	files := m.takeNamed(name)
	if len(files) == 0 {
		return nil
	}
	closeAll(files[1:])
	return files[0]
}

// Listener returns the passed socket of that name, or nil if there is none. Closing it neither ends
// the socket nor removes its file, because the manager continues to listen. If something other than
// one Unix stream socket was passed under that name, it returns an error.
func (m *Manager) Listener(name string) (*net.UnixListener, error) {
	files := m.takeNamed(name)
	defer closeAll(files)
	switch len(files) {
	case 0:
		return nil, nil
	case 1:
		return unixListener(name, files[0])
	}
	return nil, fmt.Errorf("the service manager passed %d descriptors named %q instead of one: "+
		"keep one ListenStream= in the .socket unit", len(files), name)
}

func unixListener(name string, file *os.File) (*net.UnixListener, error) {
	listener, err := net.FileListener(file) // duplicates the descriptor
	if err != nil {
		return nil, fmt.Errorf("the descriptor %q of the service manager: %w", name, err)
	}
	socket, ok := listener.(*net.UnixListener)
	if !ok {
		defer listener.Close()
		return nil, fmt.Errorf("the descriptor %q of the service manager listens at %s, not on a Unix socket: "+
			"write a path in ListenStream= of the .socket unit", name, listener.Addr())
	}
	socket.SetUnlinkOnClose(false)
	return socket, nil
}

// takeNamed removes the descriptors with that name from the passed ones, and returns them.
func (m *Manager) takeNamed(name string) []*os.File {
	return m.takeFunc(func(other string) bool { return other == name })
}

// takeFunc removes the descriptors for whose names wanted returns true from the passed ones, and
// returns them in any order.
func (m *Manager) takeFunc(wanted func(name string) bool) (taken []*os.File) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passedFDs = slices.DeleteFunc(m.passedFDs, func(file *os.File) bool {
		if !wanted(file.Name()) {
			return false
		}
		taken = append(taken, file)
		return true
	})
	return taken
}

// CloseRest closes the passed descriptors that were not taken, and returns their names.
func (m *Manager) CloseRest() (names []string) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	rest := m.passedFDs
	m.passedFDs = nil
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
