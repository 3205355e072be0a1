package session

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
)

// free is how many locks the user can take yet, until a limit is named.
func (w *wire) free(limit string) (n int) {
	w.t.Helper()
	for ; ; n++ {
		w.send("TRY free%d", n)
		line := w.line()
		if strings.HasPrefix(line, "ERR LIMIT ") && strings.Contains(line, "a limit of the config is reached: "+limit) {
			break
		}
		matches(w.t, line, granted5)
	}
	for i := range n {
		w.say(fmt.Sprint("UNLOCK free", i), `OK lock=free\d+`)
	}
	return n
}

// becomesFree is for what ends beside the connection that asks.
func (w *wire) becomesFree(limit string, want int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d are free", want), func() bool { return w.free(limit) == want })
}

const limitOfFive = "leases_per_user = 5"

func startWithFive(t *testing.T) *testDaemon {
	return startDaemon(t, 3, func(c *config.Config) { c.Limits.LeasesPerUser, c.Limits.WaitersPerUser = 5, 4 })
}

// Each LOCK that counts up counts as a lease of its user, for as long as it counts.
func TestReentrantCountsAreLeases(t *testing.T) {
	d := startWithFive(t)
	w, other := d.dial(), d.dial()
	w.say("LOCK a reentrant=yes id=1", counted(1))
	for n := 2; n <= 5; n++ {
		w.say(fmt.Sprintf("LOCK a reentrant=yes id=%d", n), counted(n))
	}
	const full = `ERR LIMIT lock=. : .*` + limitOfFive
	w.say("LOCK a reentrant=yes id=6", full)
	w.say("LOCK b", full)
	other.say("LOCK b", full)
	w.say("LOCK a id=3", granted5+` again=yes`) // takes nothing
	w.say("LOCK a", `ERR ALREADY .*`)
	w.say("UNLOCK a", `OK lock=a count=4`)
	w.say("LOCK a", `ERR ALREADY .*`) // takes nothing, though there is room
	other.say("LOCK b", granted5)
	w.say("LOCK a reentrant=yes id=6", full)
	other.say("UNLOCK b", `OK lock=b`)
	w.say("LOCK a reentrant=yes id=6", counted(5))
	for left := 4; left > 0; left-- {
		w.say("UNLOCK a", fmt.Sprint(`OK lock=a count=`, left))
	}
	w.say("UNLOCK a", `OK lock=a`)
	w.becomesFree(limitOfFive, 5)
}

// Whatever ends a lease ends what counts on it.
func TestReentrantCountsEndWithTheLease(t *testing.T) {
	d := startWithFive(t)
	look, holder := d.dial(), d.dial()
	c := newChild(t, os.Getuid())
	take := func(options string) (w *wire, lease string) {
		w = d.dial()
		lease = w.say("LOCK a reentrant=yes"+options, counted(1))[0]
		w.say("LOCK a reentrant=yes"+options, counted(2))
		w.say("LOCK a reentrant=yes"+options, counted(3))
		look.becomesFree(limitOfFive, 2)
		return w, lease
	}

	w, _ := take("")
	look.say("FORCE a", `OK lock=a n=1 .*`)
	w.want(`LOST lock=a .*`)
	look.becomesFree(limitOfFive, 5)
	w.say("UNLOCK a", `ERR LOST .*`)
	w.conn.Close()
	look.becomesFree(limitOfFive, 5)

	w, _ = take("")
	w.conn.Close()
	look.becomesFree(limitOfFive, 5)

	w, lease := take(" hold=ttl")
	w.conn.Close()
	look.becomesFree(limitOfFive, 2) // who counts may come back
	look.say("RESUME a lease="+lease, counted(3))
	look.say("LOCK a reentrant=yes", counted(4))
	look.becomesFree(limitOfFive, 1)
	holder.say("RESUME a lease="+lease, counted(4))
	holder.say("UNLOCK a", `OK lock=a count=3`)
	look.becomesFree(limitOfFive, 2)
	for left := 2; left > 0; left-- {
		holder.say("UNLOCK a", fmt.Sprint(`OK lock=a count=`, left))
	}
	holder.say("UNLOCK a", `OK lock=a`)

	w, _ = take(fmt.Sprintf(" hold=pid pid=%d", c.pid))
	w.conn.Close()
	look.becomesFree(limitOfFive, 2) // the process is
	c.end()
	look.becomesFree(limitOfFive, 5)
}

// So do those that wait with the first.
func TestReentrantCountsThatWait(t *testing.T) {
	d := startWithFive(t)
	look, holder, w := d.dial(), d.dial(), d.dial()
	holder.say("LOCK a", granted5)
	w.send("@1 LOCK a reentrant=yes")
	look.until("LIST", `state=waiting`)
	w.send("@2 LOCK a reentrant=yes id=2")
	w.send("@3 LOCK a reentrant=yes id=3")
	w.say("@4 TRY a reentrant=yes", `@4 ERR HELD .*`)
	look.becomesFree(limitOfFive, 1)
	answers(w, "CANCEL 2", `OK`, `@2 ERR CANCELLED .*`)
	look.becomesFree(limitOfFive, 2)
	answers(w, "CANCEL 1", `OK`, `@1 ERR CANCELLED .*`)
	look.becomesFree(limitOfFive, 3)
	answers(w, "CANCEL 3", `OK`, `@3 ERR CANCELLED .*`)
	look.becomesFree(limitOfFive, 4)
	holder.say("UNLOCK a", `OK lock=a`)
	look.becomesFree(limitOfFive, 5)
}

// Repeats that wait are bounded as questions are.
func TestRepeatsAreBounded(t *testing.T) {
	d := startWithFive(t)
	look, holder, w := d.dial(), d.dial(), d.dial()
	holder.say("LOCK a", granted5)
	w.send("@f LOCK a id=x")
	look.until("LIST", `state=waiting`)
	for i := range 4 {
		w.send("@%d LOCK a id=x", i)
	}
	w.say("@5 LOCK a id=x", `@5 ERR LIMIT lock=a : .*waiters_per_user = 4`)
	look.say("WHO a", `ERR LIMIT .*`)
	holder.say("UNLOCK a", `OK lock=a`)
	for range 5 {
		w.want(`@. ` + granted5 + `( again=yes)?`)
	}
	look.until("WHO a", `^- lock=a `)
}

// What root counts up on a lease that he has resumed counts for the user whose lease it is,
// and for nobody any more when it is given back.
func TestReentrantCountsOfRootOnAnothersLease(t *testing.T) {
	d := startWithRules(t, exampleRules)
	cfg := *d.cfg
	cfg.Access, cfg.Limits.LeasesPerUser = nil, 5
	d.reload <- &cfg
	first, user, root := d.dialAs(web), d.dialAs(web), d.dial()
	lease := first.say("LOCK a ttl=20s reentrant=yes", counted(1))[0]
	root.say("RESUME a lease="+lease, granted5)
	root.say("LOCK a reentrant=yes id=2", counted(2))
	root.say("LOCK a reentrant=yes id=3", counted(3))
	user.becomesFree(limitOfFive, 2)
	root.becomesFree(limitOfFive, 5)
	root.say("LOCK a reentrant=yes id=3", counted(3)+` again=yes`) // takes nothing
	root.say("UNLOCK a", `OK lock=a count=2`)
	root.say("UNLOCK a", `OK lock=a count=1`)
	user.becomesFree(limitOfFive, 4)
	root.say("UNLOCK a", `OK lock=a`)
	user.becomesFree(limitOfFive, 5)
	root.becomesFree(limitOfFive, 5)
}
