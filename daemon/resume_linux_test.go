package daemon

import "testing"

// TestResumeUsers: who is told a lease's id may give it back, but not make it his own.
// The same user may, by any connection, and the lease is that one's then.
func TestResumeUsers(t *testing.T) {
	d := startWithRules(t, testRules)
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
	root.conn.Close()
	second.say("LOCK web/a wait=10s", granted5)
}
