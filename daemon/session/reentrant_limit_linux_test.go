package session

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
)

// countFree returns how many more locks the user can take before the limit.
func (w *wire) countFree(limit string) (n int) {
	w.T.Helper()
	for ; ; n++ {
		w.Send("TRY free%d", n)
		line := w.Line()
		if strings.HasPrefix(line, "ERR LIMIT ") && strings.Contains(line, "a limit of the config is reached: "+limit) {
			break
		}
		daemontest.Matches(w.T, line, granted5)
	}
	for i := range n {
		w.Say(fmt.Sprint("UNLOCK free", i), `OK lock=free\d+`)
	}
	return n
}

// awaitFree waits until want locks are free, because a lease may end asynchronously.
func (w *wire) awaitFree(limit string, want int) {
	w.T.Helper()
	daemontest.Eventually(w.T, fmt.Sprintf("%d locks are free", want), func() bool { return w.countFree(limit) == want })
}

const limitOfFive = "leases_per_user = 5"

func startWithFive(t *testing.T) *testDaemon {
	return startDaemon(t, 3, func(c *config.Config) { c.Limits.LeasesPerUser, c.Limits.WaitersPerUser = 5, 4 })
}

// Each LOCK that counts up counts as one of its user's leases until it is undone.
func TestReentrantCountsAreLeases(t *testing.T) {
	d := startWithFive(t)
	w, other := d.dial(), d.dial()
	w.Say("LOCK a reentrant=yes id=1", counted(1))
	for n := 2; n <= 5; n++ {
		w.Say(fmt.Sprintf("LOCK a reentrant=yes id=%d", n), counted(n))
	}
	const full = `ERR LIMIT lock=. : .*` + limitOfFive
	w.Say("LOCK a reentrant=yes id=6", full)
	w.Say("LOCK b", full)
	other.Say("LOCK b", full)
	w.Say("LOCK a id=3", granted5+` again=yes`) // takes nothing
	w.Say("LOCK a", `ERR ALREADY .*`)
	w.Say("UNLOCK a", `OK lock=a count=4`)
	w.Say("LOCK a", `ERR ALREADY .*`) // takes nothing, though there is room
	other.Say("LOCK b", granted5)
	w.Say("LOCK a reentrant=yes id=6", full)
	other.Say("UNLOCK b", `OK lock=b`)
	w.Say("LOCK a reentrant=yes id=6", counted(5))
	for left := 4; left > 0; left-- {
		w.Say("UNLOCK a", fmt.Sprint(`OK lock=a count=`, left))
	}
	w.Say("UNLOCK a", `OK lock=a`)
	w.awaitFree(limitOfFive, 5)
}

// When a lease ends, all LOCKs that count on it end as well.
func TestReentrantCountsEndWithTheLease(t *testing.T) {
	d := startWithFive(t)
	look, holder := d.dial(), d.dial()
	c := newChild(t, os.Getuid())
	take := func(options string) (w *wire, lease string) {
		w = d.dial()
		lease = w.Say("LOCK a reentrant=yes"+options, counted(1))[0]
		w.Say("LOCK a reentrant=yes"+options, counted(2))
		w.Say("LOCK a reentrant=yes"+options, counted(3))
		look.awaitFree(limitOfFive, 2)
		return w, lease
	}

	w, _ := take("")
	look.Say("FORCE a", `OK lock=a n=1 .*`)
	w.Want(`LOST lock=a .*`)
	look.awaitFree(limitOfFive, 5)
	w.Say("UNLOCK a", `ERR LOST .*`)
	w.Conn.Close()
	look.awaitFree(limitOfFive, 5)

	w, _ = take("")
	w.Conn.Close()
	look.awaitFree(limitOfFive, 5)

	w, lease := take(" hold=ttl")
	w.Conn.Close()
	look.awaitFree(limitOfFive, 2) // the client may resume the lease, with its counts
	look.Say("RESUME a lease="+lease, counted(3))
	look.Say("LOCK a reentrant=yes", counted(4))
	look.awaitFree(limitOfFive, 1)
	holder.Say("RESUME a lease="+lease, counted(4))
	holder.Say("UNLOCK a", `OK lock=a count=3`)
	look.awaitFree(limitOfFive, 2)
	for left := 2; left > 0; left-- {
		holder.Say("UNLOCK a", fmt.Sprint(`OK lock=a count=`, left))
	}
	holder.Say("UNLOCK a", `OK lock=a`)

	w, _ = take(fmt.Sprintf(" hold=pid pid=%d", c.pid))
	w.Conn.Close()
	look.awaitFree(limitOfFive, 2) // the process still lives
	c.end()
	look.awaitFree(limitOfFive, 5)
}

