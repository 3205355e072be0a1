package job

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Each letter is an event: z is Ctrl-Z, t means that Ctrl-Z stopped the command, s that SIGSTOP
// stopped the command, and c that the command continued. At an upper case letter, this process
// stops.
func TestSuspension(t *testing.T) {
	for _, story := range []string{
		"zT c zT c",       // the command stops on Ctrl-Z
		"Tzc Tzc",         // the command's stop is seen first
		"Tcz Tcz",         // this process sees Ctrl-Z when everything continues
		"zS c zS c",       // the command stops itself with SIGSTOP on Ctrl-Z
		"sZ c sZ c",       // and that stop is seen first
		"Tz c sZ c zT",    // the cases alternate
		"s c s c",         // somebody stops the command alone
		"s c z Tc",        // the command continues before Ctrl-Z
		"sZ",              // Ctrl-Z comes while the command is stopped
		"zT c s c Tzc sZ", // the same after a Ctrl-Z
		"z S c s",         // the command first did not stop on Ctrl-Z
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

// If the command did not stop on Ctrl-Z and somebody stops it much later, this process does not
// stop with it.
func TestSuspensionForgetsAnOldCtrlZ(t *testing.T) {
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
