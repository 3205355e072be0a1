package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/state/statefile"
	"github.com/redlockd/redlockd/ipc"
)

// socket is the Unix socket that clients connect to, with the lock file beside it. The lock keeps a
// second daemon from replacing the socket.
type socket struct {
	net.Listener
	path   string
	lock   *os.File
	isOurs bool // this daemon created it, not the service manager
}

// listen creates the socket in a private directory, sets its rights there, and then moves it into
// place. So users that the config does not allow can never connect. It replaces the socket of a dead
// daemon. claimSocket has refused the socket of a living one.
func (c *claim) listen(cfg *config.Socket) (*socket, error) {
	listener, err := listenInPrivateDir(cfg)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", cfg.Path, err)
	}
	return &socket{Listener: listener, path: cfg.Path, lock: c.lock, isOurs: true}, nil
}

// lockSocket locks the lock file of a socket. The lock ends with the process, however that ends.
func lockSocket(path string) (*os.File, error) {
	if err := config.MayReplace(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("socket: %w (does its directory exist, and may this user write there?)", err)
	}
	if err := takeLockFile(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if used := statefile.InUse(statefile.PathFor(path)); used != "" {
		file.Close()
		return nil, fmt.Errorf("socket %s: another redlockd that served it still runs, and appends to %s, although %s was removed or replaced: "+
			"end it first: two daemons that continue the same leases can grant held locks to others", path, used, file.Name())
	}
	return file, nil
}

// takeLockFile locks the file, and writes the pid of this process into it.
func takeLockFile(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("another redlockd%s serves it: stop that one first, or start this one with -socket PATH to serve another socket", pidIn(file))
	}
	if err != nil {
		return fmt.Errorf("%s cannot be locked: %w", file.Name(), err)
	}
	info, err := file.Stat()
	if err == nil && (info.Size() == 0 || pidIn(file) != "") && file.Truncate(0) == nil { // other content is not redlockd's
		_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0) // only the error text above uses it
	}
	return nil
}

// pidIn returns the pid of the process that locked the file, for an error text; "": the file has
// none.
func pidIn(file *os.File) string {
	text := make([]byte, 20)
	n, _ := file.ReadAt(text, 0) // io.EOF after a short text
	pid, err := strconv.Atoi(string(text[:n]))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", pid)
}

func listenInPrivateDir(cfg *config.Socket) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(cfg.Path), ".r") // 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	aside := filepath.Join(dir, "s")
	listener, err := listenIn(dir, aside)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = setPermissions(aside, cfg); err == nil {
		err = os.Rename(aside, cfg.Path)
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// listenIn creates a socket in a directory. Its temporary path may be longer than the final one, and
// too long for the kernel. Then it uses a path through /proc/self/fd.
func listenIn(dir, path string) (net.Listener, error) {
	if len(path) <= ipc.MaxSocketPath {
		return net.Listen("unix", path)
	}
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path)))
}

func setPermissions(path string, cfg *config.Socket) error {
	if cfg.Group != "" {
		gid, err := config.GroupID(cfg.Group)
		if err != nil {
			return err
		}
		if err := os.Chown(path, -1, gid); err != nil {
			return err
		}
	}
	return os.Chmod(path, cfg.Mode)
}

// SyscallConn lets server.Server check for connections before it accepts them.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	listener, ok := s.Listener.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return listener.SyscallConn()
}

// duplicate returns a duplicate that stays open when the server closes the socket.
func (s *socket) duplicate() (*os.File, error) {
	listener, ok := s.Listener.(*net.UnixListener)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return listener.File()
}

// release removes the socket, and then ends the lock on it. If remove is false, the socket stays, so
// that clients of the next daemon find it. A socket of the service manager always stays: the manager
// still listens there.
func (s *socket) release(remove bool) {
	if remove && s.isOurs {
		os.Remove(s.path)
	}
	s.lock.Close()
}
