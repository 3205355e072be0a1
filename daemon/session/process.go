package session

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/process"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// processes watches the processes that hold leases (hold=pid), or will hold them.
type processes struct {
	ended func(*heldProcess) // called for a process that has ended

	mu      sync.Mutex // guards what follows, and some fields of heldProcess; the watcher's mutex is taken inside it
	watcher processWatcher
	byPID   map[int]*heldProcess
	all     map[*heldProcess]struct{}
}

// processWatcher is a process.Watcher.
type processWatcher interface {
	Watch(fd int, ended func()) error
	Unwatch(fd int)
}

// heldProcess is a process that is watched.
type heldProcess struct {
	pid     int
	started time.Duration    // BootTime, from process.Facts; 0: not known
	client  locktable.Client // the leases that it holds; guarded by the Host's mu
	ended   chan struct{}    // closed when it has ended

	// Guarded by the mu of processes.
	fd      int
	users   int  // number of LOCKs under way and leases; the watch ends at 0
	dropped bool // it is no longer watched
}

// newHeldProcess returns a process with one user.
func newHeldProcess(pid int, started time.Duration, fd int) *heldProcess {
	p := &heldProcess{pid: pid, started: started, ended: make(chan struct{}), fd: fd, users: 1}
	p.client.Of, p.client.IsProcess = p, true
	return p
}

// processOf returns the process behind a client, or nil.
func processOf(c *locktable.Client) *heldProcess {
	if c == nil || !c.IsProcess {
		return nil
	}
	return c.Of.(*heldProcess)
}

func newProcesses(ended func(*heldProcess)) *processes {
	return &processes{ended: ended, byPID: map[int]*heldProcess{}, all: map[*heldProcess]struct{}{}}
}

// hasEnded reports whether the process has ended. It is false for nil.
func (p *heldProcess) hasEnded() bool { return p != nil && isClosed(p.ended) }

// processEnded is the error of a LOCK whose process has ended. It matches server.ErrCancelled, although
// no client cancelled the request.
type processEnded int

func (pid processEnded) Error() string {
	return fmt.Sprintf("process %d, which should hold it, has ended", int(pid))
}

func (processEnded) Is(target error) bool { return target == server.ErrCancelled }

// Watch starts the watcher. stop stops it, and waits until no lease is being released.
func (t *processes) Watch() (stop func(), err error) {
	w, err := process.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching processes (hold=pid): %w", err)
	}
	t.mu.Lock()
	t.watcher = w
	t.mu.Unlock()
	return func() {
		w.Stop()
		t.dropAll()
	}, nil
}

// end releases all leases of a process that has ended.
func (t *processes) end(p *heldProcess) {
	t.mu.Lock()
	dropped := p.dropped
	if !dropped {
		t.dropLocked(p)
	}
	t.mu.Unlock()
	if dropped {
		return
	}
	close(p.ended)
	t.ended(p)
}

// use watches a process until release was called once for each call of use and keep. fd is a pidfd
// of a process that has, or had, the number pid. If the process is watched already, use closes fd.
func (t *processes) use(fd, pid int) (*heldProcess, error) {
	var started time.Duration
	if t.find(pid) == nil {
		started = process.StartOf(pid) // not inside mu, because it reads files; the check below makes sure that it is this process's
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !process.IsAlive(fd) {
		process.Close(fd)
		return nil, errNoProcess
	}
	if p := t.findLocked(pid); p != nil { // both are alive, so they are the same process
		process.Close(fd)
		p.users++
		return p, nil
	}
	p := newHeldProcess(pid, started, fd)
	if err := t.watcher.Watch(fd, func() { t.end(p) }); err != nil {
		process.Close(fd)
		return nil, processError(err)
	}
	t.byPID[pid], t.all[p] = p, struct{}{}
	return p, nil
}

// keep adds a user to a process that already has one.
func (t *processes) keep(p *heldProcess) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.users++
}

