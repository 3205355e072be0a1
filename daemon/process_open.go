package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// Why a process cannot hold a lock, or cannot be asked about.
var (
	errInit      = fmt.Errorf("%w: pid 1 lives for as long as the machine or container does: name a process that ends, or leave it to a connection (hold=conn, redlock run)", access.ErrDenied)
	errKernel    = fmt.Errorf("%w: it is a thread of the kernel", access.ErrDenied)
	errNotYours  = fmt.Errorf("%w: it is a process of another user (root may)", access.ErrDenied)
	errNoProcess = fmt.Errorf("%w: there is no such process, or it has ended", errOption)
	errThread    = fmt.Errorf("%w: it is a thread: give the number of its process", errOption)
	errHidden    = fmt.Errorf("%w: the daemon cannot see whose process it is, as its /proc is mounted with hidepid (ProtectProc= of its service)", errOption)
	errForeign   = fmt.Errorf("%w: the client runs where processes have other numbers (in a container?), or has ended: "+
		"leave pid= out, use hold=conn (redlock run), or lease=", errOption)
	errInvisible = fmt.Errorf("%w: the daemon cannot see the client's process (is the daemon in a container?): use hold=conn (redlock run)", errOption)
	errNoPIDFD   = fmt.Errorf("%w: this system has no pidfd (Linux has, from 5.3 on): use hold=conn (redlock run)", errOption)
)

// useProcess is the process that a LOCK with hold=pid is for: that of pid=, or the
// one that connected. See processes.use.
func (s *session) useProcess(call *server.Call) (*process, error) {
	pid := s.pid
	if call.Has(ipc.OptPID) {
		pid = call.PID
	}
	fd, err := s.openProcess(call, pid)
	if err == nil {
		var p *process
		if p, err = s.d.processes.use(fd, pid); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("hold=pid, process %d: %w", pid, err)
}

// openProcess is a pidfd of the process that call is for, if that may be.
func (s *session) openProcess(call *server.Call, pid int) (fd int, err error) {
	if err := s.d.mayTakeDescriptor(); err != nil {
		return 0, shortage(err)
	}
	switch {
	case pid == 1:
		return 0, errInit
	case !call.Has(ipc.OptPID):
		return s.openPeer()
	}
	if err := s.mayName(); err != nil {
		return 0, err
	}
	return openAs(pid, func(f facts) error {
		switch {
		case f.kernel:
			return errKernel
		case s.uid != 0 && f.uid != s.uid:
			return errNotYours
		}
		return nil
	})
}

// mayName refuses a number that need not mean to the client what it means here. That a
// client cannot be seen for now, for want of files, is no matter of numbers.
func (s *session) mayName() error {
	if s.pid == 0 {
		return errForeign
	}
	same, err := s.countsAsWe()
	if err == nil && !same || errors.Is(err, errNoProcess) {
		return errForeign
	}
	return err
}

// openPeer is a pidfd of the process that connected. Without the kernel's help it
// goes by the number, and by when the process that has it was started: one that got
// the number since was started later. (As the kernel tells that in hundredths of a
// second, all other numbers would have to be used up in one for that to go wrong.)
func (s *session) openPeer() (fd int, err error) {
	if s.pid == 0 {
		return 0, errInvisible
	}
	fd, err = s.conn.PeerPIDFD()
	switch {
	case err == nil:
		return fd, nil
	case !errors.Is(err, errors.ErrUnsupported):
		return 0, goneOrShort(err)
	}
	return openStartedBy(s.pid, s.opened)
}

// goneOrShort is what it means that the kernel has no pidfd of a peer.
func goneOrShort(err error) error {
	if short := shortage(err); errors.Is(short, errShort) {
		return short
	}
	return errNoProcess
}

func openStartedBy(pid int, then time.Duration) (fd int, err error) {
	return openAs(pid, func(f facts) error {
		if f.started > then {
			return errNoProcess
		}
		return nil
	})
}

// openAs is a pidfd of the process with the number pid, if what is known of it
// passes a check.
func openAs(pid int, check func(facts) error) (fd int, err error) {
	fd, err = openPID(pid)
	if err != nil {
		return 0, err
	}
	f, err := factsOf(pid)
	if !isAlive(fd) { // nobody knows whose the facts are
		err = errNoProcess
	}
	if err == nil {
		err = check(f)
	}
	if err != nil {
		closeFD(fd)
		return 0, err
	}
	return fd, nil
}

// countsAsWe tells whether numbers of processes mean to the client what they mean
// here. An error is that the client cannot be seen: it may have ended.
func (s *session) countsAsWe() (bool, error) {
	if s.numbering == unknownNumbering {
		f, err := factsOf(s.pid)
		switch {
		case err != nil:
			return false, err
		case f.nested:
			s.numbering = otherNumbering
		default:
			s.numbering = sameNumbering
		}
	}
	return s.numbering == sameNumbering, nil
}

// numbering is whether a client is in another PID namespace.
type numbering uint8

const (
	unknownNumbering numbering = iota
	sameNumbering
	otherNumbering
)

// facts are what the system tells of a process.
type facts struct {
	uid     int           // real
	kernel  bool          // a thread of the kernel
	nested  bool          // it is in a PID namespace within the daemon's
	started time.Duration // BootTime, in hundredths of a second, rounded down
}

// mayAskAbout refuses what can hold nothing for this user. A client that cannot be seen
// may ask: what it is told of is its user's.
func (s *session) mayAskAbout(pid int) error {
	if pid == 1 {
		return fmt.Errorf("pid=1: %w", errInit)
	}
	if same, err := s.countsAsWe(); err == nil && !same {
		return fmt.Errorf("pid=%d: %w", pid, errForeign)
	}
	return nil
}

// isAnothers tells whether a process that can be seen is another user's.
func (s *session) isAnothers(pid int) bool {
	f, err := factsOf(pid)
	return err == nil && s.uid != 0 && f.uid != s.uid
}
