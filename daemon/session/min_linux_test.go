package session

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/redlock"
)

// minTime is the min= of these tests. It is longer than the ttl, so that the daemon must extend the
// lease.
const minTime = 2500 * time.Millisecond

// lockMin takes a lock with min=, and returns its lease and an instant before the grant.
func (w *wire) lockMin(name, options string) (lease string, before time.Duration) {
	w.T.Helper()
	before = redlock.BootTime()
	return w.Say(fmt.Sprintf("LOCK %s min=%dms ttl=%s", name, minTime.Milliseconds(), options), granted5)[0], before
}

// wantMin checks that a LOCK of name is granted only after min= has passed from since.
func (w *wire) wantMin(name string, since time.Duration) {
	w.T.Helper()
	w.Say("LOCK "+name, granted5)
	if took := redlock.BootTime() - since; took < minTime {
		w.T.Errorf("%s is taken by another client %v after the grant, want %v at least", name, took, minTime)
	}
	w.Say("UNLOCK "+name, "OK .*")
}

// The lock stays taken until min= has passed, after an UNLOCK, the end of the connection, and the
// end of the process. This holds for the same connection and for another host too.
func TestMin(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, longNodeTimeout)
	other := d.another()
	holder, leaves, look, next, there := d.dial(), d.dial(), d.dial(), d.dial(), other.dial()
	c := newChild(t, os.Getuid())
	_, unlocked := holder.lockMin("unlocked", "1s")
	holder.Send("UNLOCK unlocked")
	holder.Line()
	_, left := leaves.lockMin("left", "1s")
	leaves.Conn.Close()
	_, ended := look.lockMin("ended", fmt.Sprintf("2s hold=pid pid=%d", c.pid))
	c.killed()
	there.Send("LOCK left")
	holder.wantMin("unlocked", unlocked)
	there.Want(granted5)
	if took := redlock.BootTime() - left; took < minTime {
		t.Errorf("another host gets the lock %v after the grant, want %v at least", took, minTime)
	}
	next.wantMin("ended", ended)
}

// A lease that stays taken because of min= is listed as kept, and no client can use it any more.
func TestMinIsListed(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	holder, leaves, look, next := d.dial(), d.dial(), d.dial(), d.dial()
	c := newChild(t, os.Getuid())
	lease := holder.Say("LOCK unlocked min=1h ttl=20s note=why", granted5)[0]
	holder.Say("UNLOCK unlocked", `OK lock=unlocked kept=3[56]\d{5} : it stays taken .*`)
	leaves.Say("LOCK left min=1h ttl=20s", granted5)
	leaves.Conn.Close()
	look.Say(fmt.Sprintf("LOCK ended min=1h ttl=20s hold=pid pid=%d", c.pid), granted5)
	c.killed()

	holder.Say("CHECK lease="+lease, "ERR NOTHELD .*")
	holder.Say("UNLOCK lease="+lease, "ERR NOTHELD .*")
	holder.Say("EXTEND lease="+lease, "ERR NOTHELD .*")
	next.Say("RESUME unlocked lease="+lease, "ERR NOTHELD .*")
	look.Say("TRY unlocked", "ERR HELD .*")
	look.Send("WHO unlocked")
	look.Want(`- lock=unlocked .* kept=\d+ note=why : its holder has ended; it stays taken for kept= \(min=\)`)
	look.Want("OK n=1")
	daemontest.Eventually(t, "all leases are kept", func() bool {
		look.Send("LIST")
		n := 0
		for line := look.Line(); line != "OK n=3"; line = look.Line() {
			n += len(matchesAny(line, `- lock=\w+ state=kept mode=exclusive .* kept=\d+`))
		}
		return n == 3
	})
}

// matchesAny returns a match of a line with a pattern, or nil.
func matchesAny(line, pattern string) []string {
	if found := regexp.MustCompile(pattern).FindString(line); found != "" {
		return []string{found}
	}
	return nil
}

// FORCE ends a kept lease at once, and no client gets LOST.
func TestForceEndsMin(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	holder, admin := d.dial(), d.dial()
	holder.Say("LOCK a,b min=1h", granted5)
	holder.Say("UNLOCK a,b", `OK lock=a,b kept=\d+ : .*`)
	admin.Say("FORCE a", `OK lock=a n=1 .*`)
	admin.Say("LOCK a wait=5s", granted5)
	admin.Say("LOCK b wait=5s", granted5)
	holder.Say("PING", "OK") // and no LOST before it
	daemontest.Eventually(t, "nothing is kept", func() bool {
		admin.Send("LIST")
		n := 0
		line := admin.Line()
		for ; line[:2] == "- "; line = admin.Line() {
			n += len(matchesAny(line, "state=(kept|lost)"))
		}
		return n == 0
	})
}

