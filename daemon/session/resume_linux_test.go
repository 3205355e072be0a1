package session

import (
	"fmt"
	"os"
	"testing"
)

// Another user that knows a lease's id may release the lease, but not resume it. The same user may
// resume it on any connection, which then holds it.
func TestResumeUsers(t *testing.T) {
	d := startWithRules(t, exampleRules)
	first, second, thief, root := d.dialAs(web), d.dialAs(web), d.dialAs(nobody), d.dial()
	lease := first.Say("LOCK web/a ttl=20s", granted5)[0]
	resume := "RESUME web/a lease=" + lease
	thief.Say(resume, `ERR NOTHELD lock=web/a : not held: there is no lease with this id here \(any more\)`)
	thief.Say(resume[:len(resume)-1], `ERR NOTHELD lock=web/a : not held: there is no lease with this id here \(any more\)`)
	second.Say(resume, granted5)
	second.Say("CHECK web/a", granted5)
	first.Say("CHECK web/a", `ERR NOTHELD lock=web/a : .*`)
	first.Conn.Close()
	second.Until("STATUS", `connections=3\b`)
	second.Say("CHECK web/a", granted5)
	root.Say(resume, granted5)
	root.Say("CHECK web/a", granted5)
	root.Conn.Close()
	second.Say("LOCK web/a wait=10s", granted5)
}

// A lease that root has resumed from another user belongs to root's connection under its names: it
// can be released there, and a LOCK there does not wait for it.
func TestResumeByRoot(t *testing.T) {
	d := startWithRules(t, `rule "both" {
  users = ["0", "4001"]
  locks = ["**"]
  allow = ["lock"]
}`)
	first, root := d.dialAs(web), d.dial()
	lease := first.Say("LOCK a,b ttl=20s owner=o", granted5)[0]
	root.Say("LOCK b wait=0 owner=o", `ERR HELD lock=b .*`)
	root.Say("RESUME a,b owner=o lease="+lease, granted5)
	first.Say("CHECK a,b owner=o", `ERR NOTHELD lock=a,b .*`)
	root.Say("CHECK a,b owner=o", granted5)
	root.Say("LOCK a,b owner=o", `ERR ALREADY lock=a,b .*`)
	root.Say("UNLOCK a,b owner=o", `OK lock=a,b`)
	first.Say("TRY b", granted5)
}

// A shared lease stays shared when it is resumed, and a slot keeps its number.
func TestResumeKinds(t *testing.T) {
	d := startDaemon(t, 5, longNodeTimeout)
	first, second, other, look := d.dial(), d.dial(), d.dial(), d.dial()
	reader := first.Say("LOCK a mode=shared ttl=20s", granted5)[0]
	other.Say("LOCK s slots=3 ttl=20s", grantedSlot)
	place := first.Say("LOCK s slots=3 ttl=20s", grantedSlot)
	second.Say("RESUME a lease="+reader, granted5)
	second.Say("RESUME s lease="+place[0], granted5+` slot=`+place[3])
	first.Conn.Close()
	look.Until("STATUS", `connections=3\b`)

	second.Say("CHECK a", granted5)
	look.Say("TRY a", `ERR HELD lock=a .*`)
	look.Say("TRY a mode=shared", granted5)
	look.Say("UNLOCK a", `OK lock=a`)
	second.Say("UNLOCK a", `OK lock=a`)
	look.Say("TRY a", granted5)

	second.Say("CHECK s", granted5+` slot=`+place[3])
	look.Say("TRY s slots=3", grantedSlot)
	d.dial().Say("TRY s slots=3", `ERR HELD lock=s slots=3 .*`)
	second.Say("UNLOCK s", `OK lock=s`)
	d.dial().Say("TRY s slots=3", granted5+` slot=`+place[3])
}

// A process's lease is known to the connection that resumed it. Otherwise a LOCK of the same name
// there would wait for itself.
func TestResumeOfAProcess(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, w, next := newChild(t, os.Getuid()), d.dial(), d.dial()
	lease := w.Say(fmt.Sprintf("LOCK a ttl=20s hold=pid pid=%d", c.pid), granted5)[0]
	for range 2 { // the second RESUME finds the lease there
		next.Say("RESUME a lease="+lease, granted5)
		next.Say("CHECK a", granted5)
	}
	next.Say("LOCK a", `ERR ALREADY lock=a .*another hold=.*`)
	w.Say("CHECK a", `ERR NOTHELD .*`)
}

// A lease that lingers for an ended process cannot be resumed: it will be released after linger=.
func TestResumeOfAProcessThatHasEnded(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, w, next, look := newChild(t, os.Getuid()), d.dial(), d.dial(), d.dial()
	lease := w.Say(fmt.Sprintf("LOCK a ttl=20s linger=20s hold=pid pid=%d", c.pid), granted5)[0]
	c.end()
	next.Until("RESUME a lease="+lease, `ERR NOTHELD lock=a .*has ended`)
	look.Say("TRY a", `ERR HELD .*`)
}

// The previous connection does not know a resumed lease any more, so it finds its next lease by the
// name.
func TestResumeOfAProcessAgain(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, w, next := newChild(t, os.Getuid()), d.dial(), d.dial()
	for range 10 {
		lease := w.Say(fmt.Sprintf("LOCK a ttl=20s hold=pid pid=%d", c.pid), granted5)[0]
		w.Say("CHECK a", granted5)
		next.Say("RESUME a lease="+lease, granted5)
		next.Say("UNLOCK a", `OK lock=a`)
	}
}

// If the connection that took a process's lease has ended, the next connection that gets an OK for
// the lease finds it by its name, and gets its LOST.
func TestProcessLossReachesNextConnection(t *testing.T) {
	for lock, again := range map[string]string{"LOCK a hold=pid id=x": granted5 + ` again=yes`, "LOCK a hold=pid reentrant=yes": counted(2)} {
		d := startDaemon(t, 3, nil)
		first, next, look := d.dial(), d.dial(), d.dial()
		first.Say(lock, granted5+`.*`)
		first.Conn.Close()
		look.Until("STATUS", `connections=2\b`)
		next.Say(lock, again)
		next.Say("CHECK a", granted5+`.*`)
		look.Say("FORCE a", `OK lock=a n=1 .*`)
		next.Want(`LOST lock=a .* reason=forced .*`)
	}
}
