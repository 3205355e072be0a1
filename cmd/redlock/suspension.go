package main

import (
	"os"
	"syscall"
	"time"
)

// answersIn is how long a command may take to stop for Ctrl-Z. One that does not stop for it
// at all may be stopped by somebody later, alone, and go on alone.
const answersIn = 10 * time.Second

// suspension finds out when this process is to stop with the command: a shell with job
// control that looks at it would wait for ever otherwise. SIGSTOP is not the terminal's:
// somebody wants the command to stop, who may not think of us, and the lock is looked
// after meanwhile; unless Ctrl-Z was typed, which redlock run answers with that, as others
// do (su). Of the two signals, its own and the command's, either may be heard of first.
type suspension struct {
	typed  int       // how often Ctrl-Z was heard of, less how often that stopped the command
	last   time.Time // when it was heard of last
	paused bool      // the command was stopped by SIGSTOP, and we were not
}

// stopped is for the command.
func (s *suspension) stopped(by syscall.Signal) (stop bool) {
	if s.typed > 0 && time.Since(s.last) > answersIn {
		s.typed = 0
	}
	if s.paused = by == syscall.SIGSTOP && s.typed <= 0; s.paused {
		return false
	}
	s.typed--
	return true
}

// typedNow is for Ctrl-Z.
func (s *suspension) typedNow() (stop bool) {
	s.typed, s.last = s.typed+1, time.Now()
	return s.paused && s.stopped(syscall.SIGSTOP)
}

// goesOn is for the command, which was stopped.
func (s *suspension) goesOn() { s.paused = false }

// stopForShell stops this process, where a shell may look at it.
func stopForShell(stop bool) {
	if stop && underJobControl() {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP) // cannot fail; SIGCONT is passed on
	}
}