// Further LOCKs that wait with the first count as leases as well.
func TestReentrantCountsThatWait(t *testing.T) {
	d := startWithFive(t)
	look, holder, w := d.dial(), d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	w.Send("@1 LOCK a reentrant=yes")
	look.Until("LIST", `state=waiting`)
	w.Send("@2 LOCK a reentrant=yes id=2")
	w.Send("@3 LOCK a reentrant=yes id=3")
	w.Say("@4 TRY a reentrant=yes", `@4 ERR HELD .*`)
	look.awaitFree(limitOfFive, 1)
	answers(w, "CANCEL 2", `OK`, `@2 ERR CANCELLED .*`)
	look.awaitFree(limitOfFive, 2)
	answers(w, "CANCEL 1", `OK`, `@1 ERR CANCELLED .*`)
	look.awaitFree(limitOfFive, 3)
	answers(w, "CANCEL 3", `OK`, `@3 ERR CANCELLED .*`)
	look.awaitFree(limitOfFive, 4)
	holder.Say("UNLOCK a", `OK lock=a`)
	look.awaitFree(limitOfFive, 5)
}

// Waiting repeats are bounded in the same way as queries.
func TestRepeatsAreBounded(t *testing.T) {
	d := startWithFive(t)
	look, holder, w := d.dial(), d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	w.Send("@f LOCK a id=x")
	look.Until("LIST", `state=waiting`)
	for i := range 4 {
		w.Send("@%d LOCK a id=x", i)
	}
	w.Say("@5 LOCK a id=x", `@[0-35] ERR LIMIT lock=a : .*waiters_per_user = 4`) // they run beside each other: one of five
	look.Say("WHO a", `ERR LIMIT .*`)
	holder.Say("UNLOCK a", `OK lock=a`)
	for range 5 {
		w.Want(`@. ` + granted5 + `( again=yes)?`)
	}
	look.Until("WHO a", `^- lock=a `)
}

// If root counts up on a lease that it resumed, the count belongs to the user that owns the lease.
// After UNLOCK it counts for no user.
func TestReentrantCountsOfRootOnAnothersLease(t *testing.T) {
	d := startWithRules(t, exampleRules)
	cfg := *d.Cfg
	cfg.Access, cfg.Limits.LeasesPerUser = nil, 5
	d.Reload <- &cfg
	first, user, root := d.dialAs(web), d.dialAs(web), d.dial()
	lease := first.Say("LOCK a ttl=20s reentrant=yes", counted(1))[0]
	root.Say("RESUME a lease="+lease, granted5)
	root.Say("LOCK a reentrant=yes id=2", counted(2))
	root.Say("LOCK a reentrant=yes id=3", counted(3))
	user.awaitFree(limitOfFive, 2)
	root.awaitFree(limitOfFive, 5)
	root.Say("LOCK a reentrant=yes id=3", counted(3)+` again=yes`) // takes nothing
	root.Say("UNLOCK a", `OK lock=a count=2`)
	root.Say("UNLOCK a", `OK lock=a count=1`)
	user.awaitFree(limitOfFive, 4)
	root.Say("UNLOCK a", `OK lock=a`)
	user.awaitFree(limitOfFive, 5)
	root.awaitFree(limitOfFive, 5)
}
