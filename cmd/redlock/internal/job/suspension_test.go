package job

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Each letter is an event: z is Ctrl-Z, t means that it stopped the command, s means that
// SIGSTOP stopped the command, and c means that the command continued. At an upper case
// letter, this process stops.
func TestSuspension(t *testing.T) {
	for _, story := range []string{
		"zT c zT c",       // the command stops as all do
		"Tzc Tzc",         // its signal is heard of first
		"Tcz Tcz",         // and ours when all goes on again
		"zS c zS c",       // it answers with SIGSTOP
		"sZ c sZ c",       // and that is heard of first
		"Tz c sZ c zT",    // now so, now so
		"s c s c",         // somebody stops the command alone
		"s c z Tc",        // ... and it went on before
		"sZ",              // ... and Ctrl-Z comes later
		"zT c s c Tzc sZ", // ... after Ctrl-Z
		"z S c s",         // it did not stop for Ctrl-Z at first
	} {
		var s suspension
		for i, event := range story {
			var stop bool
			switch event {
			case 'z', 'Z':
				stop = s.suspendTyped()
			case 't', 'T':
				stop = s.commandStopped(syscall.SIGTSTP)
			case 's', 'S':
				stop = s.commandStopped(syscall.SIGSTOP)
			case 'c':
				s.commandContinued()
			}
			if want := event == 'Z' || event == 'T' || event == 'S'; stop != want {
				t.Errorf("%s, %d: stop %v, want %v", story, i, stop, want)
			}
		}
	}
}

// If the command did not stop on Ctrl-Z and somebody stops it long after, this process does not
// stop with it.
func TestSuspensionIsNotThatOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s suspension
		s.suspendTyped()
		time.Sleep(suspendTimeout + 1)
		if s.commandStopped(syscall.SIGSTOP) {
			t.Error("this process stops, as Ctrl-Z was typed long before")
		}
		s.commandContinued()
		s.suspendTyped()
		time.Sleep(suspendTimeout)
		if !s.commandStopped(syscall.SIGSTOP) {
			t.Errorf("this process does not stop with the command, which has taken %v for that", suspendTimeout)
		}
	})
}
