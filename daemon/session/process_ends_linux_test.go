package session

import (
	"fmt"
	"os"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
)

// If a process ends during the attempt, the grant comes after the end of the process was reported.
// The daemon must release the lease then.
func TestHoldPIDEndsWhileItIsGranted(t *testing.T) {
	d := startDaemon(t, 3, func(cfg *config.Config) { cfg.Quorum.NodeTimeout = daemontest.Patience })
	c := newChild(t, os.Getuid())
	w, look := d.dial(), d.dial()
	others := pidfds(t, c.pid) // Go's own
	for _, server := range d.Nodes.Servers {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	w.Send("LOCK a ttl=20s hold=pid pid=%d", c.pid)
	look.Until("LIST", `state=waiting`)
	daemontest.Eventually(t, "the process is watched", func() bool { return pidfds(t, c.pid) > others })
	c.killed()
	daemontest.Eventually(t, "the daemon has noticed the end of the process", func() bool { return pidfds(t, c.pid) == others })
	for _, server := range d.Nodes.Servers {
		if err := server.Cont(); err != nil {
			t.Fatal(err)
		}
	}
	w.Want(fmt.Sprintf(`ERR CANCELLED lock=a : process %d, which should hold it, has ended`, c.pid))
	look.Say("LOCK a wait=10s", granted5) // before the lease would expire
}

// When a process ends, the daemon forgets its lost leases, by process and by lease id. If FORCE
// took one name of a lock, its other names become free at that moment, before the deadline.
func TestHoldPIDEndsWithALostLease(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	c := newChild(t, os.Getuid())
	w, admin := d.dial(), d.dial()
	lease := w.Say(fmt.Sprintf("LOCK a,b ttl=30s hold=pid pid=%d", c.pid), granted(`a,b`))[0]
	admin.Say("FORCE a", `OK lock=a n=1 also=b .*`)
	w.Want(`LOST lock=a,b .*`)
	admin.Say("TRY b", `ERR HELD .*`)
	admin.Say("CHECK lease="+lease, `ERR LOST reason=forced : a,b: .*`)
	c.killed()
	admin.Say("LOCK b wait=10s", granted(`b`))
	admin.Until("CHECK lease="+lease, `^ERR NOTHELD `)
}

// While the process lives, the daemon reports the loss to each client that asks for the lease, even
// if no connection was open to get LOST.
func TestProcessLossWithoutConnection(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	w, look := d.dial(), d.dial()
	lease := w.Say(fmt.Sprintf("LOCK a ttl=20s hold=pid pid=%d", c.pid), granted5)[0]
	w.Conn.Close()
	look.Until("STATUS", `connections=1\b`)
	look.Say("FORCE a", `OK lock=a n=1 .*`)
	look.Say(fmt.Sprintf("CHECK a pid=%d", c.pid), `ERR LOST lock=a .*reason=forced .*`)
	look.Say("CHECK a lease="+lease, `ERR LOST lock=a .*reason=forced .*`)
}

// A released lock no longer counts as a lock of its process.
func TestProcessForgetsReleasedLocks(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, w := newChild(t, os.Getuid()), d.dial()
	pid := fmt.Sprintf("pid=%d", c.pid)
	w.Say("LOCK stays owner=o hold=pid "+pid, granted5)
	for _, name := range []string{"a", "b"} {
		w.Say("LOCK "+name+" hold=pid "+pid, granted5)
		w.Say("UNLOCK "+name+" "+pid, `OK lock=`+name)
	}
	w.Say("UNLOCK "+pid, `ERR NOTHELD : .*`)
}

// The daemon stops watching the process after the last UNLOCK, however often its lease was counted.
func TestProcessIsNotWatchedAfterLastUnlock(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, w := newChild(t, os.Getuid()), d.dial()
	pid := fmt.Sprintf(" hold=pid pid=%d", c.pid)
	others := pidfds(t, c.pid) // Go's own
	for n := range 3 {
		w.Say("LOCK a reentrant=yes id="+fmt.Sprint(n)+pid, counted(n+1))
	}
	w.Say("LOCK a reentrant=yes id=1"+pid, counted(3)+` again=yes`)
	w.Say("LOCK a"+pid, `ERR ALREADY .*`)
	w.Say("UNLOCK a", `OK lock=a count=2`)
	w.Say("UNLOCK a", `OK lock=a count=1`)
	w.Say("UNLOCK a", `OK lock=a`)
	daemontest.Eventually(t, "the process is no longer watched", func() bool { return pidfds(t, c.pid) == others })
}

// A lost lease is listed until other clients can take the lock.
func TestHoldPIDEndsAndIsListed(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	w := d.dial()
	others := pidfds(t, c.pid) // Go's own
	w.Say(fmt.Sprintf("LOCK a ttl=3s beat=100ms hold=pid pid=%d", c.pid), granted5)
	w.Want(`LOST lock=a .* reason=beat : .*`)
	c.killed()
	daemontest.Eventually(t, "the daemon has noticed the end of the process", func() bool { return pidfds(t, c.pid) == others })
	w.Send("LIST")
	w.Want(`- lock=a state=lost .*`)
	w.Want(`OK n=1`)
	w.Say("LOCK a", granted5)
	w.Say("UNLOCK a", `OK lock=a`)
	w.Until("LIST", `^OK n=0`)
}

// When a process ends, each of its waiting requests gets an error, including further LOCKs and
// repeats.
func TestHoldPIDEndsWhileManyWait(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	holder, look, w := d.dial(), d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	w.sendWaiting(look, fmt.Sprintf("@1 LOCK a id=x reentrant=yes hold=pid pid=%d", c.pid), 1)
	w.Send("@2 LOCK a reentrant=yes hold=pid pid=%d", c.pid)
	w.Send("@3 LOCK a id=x hold=pid pid=%d", c.pid)
	w.Say("@4 TRY a hold=pid pid=1", `@4 ERR DENIED .*`) // the daemon has started the others
	c.killed()
	for range 3 {
		w.Want(fmt.Sprintf(`@[123] ERR CANCELLED lock=a : process %d, which should hold it, has ended`, c.pid))
	}
}

// If a LOCK waits with the first LOCK of another connection of its process, it continues to wait
// when that connection ends.
func TestHoldPIDContinuesToWait(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	holder, a, b := d.dial(), d.dial(), d.dial()
	mine := fmt.Sprintf(" hold=pid pid=%d", c.pid)
	holder.Say("LOCK a", granted5)
	a.sendWaiting(holder, "LOCK a reentrant=yes"+mine, 1)
	b.Send("@1 LOCK a reentrant=yes" + mine)
	b.Say("@2 TRY a reentrant=yes"+mine, `@2 ERR HELD .*`) // the daemon has started the other
	a.Conn.Close()
	holder.Until("STATUS", `waiters=1\b.*connections=2\b`)
	holder.Say("UNLOCK a", `OK lock=a`)
	b.Want(`@1 ` + counted(1))
	b.Say(fmt.Sprintf("UNLOCK a pid=%d", c.pid), `OK lock=a`)
}
