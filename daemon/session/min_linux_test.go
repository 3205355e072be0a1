package session

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/redlock"
)

// least is min= of these tests, and longer than the ttl: the daemon extends the lease meanwhile.
const least = 2500 * time.Millisecond

// lockMin takes a lock with min=, and returns its lease and an instant before the grant.
func (w *wire) lockMin(name, options string) (lease string, before time.Duration) {
	w.t.Helper()
	before = redlock.BootTime()
	return w.say(fmt.Sprintf("LOCK %s min=%dms ttl=%s", name, least.Milliseconds(), options), granted5)[0], before
}

// wantMin checks that the next LOCK of a name gets it when min= has passed since an instant.
func (w *wire) wantMin(name string, since time.Duration) {
	w.t.Helper()
	w.say("LOCK "+name, granted5)
	if took := redlock.BootTime() - since; took < least {
		w.t.Errorf("%s is taken by another client %v after the grant, want %v at least", name, took, least)
	}
	w.say("UNLOCK "+name, "OK .*")
}

// The lock stays taken until min= has passed, after an UNLOCK, the end of the connection, and the
// end of the process, also for the same connection and for another host.
func TestMin(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, patientNodes)
	other := d.another()
	holder, leaves, look, next, there := d.dial(), d.dial(), d.dial(), d.dial(), other.dial()
	c := newChild(t, os.Getuid())

	lease, unlocked := holder.lockMin("unlocked", "1s note=why")
	holder.say("UNLOCK unlocked", `OK lock=unlocked kept=2\d\d\d : it stays taken .*`)
	_, left := leaves.lockMin("left", "1s")
	leaves.conn.Close()
	_, ended := look.lockMin("ended", fmt.Sprintf("2s hold=pid pid=%d", c.pid))
	c.killed()

	holder.say("CHECK lease="+lease, "ERR NOTHELD .*")
	holder.say("UNLOCK lease="+lease, "ERR NOTHELD .*")
	holder.say("EXTEND lease="+lease, "ERR NOTHELD .*")
	next.say("RESUME unlocked lease="+lease, "ERR NOTHELD .*")
	look.say("TRY unlocked", "ERR HELD .*")
	look.send("WHO unlocked")
	look.want(`- lock=unlocked .* kept=\d+ note=why : its holder has ended; it stays taken for kept= \(min=\)`)
	look.want("OK n=1")
	eventually(t, "all are kept", func() bool {
		look.send("LIST")
		n := 0
		for line := look.line(); line != "OK n=3"; line = look.line() {
			n += len(matchesAny(line, `- lock=\w+ state=kept mode=exclusive .* kept=\d+`))
		}
		return n == 3
	})
	there.send("LOCK left")
	holder.wantMin("unlocked", unlocked)
	there.want(granted5)
	if took := redlock.BootTime() - left; took < least {
		t.Errorf("another host gets the lock %v after the grant, want %v at least", took, least)
	}
	next.wantMin("ended", ended)
}

// matchesAny returns a match of a line with a pattern, or nil.
func matchesAny(line, pattern string) []string {
	if found := regexp.MustCompile(pattern).FindString(line); found != "" {
		return []string{found}
	}
	return nil
}

// FORCE ends a kept lease at once, and nobody hears of it.
func TestForceEndsMin(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	holder, admin := d.dial(), d.dial()
	holder.say("LOCK a,b min=1h", granted5)
	holder.say("UNLOCK a,b", `OK lock=a,b kept=\d+ : .*`)
	admin.say("FORCE a", `OK lock=a n=1 .*`)
	admin.say("LOCK a wait=5s", granted5)
	admin.say("LOCK b wait=5s", granted5)
	holder.say("PING", "OK") // and no LOST before it
	eventually(t, "nothing is kept", func() bool {
		admin.send("LIST")
		n := 0
		line := admin.line()
		for ; line[:2] == "- "; line = admin.line() {
			n += len(matchesAny(line, "state=(kept|lost)"))
		}
		return n == 0
	})
}

// min= is refused where it cannot be kept.
func TestMinIsRefused(t *testing.T) {
	d := startDaemon(t, 3, func(cfg *config.Config) { cfg.Lease.MaxHold = time.Minute })
	w := d.dial()
	w.say("LOCK a min=1s hold=ttl", `ERR OPTION .*: min= with hold=ttl: nothing extends such a lease; give it a longer ttl=`)
	w.say("LOCK a min=1s beat=1s", `ERR OPTION .*: min= with beat=: .*`)
	w.say("LOCK a min=61s", `ERR OPTION .*: min=61000: at most 60000 ms \(max=, or lease.max_hold of the config\)`)
	w.say("LOCK a min=2s max=1s", `ERR OPTION .*: min=2000: at most 1000 ms .*`)
	w.say("LOCK a min=1m reentrant=yes id=1", granted5+" count=1")
	w.say("LOCK a min=1s reentrant=yes", `ERR OPTION .*: min= of a LOCK that counts up: the first LOCK of the lease says it`)
	w.say("LOCK a min=1s reentrant=yes id=1", `OK .* again=yes`)
	w.say("LOCK a reentrant=yes", granted5+" count=2")
	w.say("UNLOCK a", "OK lock=a count=1")
	w.say("UNLOCK a", `OK lock=a kept=\d+ : .*`)
}

// A restart changes nothing about min=: whether the holder ended before it, or while there was no
// daemon.
func TestMinGoesOnAfterARestart(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, nil)
	holder, look := d.dial(), d.dial()
	c := newChild(t, os.Getuid())
	_, before := holder.lockMin("before", "20s")
	holder.say("UNLOCK before", `OK .* kept=\d+ : .*`)
	_, meanwhile := look.lockMin("meanwhile", fmt.Sprintf("20s hold=pid pid=%d", c.pid))
	_, unclaimed := holder.lockMin("unclaimed", "3s")
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	c.end()
	d.start()
	a, b, w := d.dial(), d.dial(), d.dial()
	a.send("LOCK meanwhile")
	b.send("LOCK unclaimed")
	w.wantMin("before", before)
	a.want(granted5)
	b.want(granted5)
	for name, since := range map[string]time.Duration{"meanwhile": meanwhile, "unclaimed": unclaimed} {
		if took := redlock.BootTime() - since; took < least {
			t.Errorf("%s is taken by another client %v after the grant, want %v at least", name, took, least)
		}
	}
}
