package session

import (
	"fmt"
	"os"
	"testing"
)

// A name without pid= means the lease that is held, and not an earlier one of another process that
// was lost. If several processes hold the lock, the client must say which one it means.
func TestNameHeldBySeveralProcesses(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, admin := d.dial(), d.dial()
	first, second := newChild(t, os.Getuid()), newChild(t, os.Getuid())
	lock := func(c *child, options string) string {
		return w.Say(fmt.Sprintf("LOCK a hold=pid pid=%d%s", c.pid, options), granted5)[0]
	}
	for range 20 { // a wrong choice would be random
		lock(first, "")
		admin.Say("FORCE a", `OK lock=a n=1 .*`)
		w.Want(`LOST lock=a .*`)
		lease := lock(second, "")
		w.Say("CHECK a", `OK lock=a lease=`+lease+` .*`)
		w.Say("UNLOCK a", `OK lock=a`)
		w.Say("UNLOCK a", `ERR LOST lock=a .*`)
	}
	lock(first, " mode=shared")
	lock(second, " mode=shared")
	w.Say("UNLOCK a", `ERR OPTION lock=a : .*2 processes.*pid=.*`)
	w.Say(fmt.Sprintf("UNLOCK a pid=%d", first.pid), `OK lock=a`)
	w.Say("UNLOCK a", `OK lock=a`)
	admin.Say("TRY a", granted5)
}

// If a connection lost a lock, and a process of it holds the lock now, the name means the process's
// lease.
func TestNameHeldByProcessAfterLoss(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, admin := d.dial(), d.dial()
	c := newChild(t, os.Getuid())
	w.Say("LOCK a", granted5)
	admin.Say("FORCE a", `OK lock=a n=1 .*`)
	w.Want(`LOST lock=a .*`)
	w.Say("CHECK a", `ERR LOST lock=a .*`)
	w.Say(fmt.Sprintf("LOCK a hold=pid pid=%d", c.pid), granted5)
	w.Say("CHECK a", granted5)
	w.Say("UNLOCK a", `OK lock=a`)
	w.Say("UNLOCK a", `ERR LOST lock=a .*`)
	admin.Say("TRY a", granted5)
}

// A process's lease is found by its owner=, as a connection's is. An UNLOCK with another owner=, or
// with none, does not match.
func TestProcessLeaseIsFoundByOwner(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, c := d.dial(), newChild(t, os.Getuid())
	pid := fmt.Sprintf("pid=%d", c.pid)
	w.Say("LOCK a owner=o hold=pid "+pid, granted5)
	w.Say("UNLOCK a", `ERR NOTHELD lock=a : .*`)
	w.Say("UNLOCK a owner=p", `ERR NOTHELD lock=a : .*`)
	w.Say("UNLOCK "+pid, `ERR NOTHELD : .*`)
	w.Say("LOCK b hold=pid "+pid, granted5)
	w.Say("UNLOCK "+pid, `OK lock=b`)
	w.Say("UNLOCK owner=o "+pid, `OK lock=a`)
}
