package session

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/state/statefile"
)

// Three of five nodes are down. The answer names them, comes in bounded time, and is never HELD.
func TestNoQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 5, nil)
		w := d.dial()
		for _, sim := range d.sims[2:] {
			sim.Crash(false)
		}
		const refusal = `ERR NOQUORUM lock=a granted=[0-2] needed=3 failed=c:\w+,d:\w+,e:\w+ retry=250 : a: no quorum: .*; c(, d)?(, e)?: acquire: .*`
		w.Say("TRY a", refusal)
		start := d.now()
		w.Say("LOCK a wait=400ms", refusal)
		if took := d.now() - start; took != 400*time.Millisecond {
			t.Errorf("wait=400ms: answered after %v", took)
		}
		start = d.now()
		w.Say("LOCK a ttl=100ms wait=500ms", refusal) // the ttl does not end it
		if took := d.now() - start; took != 500*time.Millisecond {
			t.Errorf("ttl=100ms wait=500ms: answered after %v", took)
		}
		w.Say("WHO a", `ERR NOQUORUM lock=a granted=2 needed=3 failed=c:down,d:down,e:down .*`)
		w.Until("STATUS", `spare=-1\b.*no quorum`)
		for _, sim := range d.sims[2:] {
			sim.Restart()
		}
		w.Until("STATUS", `spare=2\b`)
		d.awaitNoKeys()
		w.Say("LOCK a", granted5)
	})
}

// When a waiter gets NOQUORUM, the waiters behind it do not wait as long again for the same answer.
func TestWaitersGetNoQuorumTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		for _, sim := range d.sims {
			sim.Crash(false)
		}
		const waiters, wait = 10, time.Second
		start := d.now()
		var wires []*wire
		for range waiters {
			w := d.dial()
			w.Send("LOCK a wait=1s")
			wires = append(wires, w)
		}
		for _, w := range wires {
			w.Want(`ERR NOQUORUM lock=a .*`)
		}
		if took := d.now() - start; took != wait {
			t.Errorf("%d waiters with wait=%v got NOQUORUM after %v, one after the other", waiters, wait, took)
		}
	})
}

// A quorum hangs. LOST reaches the client before the last stated deadline, and is final.
func TestLostBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 5, nil)
		w := d.dial()
		w.Say("LOCK a ttl=2s", granted5)
		for _, sim := range d.sims[:3] {
			sim.Hang()
		}
		deadline := duration(t, w.Say("CHECK a", granted5)[2])
		w.Want(`LOST lock=a lease=\S+ reason=quorum : .*`)
		if now := d.now(); now >= deadline {
			t.Errorf("LOST at %v, after the stated deadline %v", now, deadline)
		}
		for _, sim := range d.sims[:3] {
			sim.Resume()
		}
		w.Until("STATUS", `spare=2\b`)
		w.Say("CHECK a", `ERR LOST lock=a reason=quorum : .*`)
		w.Say("UNLOCK a", `ERR LOST lock=a reason=quorum : .*`)
		d.awaitNoKeys()
		w.Say("LOCK a", granted5)
	})
}

// A lease is lost if no quorum of nodes has its key any more.
func TestFlushedQuorumIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w := d.dial()
		w.Say("LOCK a ttl=600ms", granted5)
		w.Say("LOCK b ttl=30s", granted5)
		for _, sim := range d.sims[:2] {
			sim.Flush()
		}
		w.Want(`LOST lock=a lease=\S+ reason=quorum : .*`)
		w.Say("UNLOCK b", `ERR LOST lock=b reason=quorum : .*`)
	})
}

// The nodes have lost the lease, but its holder may work until its deadline. No other client of
// this host gets the lock before. If only the key is gone, no quarantine protects it.
func TestNoGrantOnThisHostBeforeTheDeadline(t *testing.T) {
	for name, forget := range map[string][]string{"all": {"FLUSHALL"}, "the key": {"DEL", "redlock:a"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startSims(t, 3, func(cfg *config.Config) { cfg.Quorum.MaxTTL, cfg.Lease.TTL = 2*time.Second, 2*time.Second })
				holder, waiter := d.dial(), d.dial()
				holder.Say("LOCK a ttl=2s", granted5)
				waiter.Send("LOCK a")
				holder.Until("LIST", `state=waiting`)
				for _, sim := range d.sims {
					sim.Do(forget...)
				}
				deadline := duration(t, holder.Say("CHECK a", granted5)[2])
				holder.Want(`LOST lock=a lease=\S+ reason=quorum : .*`)
				waiter.Want(granted5)
				if now := d.now(); now < deadline {
					t.Errorf("granted to another client at %v, before the deadline %v", now, deadline)
				}
			})
		})
	}
}

// A client of another host does not get a lost lock before its deadline. The holder got LOST, and
// disconnected or sent UNLOCK, but may still be stopping its work.
func TestNoGrantOnAnotherHostBeforeTheDeadline(t *testing.T) {
	for name, end := range map[string]func(w *wire){
		"hangs up": func(w *wire) { w.Conn.Close() },
		"unlocks":  func(w *wire) { w.Say("UNLOCK a", `ERR LOST .*`) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here := startSims(t, 3, longNodeTimeout)
				holder, other := here.dial(), here.another().dial()
				deadline := duration(t, holder.Say("LOCK a max=700ms", granted5)[2])
				holder.Want(`LOST lock=a lease=\S+ reason=max : .*`)
				end(holder)
				other.Say("LOCK a", granted5)
				if now := here.now(); now < deadline {
					t.Errorf("granted to another client at %v, before the deadline %v", now, deadline)
				}
			})
		})
	}
}

