package session

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
)

// takeForeign takes a lock as another Redlock client does, without information about the holder.
func (d *testDaemon) takeForeign(name string) {
	d.T.Helper()
	for _, server := range d.Nodes.Servers {
		if _, err := server.Do("SET", "redlock:"+name, "foreign", "PX", "60000"); err != nil {
			d.T.Fatal(err)
		}
	}
}

// takeForeign takes a lock as another Redlock client does, without information about the holder.
func (d *simDaemon) takeForeign(name string) {
	for _, sim := range d.sims {
		sim.Do("SET", "redlock:"+name, "foreign", "PX", "60000")
	}
}

// WHO shows the client whose turn it is to take a lock that nobody holds.
func TestWhoShowsTurn(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	d.Nodes.TurnOfCron(t, "redlock:a")
	w := d.dial()
	w.Send("WHO a")
	w.Want(`- lock=a mode=exclusive waiting=yes host=web3 pid=4121 user=cron since=\d+ ttl=\d+ held=3 nodes=3 : nobody holds it; the nodes keep it for .*`)
	w.Want(`OK n=1 waiting_hosts=web3 waiting_ms=\d+`)
	w.Say("TRY a", `ERR HELD lock=a waiting=yes ttl=\d+ host=web3 pid=4121 user=cron since=\d+ : a: kept for cron on web3 .*`)
	for _, server := range d.Nodes.Servers {
		if _, err := server.Do("DEL", "redlock:a\x00q", "redlock:a\x00t"); err != nil {
			t.Fatal(err)
		}
	}
	w.Say("LOCK a", granted5)
	w.Send("WHO a")
	w.Want(`- lock=a mode=exclusive host=\S+ pid=\d+ .*`)
	w.Want(`OK n=1`)
}

// FORCE does not claim that a client of another library gets LOST.
func TestForceForeign(t *testing.T) {
	var log daemontest.Log
	d := startDaemon(t, 3, nil).anotherWithLog(logging.New(&log, hclog.Info, logging.Text))
	d.takeForeign("a")
	w := d.dial()
	w.Say("FORCE a", `OK lock=a n=1 held=3 : another Redlock client held it; it is not notified, .*`)
	w.Say("TRY a", granted5)
	if got := log.String(); !strings.Contains(got, `taken away by FORCE: lock=a `) || !strings.Contains(got, `holder="another Redlock client`) {
		t.Errorf("the log does not name the previous holder:\n%s", got)
	}
}

// wait= bounds the wait in this host's queue and the wait for another host's holder together.
func TestWaitIncludesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, longNodeTimeout)
		d.takeForeign("a")
		first, second, look := d.dial(), d.dial(), d.dial()
		first.Send("LOCK a wait=2s")
		look.Until("STATUS", `waiters=1\b`)
		asked := d.now()
		second.Send("LOCK a wait=2500ms")
		first.Want(`ERR HELD .*`)
		second.Want(`ERR HELD .*`)
		if took := d.now() - asked; took != 2500*time.Millisecond {
			t.Errorf("the client waited for %v, want 2.5s", took)
		}
	})
}

// A waiter for another host's lock leaves if it could not hold the lock any more: its input has
// ended, or the process that was to hold it.
func TestWaiterForAnotherHostLeaves(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	d.takeForeign("a")
	d.takeForeign("b")
	c, w, byProcess, look := newChild(t, os.Getuid()), d.dial(), d.dial(), d.dial()
	w.Send("LOCK a")
	byProcess.Send("LOCK b hold=pid pid=%d", c.pid)
	look.Until("STATUS", `waiters=2\b`)
	w.EndInput()
	w.Want(`ERR (HELD|CANCELLED) lock=a .*`)
	w.Ends()
	c.killed()
	byProcess.Want(`ERR CANCELLED lock=b : .*has ended.*`)
	look.Until("STATUS", `waiters=0\b`)
}

// guard= states how long before the deadline LOST is sent, instead of a fifth of the ttl.
func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, longNodeTimeout)
		w := d.dial()
		deadline := duration(t, w.Say("LOCK a hold=ttl ttl=4s guard=2s", granted5)[2])
		w.Want(`LOST lock=a .*`)
		if left := deadline - d.now(); left != 2*time.Second {
			t.Errorf("LOST %v before the deadline, want 2s", left)
		}
	})
}