// release ends what use or keep began. It does nothing for nil.
func (t *processes) release(p *heldProcess) {
	if p == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.users--; p.users == 0 && !p.dropped {
		t.dropLocked(p)
	}
}

// find returns the living process with this number, or nil if it is not watched.
func (t *processes) find(pid int) *heldProcess {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.findLocked(pid)
}

// findLocked is find, with mu held.
func (t *processes) findLocked(pid int) *heldProcess {
	if p := t.byPID[pid]; p != nil && process.IsAlive(p.fd) {
		return p
	}
	return nil
}

// dropLocked ends the watch. Another process may already have the number.
func (t *processes) dropLocked(p *heldProcess) {
	p.dropped = true
	if t.byPID[p.pid] == p {
		delete(t.byPID, p.pid)
	}
	delete(t.all, p)
	t.watcher.Unwatch(p.fd)
	process.Close(p.fd)
}

// dropAll ends all watches, because the daemon stops.
func (t *processes) dropAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.all {
		t.dropLocked(p)
	}
}

// endProcess ends the leases of a process that has ended.
func (d *Host) endProcess(p *heldProcess) {
	d.mu.Lock()
	leases := d.table.EndProcess(&p.client)
	d.mu.Unlock()
	for _, l := range leases {
		d.holderEnded(leaseOf(l))
	}
}

// The errors for a process that cannot hold a lock, or that the client may not name.
var (
	errInit      = fmt.Errorf("%w: pid 1 lives as long as the machine or container: name a process that ends, or use a connection (hold=conn, redlock run)", access.ErrDenied)
	errKernel    = fmt.Errorf("%w: it is a thread of the kernel", access.ErrDenied)
	errOtherUser = fmt.Errorf("%w: it is a process of another user (root may)", access.ErrDenied)
	errNoProcess = processError(process.ErrNoProcess)
	errNotAbove  = badOption("the client has a PID namespace of its own (a container?), and can name only itself and its parent processes there: " +
		"use hold=conn (redlock run), or lease=")
	errInvisible = badOption("the daemon cannot see the client's process: it is in another container, or has ended: use hold=conn (redlock run), or lease=")
)

// processError returns the client's error for an error of package process. Errors for clients, and nil,
// stay as they are.
func processError(err error) error {
	if err == nil || errors.Is(err, access.ErrDenied) || errors.Is(err, errOption) {
		return err
	}
	if errors.Is(err, process.ErrNotAbove) {
		return errNotAbove
	}
	for _, known := range []error{process.ErrNoProcess, process.ErrThread, process.ErrHidden, process.ErrNoPIDFD} {
		if errors.Is(err, known) {
			return badOption("%w", err)
		}
	}
	return shortageError(err)
}

// useProcess returns the process that will hold the lock of a LOCK with hold=pid: the process of
// pid=, or the client itself. See processes.use.
func (s *session) useProcess(call *server.Call) (*heldProcess, error) {
	fd, pid, err := s.openProcess(call)
	if err == nil {
		var p *heldProcess
		if p, err = s.host.Processes.use(fd, pid); err == nil {
			return p, nil
		}
	}
	named := s.pid
	if call.Has(ipc.OptPID) {
		named = call.PID
	}
	return nil, fmt.Errorf("hold=pid, process %d: %w", named, err)
}

// openProcess returns a pidfd and the pid of the process that call names, if the client may name it.
func (s *session) openProcess(call *server.Call) (fd, pid int, err error) {
	if err := s.host.checkDescriptorsLeft(); err != nil {
		return 0, 0, shortageError(err)
	}
	if !call.Has(ipc.OptPID) {
		if s.pid == 1 {
			return 0, 0, errInit
		}
		fd, err := s.openPeer()
		return fd, s.pid, err
	}
	if fd, pid, err = s.openNamed(call.PID); err != nil {
		return 0, 0, err
	}
	if err = errInit; pid != 1 {
		err = process.Check(fd, pid, s.mayName)
	}
	if err != nil {
		process.Close(fd)
		return 0, 0, processError(err)
	}
	return fd, pid, nil
}

