package session

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/state"
)

// If the daemon cannot tell whether the holder's process is alive, it does not release the lease
// with the connection. The lease stays until its deadline.
func TestLeaseOfAnUnknownProcessStays(t *testing.T) {
	s := newSuccession(t)
	c, w, look := newChild(t, os.Getuid()), s.dial(), s.dial()
	lease := w.Say(fmt.Sprintf("LOCK a ttl=20s hold=pid pid=%d", c.pid), granted5)[0]
	s.end()
	s.startWithoutFiles(w, look)
	w.Want(`BACK .*`)
	look.Want(`BACK .*`)
	look.Say("CHECK a lease="+lease, granted5)
	w.Conn.Close()
	look.Until("STATUS", `connections=1\b`)
	look.Say("TRY a", `ERR HELD .*`)
}

// A lease is not extended if the daemon cannot tell whether its process is alive. The test is not
// parallel, because for a moment no test of this process can open a file.
func TestLeaseOfAnUnknownProcessEnds(t *testing.T) {
	s := newSuccession(t)
	c, w := newChild(t, os.Getuid()), s.dial()
	w.Say(fmt.Sprintf("LOCK a ttl=2s hold=pid pid=%d", c.pid), granted5)
	s.end()
	s.startWithoutFiles(w)
	w.Want(`BACK .*`)
	w.Want(`LOST lock=a .*`)
}

// The holder's process ended while no daemon ran, and another process got its pid. That process
// does not hold the lease: it was started at another time, or after the lease was taken.
func TestLeaseOfProcessWithSamePID(t *testing.T) {
	s := newSuccession(t)
	c, w := newChild(t, os.Getuid()), s.dial()
	for _, name := range []string{"same", "other", "later", "unknown", "thread"} {
		w.Say(fmt.Sprintf("LOCK %s ttl=20s hold=pid pid=%d", name, c.pid), granted5)
	}
	s.end()
	s.found = func(p *state.Recovered) {
		then := recordOf(t, p, "same").Holder.ProcessStarted
		if then == 0 {
			t.Error("the start of the process is not recorded")
		}
		recordOf(t, p, "other").Holder.ProcessStarted -= 10 * time.Millisecond
		recordOf(t, p, "later").Holder.ProcessStarted, recordOf(t, p, "later").Record.Since = 0, then-1
		recordOf(t, p, "unknown").Holder.ProcessStarted = 0
		recordOf(t, p, "thread").Holder.PID = otherThread(t)
	}
	s.start(w)
	w.Want(`BACK .*`)
	look := s.dial()
	look.Say("LOCK other,later,thread wait=5s", granted5)
	look.Say("TRY same", `ERR HELD .*`)
	look.Say("TRY unknown", `ERR HELD .*`)
}

// otherThread returns the number of a thread of this process other than its main thread.
func otherThread(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		if tid, err := strconv.Atoi(entry.Name()); err == nil && tid != os.Getpid() {
			return tid
		}
	}
	t.Fatal("this process has no other thread")
	return 0
}

// After a restart, the connection that took a process's lease still knows it. A LOCK there is
// refused, because it would wait for itself. LOST reaches the connection, and the next daemon
// remembers the loss.
func TestLossOfAProcessAfterARestart(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSuccession(t)
	c, w, admin := newChild(t, os.Getuid()), s.dial(), s.dial()
	lease := w.Say(fmt.Sprintf("LOCK a ttl=20s hold=pid pid=%d", c.pid), granted5)[0]
	s.end()
	s.start(w, admin)
	w.Want(`BACK .*`)
	admin.Want(`BACK .*`)
	w.Say("LOCK a", `ERR ALREADY lock=a .*another hold=.*`)
	admin.Say("FORCE a", `OK .*`)
	w.Want(`LOST lock=a lease=\S+ reason=forced : .*`)
	s.end()
	s.start(w, admin)
	w.Want(`BACK .*`)
	w.Say(fmt.Sprintf("CHECK a pid=%d", c.pid), `ERR LOST .*`)
	if s.d.leaseByID(lease).lostAt.Load() == 0 {
		t.Error("the instant of the loss is not set, so the lease is never forgotten")
	}
	s.end()
	s.start() // the connection that took it is gone, but the process lives
	look := s.dial()
	look.Say(fmt.Sprintf("CHECK a pid=%d", c.pid), `ERR LOST .*`)
	s.end()
	c.end()
	s.start(look)
	if len(s.d.allLeases()) != 0 {
		t.Error("a lost lease is remembered although no client can ask about it")
	}
}