// The release is pending, and the daemon repeats it.
func TestUnlockWithoutQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w := d.dial()
		w.Say("LOCK a ttl=30s", granted5)
		for _, sim := range d.sims[:2] {
			sim.Hang()
		}
		w.Say("UNLOCK a", `OK lock=a pending=1 : .*`)
		for _, sim := range d.sims[:2] {
			sim.Resume()
		}
		d.awaitNoKeys()
	})
}

// The daemon serves, reports the missing nodes, and grants locks as soon as they are up.
func TestStartsWithoutNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		if err := d.Stop(); err != nil {
			t.Fatal(err)
		}
		for _, sim := range d.sims {
			sim.Crash(false)
		}
		d.Start()
		w := d.dial()
		w.Say("TRY a", `ERR NOQUORUM lock=a granted=0 needed=2 failed=a:down,b:down,c:down .*`)
		w.Send("LOCK a")
		for _, sim := range d.sims {
			sim.Restart()
		}
		w.Want(granted5)
	})
}

func TestLimits(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) {
		c.Limits = config.Limits{Connections: 4, ConnectionsPerUser: 3, LeasesPerUser: 2, WaitersPerUser: 2}
	})
	a, b, c := d.dial(), d.dial(), d.dial()
	a.Say("PING", `OK`)
	b.Say("PING", `OK`)
	c.Say("PING", `OK`)
	d.dial().Want(`ERR LIMIT : .*connections_per_user = 3`)
	a.Say("LOCK a", granted5)
	b.Send("@1 LOCK a")
	a.Until("LIST", `state=waiting`)
	b.Say("@2 LOCK b", `@2 ERR LIMIT lock=b : .*leases_per_user = 2, of which 1 only wait for a lock`)
	cfg := *d.Cfg
	cfg.Limits.LeasesPerUser, cfg.Limits.WaitersPerUser = 3, 1
	d.Reload <- &cfg
	b.Until("LOCK b", `waiters_per_user = 1`)
	a.Say("UNLOCK a", `OK lock=a`)
	b.Want(`@1 ` + granted5)
	b.Say("UNLOCK a", `OK lock=a`)
	c.Conn.Close()
	daemontest.Eventually(t, "another client may connect", func() bool {
		w := d.dial()
		defer w.Conn.Close()
		fmt.Fprintln(w.Conn, "PING") // fails if the refusal came first
		return w.Line() == "OK"
	})
}

// If somebody truncates the state file, a restart loses the leases, but the daemon continues.
func TestStateFileTruncated(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the state file needs Linux")
	}
	var log daemontest.Log
	d := startDaemon(t, 3, nil).anotherWithLog(logging.New(&log, hclog.Info, logging.Text))
	w := d.dial()
	w.Say("LOCK a", granted5)
	file := statefile.PathFor(d.Cfg.Socket.Path) + ".1"
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	w.Say("LOCK b", granted5)
	w.Say("UNLOCK a", `OK lock=a`)
	w.Say("CHECK b", granted5)
	w.Until("STATUS", `unnoted=yes table=removed .*; a restart of redlockd would lose leases and waiters, because its state file was removed or cut short: .*`)
	if got := log.String(); strings.Count(got, "[ERROR] the state file cannot be written: ") != 1 || !strings.Contains(got, "cut short") {
		t.Errorf("want one error about the truncated state file:\n%s", got)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the truncated file is still there: the next daemon would read it")
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	w.Want(`BYE resume=0 : .*`)
}

// A CANCEL ends only its own request. The waiters behind it inherit only failures of the nodes.
func TestCancelDoesNotEndOtherWaiters(t *testing.T) {
	d := startDaemon(t, 3, func(c *config.Config) { c.Quorum.NodeTimeout = 5 * time.Second })
	for _, server := range d.Nodes.Servers {
		if _, err := server.Do("SET", "redlock:a", "foreign"); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := d.dial(), d.dial(), d.dial()
	a.Send("@1 LOCK a")
	c.Until("LIST", `state=waiting`)
	b.Send("@1 LOCK a wait=10s")
	c.Until("STATUS", `waiters=2\b`)
	for _, server := range d.Nodes.Servers { // the next attempt hangs
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	a.Send("@2 CANCEL 1")
	a.Want(`@\d .*`)
	a.Want(`@\d .*`)
	c.Say("TRY a", `ERR HELD lock=a .*`)
	b.Send("@2 CANCEL 1")
	for _, server := range d.Nodes.Servers {
		if err := server.Cont(); err != nil {
			t.Fatal(err)
		}
	}
}

// Neither an outage nor the NOQUORUM of an earlier waiter shortens the wait of a later one.
func TestWaitForeverOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		for _, sim := range d.sims {
			sim.Crash(false)
		}
		a, b := d.dial(), d.dial()
		a.Send("LOCK a wait=500ms")
		b.Until("LIST", `state=waiting`)
		b.Send("LOCK a ttl=100ms")
		a.Want(`ERR NOQUORUM lock=a .*`)
		for _, sim := range d.sims {
			sim.Restart()
			sim.Do("SET", "redlock:a", "foreign", "PX", "6000")
		}
		b.Want(granted5)
	})
}
