package session

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/redlock"
)

// commands returns how many commands all nodes have executed.
func (d *testDaemon) commands() (n int) {
	d.T.Helper()
	re := regexp.MustCompile(`total_commands_processed:(\d+)`)
	for _, server := range d.Nodes.Servers {
		reply, err := server.Do("INFO", "stats")
		if err != nil {
			d.T.Fatal(err)
		}
		executed, err := strconv.Atoi(re.FindStringSubmatch(reply.Str)[1])
		if err != nil {
			d.T.Fatal(err)
		}
		n += executed
	}
	return n
}

// lockAndRetain takes a lock with retain= and releases it, until this host retains it.
func (w *wire) lockAndRetain(name, options string) {
	w.T.Helper()
	w.Say("LOCK "+name+" retain=1s "+options, granted5)
	w.Say("UNLOCK "+name, `OK lock=\S+`)
}

// The next LOCK of a retained lock, and its UNLOCK, cost no round trip: the nodes execute only the
// confirmations. Every grant has its own lease id and a larger fencing token.
func TestRetain(t *testing.T) {
	const pairs = 50
	d := startDaemon(t, 3, longNodeTimeout)
	w, next := d.dial(), d.dial()
	for _, name := range []string{"a", "b,c"} {
		last, ids, fewest := uint64(0), map[string]bool{}, math.MaxInt
		for range 8 { // a busy machine may be late, and confirms the lock more often
			w.lockAndRetain(name, "")
			before := d.commands()
			for i := range pairs {
				verb := "LOCK " + name
				if i%2 == 1 {
					verb = "TRY " + name
				}
				grant := w.Say(verb+" retain=1s", grantedAs)
				if fence := fenceOf(t, grant); fence <= last || ids[grant[0]] {
					t.Fatalf("lease %s with fence %d after fence %d: want a new lease and a larger fence", grant[0], fence, last)
				} else {
					last, ids[grant[0]] = fence, true
				}
				w.Say("UNLOCK "+name, `OK lock=\S+`)
				w, next = next, w
			}
			fewest = min(fewest, d.commands()-before)
		}
		if fewest > pairs*5 { // an ordinary pair costs six
			t.Errorf("%s: %d pairs cost at least %d commands on 3 nodes", name, pairs, fewest)
		}
	}
	w.Until("STATUS", `passes=[1-9]\d\d`)
}

// Without retain=, no lock is retained. retain= is refused for a lock that cannot be passed.
func TestRetainIsOff(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w := d.dial()
	w.Say("LOCK a", granted5)
	w.Say("LOCK b retain=0", granted5)
	w.Say("UNLOCK a", "OK lock=a")
	w.Say("UNLOCK b", "OK lock=b")
	w.Say("LIST", "OK n=0")
	for _, options := range []string{"mode=shared", "slots=3", "hold=ttl"} {
		w.Say("LOCK a retain=1s "+options, `ERR OPTION .*: retain= with mode=shared, slots= or hold=ttl: .*`)
	}
	w.Say("LOCK a retain=1001", `ERR OPTION .*: retain=1001: at most 1000 ms`)
}

// lease.retain of the config applies to all locks that can be retained.
func TestRetainOfTheConfig(t *testing.T) {
	d := startDaemon(t, 3, func(cfg *config.Config) {
		longNodeTimeout(cfg)
		cfg.Lease.Retain = time.Second
	})
	w := d.dial()
	w.Say("LOCK a", granted5)
	w.Say("UNLOCK a", "OK lock=a")
	w.Say("LOCK b retain=0", granted5)
	w.Say("UNLOCK b", "OK lock=b")
	w.Say("LOCK c mode=shared", granted5)
	w.Say("UNLOCK c", "OK lock=c")
	w.Say("LIST", `- lock=a state=retained .*`)
	w.Want("OK n=1")
}