// mayName returns an error if the client may not name a process with these facts.
func (s *session) mayName(f process.Facts) error {
	switch {
	case f.Kernel:
		return errKernel
	case s.uid != 0 && f.UID != s.uid:
		return errOtherUser
	}
	return nil
}

// openNamed returns a pidfd and the pid of the process that the client calls by the number named. In
// the daemon's PID namespace these are the same. From a namespace within it, a client can name itself
// and its ancestors: the daemon finds these without knowing the other processes of that namespace.
func (s *session) openNamed(named int) (fd, pid int, err error) {
	same, err := s.isInOurPIDNamespace()
	switch {
	case err != nil:
		return 0, 0, err
	case same:
		fd, err = process.Open(named)
		return fd, named, processError(err)
	}
	if fd, err = s.openPeer(); err == nil {
		fd, pid, err = process.OpenAbove(fd, s.pid, named)
	}
	return fd, pid, processError(err)
}

// openPeer returns a pidfd of the process that connected. If the kernel gives none for a socket,
// openPeer opens the process by its pid and checks its start: a process that got the same pid later
// was started later. The kernel reports the start in hundredths of a second. The check fails only
// if all pids are used within one of these.
func (s *session) openPeer() (fd int, err error) {
	if s.pid == 0 {
		return 0, errInvisible
	}
	fd, err = s.conn.PeerPIDFD()
	switch {
	case err == nil:
		return fd, nil
	case !errors.Is(err, errors.ErrUnsupported):
		return 0, peerError(err)
	}
	fd, err = process.OpenStartedBy(s.pid, s.opened)
	if err != nil {
		err = processError(err)
	}
	return fd, err
}

// peerError returns the error for a peer whose pidfd the kernel does not give.
func peerError(err error) error {
	if short := shortageError(err); errors.Is(short, errShortage) {
		return short
	}
	return errNoProcess
}

// isInOurPIDNamespace reports whether the client is in the daemon's PID namespace, so that pids
// mean the same to both. It returns an error if the client's process is not visible: it may have
// ended.
func (s *session) isInOurPIDNamespace() (bool, error) {
	if s.pidNamespace == namespaceUnknown {
		if s.pid == 0 {
			return false, errInvisible
		}
		f, err := process.FactsOf(s.pid)
		switch {
		case errors.Is(err, process.ErrNoProcess):
			return false, errInvisible
		case err != nil: // a shortage of files proves nothing about pids
			return false, processError(err)
		case f.Nested():
			s.pidNamespace = namespaceOther
		default:
			s.pidNamespace = namespaceOurs
		}
	}
	return s.pidNamespace == namespaceOurs, nil
}

// pidNamespace records whether a client is in another PID namespace.
type pidNamespace uint8

const (
	namespaceUnknown pidNamespace = iota
	namespaceOurs
	namespaceOther
)

// pidOf returns the pid of the process that the client calls by the number named. A client that is
// not visible may ask for any number, because it sees only leases of its own user.
func (s *session) pidOf(named int) (pid int, err error) {
	same, err := s.isInOurPIDNamespace()
	switch {
	case (same || err != nil) && named == 1:
		return 0, fmt.Errorf("pid=1: %w", errInit)
	case same || err != nil:
		return named, nil
	}
	fd, pid, err := s.openNamed(named)
	if err != nil {
		return 0, fmt.Errorf("pid=%d: %w", named, err)
	}
	process.Close(fd)
	return pid, nil
}

// isOfOtherUser reports whether a process is visible and belongs to another user.
func (s *session) isOfOtherUser(pid int) bool {
	f, err := process.FactsOf(pid)
	return err == nil && s.uid != 0 && f.UID != s.uid
}
