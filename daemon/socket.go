package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/state/statefile"
	"github.com/redlockd/redlockd/ipc/server"
)

// socket is the Unix socket that clients connect to, with the lock file beside it. The lock keeps a
// second daemon from replacing the socket.
type socket struct {
	claim  *claim
	isOurs bool // this daemon created it, not the service manager

	mu       sync.Mutex // guards what follows, and claim.lock; nothing is locked inside it
	listener net.Listener
	file     os.FileInfo // of the path, with this socket; nil: not known
	isPassed bool        // the next process gets this listener
}

// newSocket returns the socket that listener serves at the claimed path.
func newSocket(c *claim, listener net.Listener, isOurs bool) *socket {
	file, _ := os.Lstat(c.path) // fails for a path that was removed: watch reports it
	return &socket{claim: c, listener: listener, file: file, isOurs: isOurs}
}

// listen creates the socket. It replaces the socket of a dead daemon. claimSocket has refused the socket
// of a living one.
func (c *claim) listen(cfg *config.Socket) (*socket, error) {
	listener, err := bindSocket(cfg)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", cfg.Path, err)
	}
	return newSocket(c, listener, true), nil
}

// lockSocket locks the lock file of a socket. The lock ends with the process, however that ends.
func lockSocket(path string) (*os.File, error) {
	if err := config.MayReplace(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	file, err := openLockFile(path)
	if err != nil {
		return nil, err
	}
	if used := statefile.InUse(statefile.PathFor(path)); used != "" {
		file.Close()
		return nil, fmt.Errorf("socket %s: another redlockd that served it still runs, and appends to %s, although %s was removed or replaced: "+
			"end it first: two daemons that continue the same leases can grant held locks to others", path, used, file.Name())
	}
	return file, nil
}

// openLockFile opens the lock file of a socket, and locks it.
func openLockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("socket: %w (does its directory exist, and may this user write there?)", err)
	}
	if err := takeLockFile(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
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

// bindSocket binds a socket to its path, and listens only when the path has its mode and group. Until
// then the kernel refuses all clients, so users that the config does not allow can never connect. The
// socket is bound to the path itself, and not renamed: systemd-tmpfiles and the like remove sockets
// whose path the kernel does not list (/proc/net/unix).
func bindSocket(cfg *config.Socket) (net.Listener, error) {
	if err := os.Remove(cfg.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), cfg.Path)
	defer file.Close()                             // the listener has a duplicate
	umask := syscall.Umask(0o777 &^ int(cfg.Mode)) // of the process; for others it is as strict, or they ask for 0600
	err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: cfg.Path})
	syscall.Umask(umask)
	if longest := len(syscall.RawSockaddrUnix{}.Path) - 1; err == syscall.EINVAL && len(cfg.Path) > longest {
		return nil, fmt.Errorf("%w: its path has %d bytes, and may have %d", syscall.ENAMETOOLONG, len(cfg.Path), longest)
	}
	if err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	listener, err := listenOn(file, cfg)
	if err != nil {
		os.Remove(cfg.Path)
	}
	return listener, err
}

// backlog is how many clients may wait until they are accepted. The kernel allows fewer
// (net.core.somaxconn).
const backlog = 1 << 12

func listenOn(file *os.File, cfg *config.Socket) (net.Listener, error) {
	if cfg.Group != "" {
		gid, err := config.GroupID(cfg.Group)
		if err != nil {
			return nil, err
		}
		if err := os.Lchown(cfg.Path, -1, gid); err != nil {
			return nil, err
		}
	}
	if err := syscall.Listen(int(file.Fd()), backlog); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return net.FileListener(file)
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

// serve accepts connections until ctx ends, also after watch has bound the socket again.
func (s *socket) serve(ctx context.Context, srv *server.Server) error {
	for {
		listener := s.current()
		if err := srv.Serve(ctx, listener); err != nil || ctx.Err() != nil || s.current() == listener {
			return err
		}
	}
}

func (s *socket) current() net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}

// passed returns duplicates of the listener and of the lock file for the next process. From then on
// the socket is not bound again.
func (s *socket) passed() (listener, lock *os.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unix, ok := s.listener.(*net.UnixListener)
	if !ok {
		return nil, nil, errors.ErrUnsupported
	}
	if listener, err = unix.File(); err != nil {
		return nil, nil, err
	}
	s.isPassed = true
	return listener, s.claim.lock, nil
}

// release removes the socket, and then ends the lock on it. If remove is false, the socket stays, so
// that clients of the next daemon find it. A socket of the service manager always stays: the manager
// still listens there.
func (s *socket) release(remove bool) {
	if remove && s.isOurs && s.isInPlace() {
		os.Remove(s.claim.path)
	}
	s.claim.lock.Close()
}

// isInPlace reports whether the path leads to this socket.
func (s *socket) isInPlace() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.Lstat(s.claim.path)
	return err == nil && s.file != nil && os.SameFile(file, s.file)
}