// WHO and LIST show the host, and not the previous holder, whose lease has ended.
func TestRetainedBelongsToHost(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	holder, look := d.dial(), d.dial()
	c := newChild(t, os.Getuid())
	for _, end := range []func(lease string){
		func(lease string) { holder.Say("UNLOCK lease="+lease, "OK lock=a") },
		func(string) { c.killed() },
	} {
		lease := holder.Say(fmt.Sprintf("LOCK a retain=1s hold=pid pid=%d note=why", c.pid), granted5)[0]
		end(lease)
		look.Until("LIST", `(?m)^- lock=a state=retained mode=exclusive since=\d+ fence=\d+ ttl=\d+ retained=\d+$`)
		look.Say("WHO a", `- lock=a mode=exclusive host=\S+ since=\d+ ttl=\d+ held=\d nodes=3 retained=\d+ : nobody holds it; this host retains it .*`)
		look.Want("OK n=1")
		for _, request := range []string{"CHECK", "EXTEND", "UNLOCK"} {
			look.Say(request+" lease="+lease, "ERR NOTHELD .*")
		}
		look.Say("RESUME a lease="+lease, "ERR NOTHELD .*")
		holder.Say("LOCK a", granted5) // this host retains the lock, and grants it at once
		holder.Say("UNLOCK a", "OK lock=a")
	}
}

// A retained lock is released when retain= has passed.
func TestRetainEnds(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w := d.dial()
	w.Say("LOCK a retain=200ms", granted5)
	began := redlock.BootTime()
	w.Say("UNLOCK a", "OK lock=a")
	w.Until("WHO a", `OK n=0`)
	if took := redlock.BootTime() - began; took < 200*time.Millisecond {
		t.Errorf("released after %v, want at least 200ms", took)
	}
	d.AwaitNoKeys()
}

// A client of another host that waits gets a retained lock long before retain= has passed.
func TestRetainedForAnotherHost(t *testing.T) {
	here := startDaemon(t, 3, longNodeTimeout)
	there := here.another()
	w, other := here.dial(), there.dial()
	best := time.Hour
	for range 5 { // a busy machine may be late
		w.lockAndRetain("a", "")
		began := redlock.BootTime()
		other.Say("LOCK a", granted5)
		best = min(best, redlock.BootTime()-began)
		other.Say("UNLOCK a", "OK lock=a.*")
	}
	if best > 300*time.Millisecond {
		t.Errorf("the other host gets the lock after %v at best", best)
	}
}

// retainedOnNodes returns how many nodes show that a host retains the lock.
func (d *testDaemon) retainedOnNodes(lock string) (n int) {
	d.T.Helper()
	for _, server := range d.Nodes.Servers {
		reply, err := server.Do("MGET", "redlock:"+lock, "redlock:"+lock+"\x00r")
		if err != nil {
			d.T.Fatal(err)
		}
		if holder, mark := reply.Array[0].Str, reply.Array[1].Str; mark != "" && mark == holder {
			n++
		}
	}
	return n
}

// A client of another host that does not wait gets it too, once the nodes show that it is retained.
func TestTryOfRetained(t *testing.T) {
	here := startDaemon(t, 3, longNodeTimeout)
	there := here.another()
	w, other := here.dial(), there.dial()
	for _, request := range []string{"TRY a", "LOCK a wait=0", "TRY a mode=shared", "TRY a,b"} {
		daemontest.Eventually(t, request+" gets the lock", func() bool { // a busy machine may be late
			w.lockAndRetain("a", "")
			daemontest.Eventually(t, "the nodes show the retention, or it has ended", func() bool { return here.retainedOnNodes("a") == 3 || len(here.Keys()) == 0 })
			lease, granted := strings.CutPrefix(other.Say(request, `OK lock=\S+ (lease=\S+) .*|(ERR) HELD .*`)[0], "lease=")
			if granted {
				other.Say("UNLOCK lease="+lease, `OK .*`)
			} else {
				w.Until("WHO a", "OK n=0")
			}
			return granted
		})
	}
}