// min= is refused if the daemon could not keep it.
func TestMinIsRefused(t *testing.T) {
	d := startDaemon(t, 3, func(cfg *config.Config) { cfg.Lease.MaxHold = time.Minute })
	w := d.dial()
	w.Say("LOCK a min=1s hold=ttl", `ERR OPTION .*: min= with hold=ttl: nothing extends such a lease; give it a longer ttl=`)
	w.Say("LOCK a min=1s beat=1s", `ERR OPTION .*: min= with beat=: .*`)
	w.Say("LOCK a min=61s", `ERR OPTION .*: min=1m1s: at most 1m0s \(max=, or lease.max_hold of the config\)`)
	w.Say("LOCK a min=2s max=1s", `ERR OPTION .*: min=2s: at most 1s .*`)
	w.Say("LOCK a min=1m reentrant=yes id=1", granted5+" count=1")
	w.Say("LOCK a min=1s reentrant=yes", `ERR OPTION .*: min= of a LOCK that counts up: only the first LOCK of the lease can set it`)
	w.Say("LOCK a min=1s reentrant=yes id=1", `OK .* again=yes`)
	w.Say("LOCK a reentrant=yes", granted5+" count=2")
	w.Say("UNLOCK a", "OK lock=a count=1")
	w.Say("UNLOCK a", `OK lock=a kept=\d+ : .*`)
}

// min= continues over a restart, whether the holder ended before it or while no daemon ran.
func TestMinContinuesAfterRestart(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, nil)
	holder, look := d.dial(), d.dial()
	c := newChild(t, os.Getuid())
	_, before := holder.lockMin("before", "20s")
	holder.Say("UNLOCK before", `OK .* kept=\d+ : .*`)
	_, meanwhile := look.lockMin("meanwhile", fmt.Sprintf("20s hold=pid pid=%d", c.pid))
	_, unclaimed := holder.lockMin("unclaimed", "3s")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	c.end()
	d.Start()
	a, b, w := d.dial(), d.dial(), d.dial()
	a.Send("LOCK meanwhile")
	b.Send("LOCK unclaimed")
	w.wantMin("before", before)
	a.Want(granted5)
	b.Want(granted5)
	for name, since := range map[string]time.Duration{"meanwhile": meanwhile, "unclaimed": unclaimed} {
		if took := redlock.BootTime() - since; took < minTime {
			t.Errorf("%s is taken by another client %v after the grant, want %v at least", name, took, minTime)
		}
	}
}

// min= outlasts the daemon: the lock stays taken until it has passed, although no daemon of this host
// runs, whether its holder unlocked it before, or still held it when the daemon stopped. max_ttl bounds
// that.
func TestMinOutlastsTheDaemon(t *testing.T) {
	for _, stop := range []string{"it runs, and may be killed", "it was stopped"} {
		d := startDaemon(t, 3, longNodeTimeout)
		w := d.dial()
		w.Say("LOCK kept min=20s ttl=2s", granted5)
		w.Say("UNLOCK kept", `OK lock=kept kept=\d+ : .*`)
		w.Say("LOCK long min=1h ttl=2s", granted5)
		w.Say("UNLOCK long", `OK lock=long kept=\d+ : .*`)
		w.Say("LOCK held min=20s ttl=2s", granted5)
		w.Say("LOCK none ttl=2s", granted5)
		longest := map[string]time.Duration{"kept": 20 * time.Second, "long": d.Cfg.Quorum.MaxTTL, "none": 2 * time.Second}
		if stop == "it was stopped" {
			longest["held"] = 20 * time.Second
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		for name, most := range longest {
			left := func() time.Duration { return d.leastTTL(name) }
			if most > 2*time.Second { // the extension may be on its way
				daemontest.Eventually(t, name+" stays taken", func() bool { return left() > most/2 })
			}
			if got := left(); got > most {
				t.Errorf("%s: %s stays taken for %v, want at most %v", stop, name, got, most)
			}
		}
	}
}

// leastTTL returns the shortest time for which a node still has the key of a lock.
func (d *testDaemon) leastTTL(name string) time.Duration {
	d.T.Helper()
	least := time.Hour
	for _, server := range d.Nodes.Servers {
		reply, err := server.Do("PTTL", d.Cfg.Quorum.KeyPrefix+name)
		if err != nil {
			d.T.Fatal(err)
		}
		least = min(least, time.Duration(reply.Int)*time.Millisecond)
	}
	return least
}
