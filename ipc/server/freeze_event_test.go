package server

import (
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

// Freeze writes events that are sent before Seal has returned: they may be recorded as sent, and
// the next process does not send them again.
func TestFreezeWritesEventsUntilSeal(t *testing.T) {
	d := startFrozen(t, newTable(), nil)
	s := d.dialStored(t)
	c := d.newest()
	freeze(t, &d.Server, FreezeOptions{Keep: keepAll, Seal: func() { c.Send(new(ipc.Response).Notice(ipc.EventLost)) }})
	hear(t, s.nc, "LOST\n")
}