// Requests of this host that cannot use a pass get a retained lock as if it was free.
func TestRetainedForOtherRequests(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w, other := d.dial(), d.dial()
	for _, request := range []string{"TRY a", "TRY a mode=shared", "TRY a slots=2", "TRY a hold=ttl", "TRY a,b", "LOCK a wait=0"} {
		w.lockAndRetain("a", "")
		lease := other.Say(request, `OK lock=\S+ lease=(\S+) .*`)[0]
		other.Say("UNLOCK lease="+lease, `OK .*`)
	}
	w.lockAndRetain("a", "")
	w.lockAndRetain("b", "")
	lease := other.Say("TRY a,b", granted5)[0]
	other.Say("UNLOCK lease="+lease, `OK .*`)
	other.Say("LIST", "OK n=0")
}

// FORCE takes a retained lock, and no client gets LOST.
func TestForceOfRetained(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	holder, admin := d.dial(), d.dial()
	holder.lockAndRetain("a", "")
	admin.Say("FORCE a", `OK lock=a n=1 held=\d host=\S+ since=\d+ : nobody held it: this host had retained it \(retain=\)`)
	admin.Say("LIST", "OK n=0")
	admin.Say("LOCK a wait=5s", granted5)
	holder.Say("PING", "OK") // and no LOST before it
}

// Retained locks do not count against the limit of the user that held them.
func TestRetainedIsNotCounted(t *testing.T) {
	d := startDaemon(t, 3, func(cfg *config.Config) {
		longNodeTimeout(cfg)
		cfg.Limits.LeasesPerUser = 1
	})
	w := d.dial()
	for i := range 5 {
		w.lockAndRetain(fmt.Sprint("n", i%2), "")
	}
	w.Until("LIST", "OK n=0")
	w.Say("LOCK a", granted5)
	w.Say("LOCK b", `ERR LIMIT .*`)
}

// A host retains at most maxRetained locks.
func TestRetainedAreBounded(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w, look := d.dial(), d.dial()
	for i := range maxRetained + 20 {
		w.lockAndRetain(fmt.Sprint("n", i), "")
	}
	look.Until("LIST", fmt.Sprintf(`OK n=(\d{1,2}|%d)\n`, maxRetained))
	look.Until("LIST", "OK n=0")
}

// A daemon that stops releases what it retains.
func TestRetainedEndsWithTheDaemon(t *testing.T) {
	here := startDaemon(t, 3, longNodeTimeout)
	there := here.another()
	here.dial().lockAndRetain("a", "ttl=20s")
	if err := here.Stop(); err != nil {
		t.Fatal(err)
	}
	there.dial().Say("LOCK a wait=5s", granted5)

	s := newSuccession(t)
	look := s.dial()
	s.dial().lockAndRetain("a", "ttl=20s")
	s.found = func(found *state.Recovered) {
		for _, l := range found.Leases {
			if l.Phase == state.PhaseHeld {
				t.Errorf("the next daemon finds %+v", l)
			}
		}
	}
	s.end()
	s.start(look)
	look.Want(`BACK .*`)
	look.Say("LOCK a wait=5s", granted5)
}

// A daemon that is killed leaves what it retains to the next one, which releases it.
func TestRetainedAfterAKill(t *testing.T) {
	s := newSuccession(t)
	s.dial().lockAndRetain("a", "ttl=20s")
	s.d.Stopping.Store(true) // from here it acts as if it was killed
	s.d.timers.Stop()
	s.d.Journal.Freeze()
	go s.d.Nodes.Close()
	var past *state.Lease
	s.found = func(found *state.Recovered) {
		for _, l := range found.Leases {
			past = l
		}
	}
	s.start()
	if past == nil || !past.Kept || past.Phase != state.PhaseHeld {
		t.Fatalf("the state file has %+v, want a lease that nobody holds", past)
	}
	w := s.dial()
	w.Until("WHO a", "OK n=0")
	w.Say("LOCK a wait=0", granted5)
}
