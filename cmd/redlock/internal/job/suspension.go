package job

import (
	"os"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

// suspendTimeout is how long a command may take to stop after Ctrl-Z. If the command ignores
// Ctrl-Z, somebody may stop it later, alone.
const suspendTimeout = 10 * time.Second

// suspension decides when this process stops together with the command. A shell with job control
// waits for this process, so it must stop when Ctrl-Z has stopped the command. SIGSTOP does not
// come from the terminal: somebody stops the command alone, and this process goes on and watches
// the lock. After Ctrl-Z this process also stops if the command stopped with SIGSTOP, as su does.
// Its own signal and the command's may be seen in either order.
type suspension struct {
	typed  int       // Ctrl-Z seen, minus stops of the command that it caused
	last   time.Time // when Ctrl-Z was last seen
	paused bool      // the command was stopped by SIGSTOP, and this process was not
}

// commandStopped is called when a signal has stopped the command. It reports whether this process
// stops too.
func (s *suspension) commandStopped(by syscall.Signal) (stop bool) {
	if s.typed > 0 && time.Since(s.last) > suspendTimeout {
		s.typed = 0
	}
	if s.paused = by == syscall.SIGSTOP && s.typed <= 0; s.paused {
		return false
	}
	s.typed--
	return true
}

// suspendTyped is called for Ctrl-Z. It reports whether this process stops.
func (s *suspension) suspendTyped() (stop bool) {
	s.typed, s.last = s.typed+1, time.Now()
	return s.paused && s.commandStopped(syscall.SIGSTOP)
}

// commandContinued is called when the stopped command runs again.
func (s *suspension) commandContinued() { s.paused = false }

// stopSelf stops this process if a shell may be waiting for that.
func stopSelf(stop bool) {
	if stop && term.UnderJobControl() {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP) // cannot fail; SIGCONT is forwarded
	}
}
