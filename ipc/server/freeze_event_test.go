package server

import (
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

// Events that are sent until Seal has returned may have been recorded as sent, so they are written:
// the next process does not send them again.
func TestFreezeWritesEventsUntilSeal(t *testing.T) {
	d := startFrozen(t, newTable(), nil)
	s := d.dialStored(t)
	c := d.newest()
	freeze(t, &d.Server, FreezeOptions{Keep: keepAll, Seal: func() { c.Send(new(ipc.Response).Notice(ipc.EventLost)) }})
	hear(t, s.nc, "LOST\n")
}
