package session

import (
	"fmt"
	"os"
	"testing"
)

// Who has a name by his connection cannot have it by a process as well, or the other way
// round: he would wait for himself. That is so of the same owner, of the same name, and
// until the first is lost.
func TestHoldsOfOneOwnerCross(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	w := d.dial()
	w.say("LOCK a owner=x", granted5)
	w.say("TRY a owner=x hold=pid", `ERR ALREADY lock=a : .*another hold=.*`)
	w.say("TRY a owner=y hold=pid", `ERR HELD lock=a .*`)
	w.say("LOCK b owner=x hold=pid", granted5)
	w.say("TRY b owner=x", `ERR ALREADY lock=b : .*another hold=.*`)
	w.say("TRY b owner=y", `ERR HELD lock=b .*`)
	w.say("LOCK c owner=x hold=ttl ttl=100ms", granted5)
	w.want(`LOST lock=c .*`)
	w.say("LOCK c owner=x hold=pid ttl=20s", granted5)
}

// A LOCK that was refused uses its process no longer.
func TestRefusedLeavesNoWatch(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	c, w, other := newChild(t, os.Getuid()), d.dial(), d.dial()
	before := pidfds(t, c.pid)
	lock := fmt.Sprintf("LOCK a hold=pid pid=%d", c.pid)
	w.say(lock, granted5)
	w.say(lock, `ERR ALREADY .*`)
	other.say("LOCK b", granted5)
	w.say(fmt.Sprintf("TRY b hold=pid pid=%d", c.pid), `ERR HELD .*`)
	w.say(fmt.Sprintf("UNLOCK a pid=%d", c.pid), `OK lock=a`)
	eventually(t, "no pidfd is left open", func() bool { return pidfds(t, c.pid) == before })
}
