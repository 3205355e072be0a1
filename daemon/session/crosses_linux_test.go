package session

import (
	"fmt"
	"os"
	"testing"

	"github.com/redlockd/redlockd/daemon/daemontest"
)

// An owner that holds a name by its connection cannot take it by a process as well, nor the
// reverse: it would wait for itself. This ends when the first lease is lost.
func TestOwnerHoldsByConnectionOrProcess(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w := d.dial()
	w.Say("LOCK a owner=x", granted5)
	w.Say("TRY a owner=x hold=pid", `ERR ALREADY lock=a : .*another hold=.*`)
	w.Say("TRY a owner=y hold=pid", `ERR HELD lock=a .*`)
	w.Say("LOCK b owner=x hold=pid", granted5)
	w.Say("TRY b owner=x", `ERR ALREADY lock=b : .*another hold=.*`)
	w.Say("TRY b owner=y", `ERR HELD lock=b .*`)
	w.Say("LOCK c owner=x hold=ttl ttl=100ms", granted5)
	w.Want(`LOST lock=c .*`)
	w.Say("LOCK c owner=x hold=pid ttl=20s", granted5)
}

// The daemon does not watch the process of a LOCK that was refused.
func TestRefusedLockWatchesNoProcess(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	c, w, other := newChild(t, os.Getuid()), d.dial(), d.dial()
	before := pidfds(t, c.pid)
	lock := fmt.Sprintf("LOCK a hold=pid pid=%d", c.pid)
	w.Say(lock, granted5)
	w.Say(lock, `ERR ALREADY .*`)
	other.Say("LOCK b", granted5)
	w.Say(fmt.Sprintf("TRY b hold=pid pid=%d", c.pid), `ERR HELD .*`)
	w.Say(fmt.Sprintf("UNLOCK a pid=%d", c.pid), `OK lock=a`)
	daemontest.Eventually(t, "no pidfd remains open", func() bool { return pidfds(t, c.pid) == before })
}
