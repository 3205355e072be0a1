package server

import (
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

// What is sent until Seal has returned may have been noted as said, so it is written: whoever
// goes on does not say it again.
func TestFreezeWritesEventsUntilSeal(t *testing.T) {
	d := startFrozen(t, newTable(), nil)
	s := d.dialStored(t)
	c := d.newest()
	freeze(t, &d.Server, FreezeOptions{Keep: keepAll, Seal: func() { c.Send(new(ipc.Response).Notice(ipc.EventLost)) }})
	hear(t, s.nc, "LOST\n")
}
