package session

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
)

// A repeat of a further LOCK continues to wait with it.
func TestReentrantRepeatContinuesToWait(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, w := d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	w.Send("@1 LOCK a reentrant=yes id=x wait=100")
	w.Send("@2 LOCK a id=x") // repeats the first, and gets its own reply
	w.Send("@3 LOCK a reentrant=yes id=y")
	w.Send("@4 LOCK a id=y")
	answers(w, "@5 TRY a reentrant=yes", `@5 ERR HELD .*`, `@1 ERR HELD .*`, `@2 ERR HELD .*`)
	answers(holder, "UNLOCK a", `OK lock=a`)
	answers(w, "PING", `OK`, `@3 `+counted(1)+`(?: again=yes)?`, `@4 `+counted(1)+`(?: again=yes)?`)
	w.Say("UNLOCK a", `OK lock=a`)
}

// A further LOCK waits exactly as long as it would have waited by itself.
func TestReentrantWaitsForQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w := d.dial()
		nodes := d.sims[:2]
		for _, sim := range nodes {
			sim.Hang()
		}
		const many = 30
		for i := range many {
			w.Send("@a%d LOCK a reentrant=yes wait=1s", i)
		}
		w.Send("@b1 LOCK b reentrant=yes wait=1500")
		w.Send("@b2 LOCK b reentrant=yes wait=2s")
		w.Send("@c1 LOCK c wait=3s")
		w.Send("@d1 LOCK d reentrant=yes wait=1")
		w.Send("@d2 LOCK d reentrant=yes ttl=30s")
		w.Want(`@d1 ERR NOQUORUM .*`)
		for range many + 2 { // not one after the other; b2 after 2 s, 1.5 s of them with b1
			w.Want(`@(?:a\d+|b1|b2) ERR NOQUORUM .*`)
		}
		w.Want(`@c1 ERR NOQUORUM .*`)
		for _, sim := range nodes {
			sim.Resume()
		}
		w.Want(`@d2 OK lock=d .* count=1`)
	})
}

// A LOCK that is waiting already is not rejected when a limit shrinks.
func TestReentrantWaitIgnoresSmallerLimit(t *testing.T) {
	d := startDaemon(t, 3, func(c *config.Config) { c.Limits.WaitersPerUser = 2 })
	holder, w, other, look := d.dial(), d.dial(), d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	w.Send("@1 LOCK a reentrant=yes wait=500")
	w.Send("@2 LOCK a reentrant=yes")
	w.Say("@3 TRY a reentrant=yes", `@3 ERR HELD .*`) // the daemon has started the others
	other.sendWaiting(look, "LOCK a", 2)
	cfg := *d.Cfg
	cfg.Limits.WaitersPerUser = 1
	d.Reload <- &cfg
	look.Until("LOCK a", `waiters_per_user = 1`)
	w.Want(`@1 ERR HELD .*`)
	answers(holder, "UNLOCK a", `OK lock=a`)
	other.Want(granted5)
	other.Say("UNLOCK a", `OK lock=a`)
	w.Want(`@2 ` + counted(1))
}

// A further LOCK is not rejected when it continues to wait without the first.
func TestReentrantCountIgnoresSmallerLimit(t *testing.T) {
	d := startDaemon(t, 3, func(c *config.Config) { c.Limits.LeasesPerUser = 4 })
	holder, w, look := d.dial(), d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	w.Send("@1 LOCK a reentrant=yes wait=500")
	w.Send("@2 LOCK a reentrant=yes")
	w.Send("@3 LOCK a reentrant=yes")
	w.Say("@4 TRY b", `@4 ERR LIMIT .*leases_per_user = 4.*`) // the daemon has started the others
	cfg := *d.Cfg
	cfg.Limits.LeasesPerUser = 1
	d.Reload <- &cfg
	look.Until("TRY b", `leases_per_user = 1`)
	w.Want(`@1 ERR HELD .*`)
	look.Until("LIST", `state=waiting`) // one of them is in the queue now
	answers(holder, "UNLOCK a", `OK lock=a`)
	answers(w, "PING", `OK`, `@2 `+granted5+` count=[12]`, `@3 `+granted5+` count=[12]`)
}

// Each time the first of several LOCKs is cancelled, the others continue to wait, but not in nested
// calls. With nested calls, the cost of many LOCKs was quadratic.
func TestContinuedWaitsDoNotNest(t *testing.T) {
	d := readyHost(t)
	server := d.NewServer()
	holder, _ := dialWithin(t, server)
	w, _ := dialWithin(t, server)
	holder.Say("LOCK a ttl=20s", granted5)
	const all = 8
	for i := range all {
		w.Send("@%d LOCK a reentrant=yes note=%d", i, i)
	}
	first := func() string { // in the queue; the others wait with it
		if waiting := d.Waiting(); len(waiting) > 0 {
			return waiting[0].Requester.Note
		}
		return ""
	}
	for left, before := all, ""; left > 2; left-- {
		now := ""
		daemontest.Eventually(t, "another LOCK is first", func() bool { now = first(); return now != "" && now != before })
		before = now
		w.Send("CANCEL %s", before)
		for _, want := range [...]string{`(?:@` + before + ` ERR CANCELLED .*|OK)`, `(?:@` + before + ` ERR CANCELLED .*|OK)`} {
			w.Want(want)
		}
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for goroutine := range strings.SplitSeq(string(stacks), "\n\n") {
		if n := strings.Count(goroutine, "(*further).Run("); n > 1 {
			t.Errorf("a LOCK continues inside the calls of %d others:\n%s", n-1, goroutine)
		}
	}
}
