package session

import (
	"fmt"
	"os"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
)

// A process that ends while the nodes are asked for its lease has one for a moment, which
// nobody would give back else: its end was heard of before.
func TestHoldPIDEndsWhileItIsGranted(t *testing.T) {
	d := startDaemon(t, 3, func(cfg *config.Config) { cfg.Quorum.NodeTimeout = patience })
	c := newChild(t, os.Getuid())
	w, look := d.dial(), d.dial()
	others := pidfds(t, c.pid) // Go's own
	for _, server := range d.nodes.Servers {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	w.send("LOCK a ttl=20s hold=pid pid=%d", c.pid)
	look.until("LIST", `state=waiting`)
	eventually(t, "the process is watched", func() bool { return pidfds(t, c.pid) > others })
	c.killed()
	eventually(t, "its end is noticed", func() bool { return pidfds(t, c.pid) == others })
	for _, server := range d.nodes.Servers {
		if err := server.Cont(); err != nil {
			t.Fatal(err)
		}
	}
	w.want(fmt.Sprintf(`ERR CANCELLED lock=a : process %d, which was to hold it, has ended`, c.pid))
	look.say("LOCK a wait=10s", granted5) // sooner than the lease would be over
}

// What a process had lost when it ends is told of no more, by whatever it was known; and
// what others may have anyway, the other names of a lock that was forced away, is free
// then, before the deadline.
func TestHoldPIDEndsWithALostLease(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	c := newChild(t, os.Getuid())
	w, admin := d.dial(), d.dial()
	lease := w.say(fmt.Sprintf("LOCK a,b ttl=30s hold=pid pid=%d", c.pid), granted(`a,b`))[0]
	admin.say("FORCE a", `OK lock=a n=1 also=b .*`)
	w.want(`LOST lock=a,b .*`)
	admin.say("TRY b", `ERR HELD .*`)
	admin.say("CHECK lease="+lease, `ERR LOST reason=forced : a,b: .*`)
	c.killed()
	admin.say("LOCK b wait=10s", granted(`b`))
	admin.until("CHECK lease="+lease, `^ERR NOTHELD `)
}

// While it lives, whoever asks for it is told that it has lost it, also where nobody was
// there to hear LOST.
func TestLossOfAProcessThatNobodyHears(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	w, look := d.dial(), d.dial()
	lease := w.say(fmt.Sprintf("LOCK a ttl=20s hold=pid pid=%d", c.pid), granted5)[0]
	w.conn.Close()
	look.until("STATUS", `connections=1\b`)
	look.say("FORCE a", `OK lock=a n=1 .*`)
	look.say(fmt.Sprintf("CHECK a pid=%d", c.pid), `ERR LOST lock=a .*reason=forced .*`)
	look.say("CHECK a lease="+lease, `ERR LOST lock=a .*reason=forced .*`)
}

// What it has given back does not count as its own any more.
func TestProcessKeepsNothingOfWhatItGaveBack(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, w := newChild(t, os.Getuid()), d.dial()
	pid := fmt.Sprintf("pid=%d", c.pid)
	w.say("LOCK stays owner=o hold=pid "+pid, granted5)
	for _, name := range []string{"a", "b"} {
		w.say("LOCK "+name+" hold=pid "+pid, granted5)
		w.say("UNLOCK "+name+" "+pid, `OK lock=`+name)
	}
	w.say("UNLOCK "+pid, `ERR NOTHELD : .*`)
}

// Nor is it watched any more, however often it counted.
func TestProcessIsNotWatchedForWhatCounted(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c, w := newChild(t, os.Getuid()), d.dial()
	pid := fmt.Sprintf(" hold=pid pid=%d", c.pid)
	others := pidfds(t, c.pid) // Go's own
	for n := range 3 {
		w.say("LOCK a reentrant=yes id="+fmt.Sprint(n)+pid, counted(n+1))
	}
	w.say("LOCK a reentrant=yes id=1"+pid, counted(3)+` again=yes`)
	w.say("LOCK a"+pid, `ERR ALREADY .*`)
	w.say("UNLOCK a", `OK lock=a count=2`)
	w.say("UNLOCK a", `OK lock=a count=1`)
	w.say("UNLOCK a", `OK lock=a`)
	eventually(t, "the process is watched no more", func() bool { return pidfds(t, c.pid) == others })
}

// What others cannot have yet is listed until they can.
func TestHoldPIDEndsAndIsListed(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	w := d.dial()
	others := pidfds(t, c.pid) // Go's own
	w.say(fmt.Sprintf("LOCK a ttl=3s beat=100ms hold=pid pid=%d", c.pid), granted5)
	w.want(`LOST lock=a .* reason=beat : .*`)
	c.killed()
	eventually(t, "its end is noticed", func() bool { return pidfds(t, c.pid) == others })
	w.send("LIST")
	w.want(`- lock=a state=lost .*`)
	w.want(`OK n=1`)
	w.say("LOCK a", granted5)
	w.say("UNLOCK a", `OK lock=a`)
	w.until("LIST", `^OK n=0`)
}

// All that wait for a process that ends are told so, also those that would have counted on
// the first, or repeat it.
func TestHoldPIDEndsWhileManyWait(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	holder, look, w := d.dial(), d.dial(), d.dial()
	holder.say("LOCK a", granted5)
	w.waits(look, fmt.Sprintf("@1 LOCK a id=x reentrant=yes hold=pid pid=%d", c.pid), 1)
	w.send("@2 LOCK a reentrant=yes hold=pid pid=%d", c.pid)
	w.send("@3 LOCK a id=x hold=pid pid=%d", c.pid)
	w.say("@4 TRY a hold=pid pid=1", `@4 ERR DENIED .*`) // the others are begun
	c.killed()
	for range 3 {
		w.want(fmt.Sprintf(`@[123] ERR CANCELLED lock=a : process %d, which was to hold it, has ended`, c.pid))
	}
}

// TestHoldPIDWaitsOn: who waits with the LOCK of another connection of its process goes
// on when that connection ends.
func TestHoldPIDWaitsOn(t *testing.T) {
	d := startDaemon(t, 3, nil)
	c := newChild(t, os.Getuid())
	holder, a, b := d.dial(), d.dial(), d.dial()
	mine := fmt.Sprintf(" hold=pid pid=%d", c.pid)
	holder.say("LOCK a", granted5)
	a.waits(holder, "LOCK a reentrant=yes"+mine, 1)
	b.send("@1 LOCK a reentrant=yes" + mine)
	b.say("@2 TRY a reentrant=yes"+mine, `@2 ERR HELD .*`) // the other is begun
	a.conn.Close()
	holder.until("STATUS", `waiters=1\b.*connections=2\b`)
	holder.say("UNLOCK a", `OK lock=a`)
	b.want(`@1 ` + counted(1))
	b.say(fmt.Sprintf("UNLOCK a pid=%d", c.pid), `OK lock=a`)
}
