package session

import (
	"fmt"
	"os"
	"testing"
)

// TestResumeUsers: who is told a lease's id may give it back, but not make it his own.
// The same user may, by any connection, and the lease is that one's then.
func TestResumeUsers(t *testing.T) {
	d := startWithRules(t, exampleRules)
	first, second, thief, root := d.dialAs(web), d.dialAs(web), d.dialAs(nobody), d.dial()
	lease := first.say("LOCK web/a ttl=20s", granted5)[0]
	resume := "RESUME web/a lease=" + lease
	thief.say(resume, `ERR NOTHELD lock=web/a : not held: there is no lease with this id here \(any more\)`)
	thief.say(resume[:len(resume)-1], `ERR NOTHELD lock=web/a : not held: there is no lease with this id here \(any more\)`)
	second.say(resume, granted5)
	second.say("CHECK web/a", granted5)
	first.say("CHECK web/a", `ERR NOTHELD lock=web/a : .*`)
	first.conn.Close()
	second.until("STATUS", `connections=3\b`)
	second.say("CHECK web/a", granted5)
	root.say(resume, granted5)
	root.say("CHECK web/a", granted5)
	root.conn.Close()
	second.say("LOCK web/a wait=10s", granted5)
}

// What root has resumed that another took is his connection's, by its name, too: he gives
// it back as his own, and does not wait for himself.
func TestResumeByRoot(t *testing.T) {
	d := startWithRules(t, `rule "both" {
  users = ["0", "4001"]
  locks = ["**"]
  allow = ["lock"]
}`)
	first, root := d.dialAs(web), d.dial()
	lease := first.say("LOCK a,b ttl=20s owner=o", granted5)[0]
	root.say("LOCK b wait=0 owner=o", `ERR HELD lock=b .*`)
	root.say("RESUME a,b owner=o lease="+lease, granted5)
	first.say("CHECK a,b owner=o", `ERR NOTHELD lock=a,b .*`)
	root.say("CHECK a,b owner=o", granted5)
	root.say("LOCK a,b owner=o", `ERR ALREADY lock=a,b .*`)
	root.say("UNLOCK a,b owner=o", `OK lock=a,b`)
	first.say("TRY b", granted5)
}

// TestResumeKinds: a reader's lease and a place of a semaphore are taken over with what they
// are: the one beside readers alone, the other with its number.
func TestResumeKinds(t *testing.T) {
	d := startDaemon(t, 5, patientNodes)
	first, second, other, look := d.dial(), d.dial(), d.dial(), d.dial()
	reader := first.say("LOCK a mode=shared ttl=20s", granted5)[0]
	other.say("LOCK s slots=3 ttl=20s", grantedSlot)
	place := first.say("LOCK s slots=3 ttl=20s", grantedSlot)
	second.say("RESUME a lease="+reader, granted5)
	second.say("RESUME s lease="+place[0], granted5+` slot=`+place[3])
	first.conn.Close()
	look.until("STATUS", `connections=3\b`)

	second.say("CHECK a", granted5)
	look.say("TRY a", `ERR HELD lock=a .*`)
	look.say("TRY a mode=shared", granted5)
	look.say("UNLOCK a", `OK lock=a`)
	second.say("UNLOCK a", `OK lock=a`)
	look.say("TRY a", granted5)

	second.say("CHECK s", granted5+` slot=`+place[3])
	look.say("TRY s slots=3", grantedSlot)
	d.dial().say("TRY s slots=3", `ERR HELD lock=s slots=3 .*`)
	second.say("UNLOCK s", `OK lock=s`)
	d.dial().say("TRY s slots=3", granted5+` slot=`+place[3])
}

// A lease that goes by a process is known to the connection that resumed it: a LOCK of the
// same name there would wait for itself.
func TestResumeOfAProcess(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, w, next := newChild(t, os.Getuid()), d.dial(), d.dial()
	lease := w.say(fmt.Sprintf("LOCK a ttl=20s hold=pid pid=%d", c.pid), granted5)[0]
	for range 2 { // where it is already, too
		next.say("RESUME a lease="+lease, granted5)
		next.say("CHECK a", granted5)
	}
	next.say("LOCK a", `ERR ALREADY lock=a .*another hold=.*`)
	w.say("CHECK a", `ERR NOTHELD .*`)
}

// What lingers for a process that has ended is given back then, whoever asks: it is not
// resumed.
func TestResumeOfAProcessThatHasEnded(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, w, next, look := newChild(t, os.Getuid()), d.dial(), d.dial(), d.dial()
	lease := w.say(fmt.Sprintf("LOCK a ttl=20s linger=20s hold=pid pid=%d", c.pid), granted5)[0]
	c.end()
	next.until("RESUME a lease="+lease, `ERR NOTHELD lock=a .*has ended`)
	look.say("TRY a", `ERR HELD .*`)
}

// The connection that had it before knows nothing of it any more: what it takes later is
// found by its name.
func TestResumeOfAProcessAgain(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, w, next := newChild(t, os.Getuid()), d.dial(), d.dial()
	for range 10 {
		lease := w.say(fmt.Sprintf("LOCK a ttl=20s hold=pid pid=%d", c.pid), granted5)[0]
		w.say("CHECK a", granted5)
		next.say("RESUME a lease="+lease, granted5)
		next.say("UNLOCK a", `OK lock=a`)
	}
}

// Where the connection has ended on which a process's lease was taken, the next one that is
// told that it has it finds it by its name, and hears of its loss.
func TestProcessIsHeardOnItsNextConnection(t *testing.T) {
	for lock, again := range map[string]string{"LOCK a hold=pid id=x": granted5 + ` again=yes`, "LOCK a hold=pid reentrant=yes": counted(2)} {
		d := startDaemon(t, 3, nil)
		first, next, look := d.dial(), d.dial(), d.dial()
		first.say(lock, granted5+`.*`)
		first.conn.Close()
		look.until("STATUS", `connections=2\b`)
		next.say(lock, again)
		next.say("CHECK a", granted5+`.*`)
		look.say("FORCE a", `OK lock=a n=1 .*`)
		next.want(`LOST lock=a .* reason=forced .*`)
	}
}
