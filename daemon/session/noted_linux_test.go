package session

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/daemon/state/statefile"
)

// noted ends the daemon, and is what the next one would read of it.
func (d *testDaemon) noted() *state.Recovered {
	d.t.Helper()
	if err := d.stop(); err != nil {
		d.t.Fatal(err)
	}
	p, err := d.readState(d.cfg.Socket.Path)
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

// notedNow is what the next one would read if this one was killed.
func (d *testDaemon) notedNow() (*state.Recovered, error) {
	d.t.Helper()
	files, err := filepath.Glob(statefile.PathFor(d.cfg.Socket.Path) + ".*")
	if err != nil {
		d.t.Fatal(err)
	}
	dir := d.t.TempDir()
	for _, file := range files {
		found, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(statefile.PathFor(filepath.Join(dir, "s"))+filepath.Ext(file), found, 0o600)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
	return d.readState(filepath.Join(dir, "s"))
}

// readState reads the state file beside a socket.
func (d *testDaemon) readState(socket string) (*state.Recovered, error) {
	var log logged
	journal := state.NewJournal(logging.New(&log, hclog.Info, logging.Text))
	recovered := journal.Open((&Host{Cfg: d.cfg}).journalOptions(socket))
	journal.Close()
	if !recovered.Complete {
		return nil, errors.New(log.String())
	}
	return recovered, nil
}

// leaseOf is the one lease of a lock that is noted; nil: there is none.
func leaseOf(t *testing.T, p *state.Recovered, name string) (only *state.Lease) {
	t.Helper()
	t.Helper()
	for _, l := range p.Leases {
		if slices.Contains(l.Record.Names, name) {
			if only != nil {
				t.Errorf("%s is noted twice: %+v and %+v", name, only, l)
			}
			only = l
		}
	}
	return only
}

// What a client was told is noted by then, and no request that was answered is noted as
// under way: the next daemon would answer it once more.
func TestAnsweredIsNoted(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	w, other := d.dial(), d.dial()
	w.say("LOCK held ttl=20s owner=o id=i note=n linger=3s beat=15s", granted5)
	w.say("LOCK gone ttl=20s", granted5)
	w.say("UNLOCK gone", `OK lock=gone`)
	for i, id := range []string{"first", "second", "third"} {
		w.say("LOCK counted ttl=20s reentrant=yes id="+id, counted(i+1))
	}
	w.say("UNLOCK counted", `OK lock=counted count=2`)
	moved := w.say("LOCK moved ttl=20s", granted5)[0]
	other.say("LOCK others ttl=20s", granted5)
	other.say("RESUME moved lease="+moved, granted5)
	w.say("LOCK extended ttl=10s", granted5)
	extended := w.say("EXTEND extended ttl=20s", granted5)
	w.say("LOCK again hold=ttl ttl=100ms", granted5)
	w.want(`LOST lock=again .*`)
	w.say("LOCK again ttl=20s", granted5)

	p := d.noted()
	if len(p.Requests) != 0 {
		t.Errorf("%d requests are noted as not answered", len(p.Requests))
	}
	if l := leaseOf(t, p, "held"); l == nil || l.Phase != state.PhaseHeld || l.Conn == 0 || l.Record.TTL != 20*time.Second || !l.Record.Keep ||
		l.Holder.Owner != "o" || l.Holder.ID != "i" || l.Holder.Note != "n" || l.Holder.Linger != 3*time.Second || l.Holder.Beat != 15*time.Second {
		t.Errorf("held: %+v", l)
	}
	if l := leaseOf(t, p, "gone"); l != nil {
		t.Errorf("gone: %+v", l)
	}
	if l := leaseOf(t, p, "counted"); l == nil || !slices.Equal(l.Reentrants, []string{"second"}) {
		t.Errorf("counted: %+v, want one that counts beside the first", l)
	}
	if l, its := leaseOf(t, p, "moved"), leaseOf(t, p, "others"); l == nil || its == nil || l.Conn != its.Conn || l.Conn == leaseOf(t, p, "held").Conn {
		t.Errorf("moved: %+v, want it on the connection of %+v", l, its)
	}
	if l := leaseOf(t, p, "extended"); l == nil || l.Record.TTL != 20*time.Second || l.Record.Deadline.Truncate(time.Millisecond) != duration(t, extended[2]) {
		t.Errorf("extended: %+v, want the deadline %s", l, extended[2])
	}
	if l := leaseOf(t, p, "again"); l == nil || l.Phase != state.PhaseHeld {
		t.Errorf("again: %+v, want the new lease alone", l)
	}
}

// What too few nodes were told of is given back by the next daemon as well, be it by
// UNLOCK or for a client that is gone.
func TestReleaseWithoutQuorumStaysNoted(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, nil)
	w, gone := d.dial(), d.dial()
	w.say("LOCK unlocked ttl=20s", granted5)
	gone.say("LOCK left ttl=20s", granted5)
	for _, server := range d.nodes.Servers[:2] {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	w.say("UNLOCK unlocked", `OK lock=unlocked pending=1 : .*`)
	gone.conn.Close()
	w.until("STATUS", `leases=0\b`)
	p := d.noted()
	for _, name := range []string{"unlocked", "left"} {
		if l := leaseOf(t, p, name); l == nil || l.Phase != state.PhaseReleased {
			t.Errorf("%s: %+v, want that it is being given back", name, l)
		}
	}
	if len(p.Requests) != 0 {
		t.Errorf("%d requests are noted as not answered", len(p.Requests))
	}
}

// So is what a quorum was told of, and a node was not that may have it: with another one down
// nobody would get the lock until it has expired there. The UNLOCK is answered.
func TestReleaseThatANodeHasNotHeardStaysNoted(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, nil)
	w, gone := d.dial(), d.dial()
	w.say("LOCK unlocked ttl=20s", granted5)
	gone.say("LOCK left ttl=20s", granted5)
	eventually(t, "all nodes have both", func() bool { return len(d.keys()) == 6 })
	if err := d.nodes.Servers[2].Stop(); err != nil {
		t.Fatal(err)
	}
	w.say("UNLOCK unlocked", `OK lock=unlocked`)
	gone.conn.Close()
	w.until("STATUS", `leases=0\b`)
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	p, err := d.notedNow()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"unlocked", "left"} {
		if l := leaseOf(t, p, name); l == nil || l.Phase != state.PhaseReleased {
			t.Errorf("%s: %+v, want that it is being given back", name, l)
		}
	}
	if len(p.Requests) != 0 {
		t.Errorf("%d requests are noted as not answered", len(p.Requests))
	}
	if err := d.nodes.Servers[2].Cont(); err != nil {
		t.Fatal(err)
	}
	d.start() // the next daemon
	begun := time.Now()
	eventually(t, "no node has either", func() bool { return len(d.keys()) == 0 })
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("they were there for another %v: they have expired", took)
	}
}

// But not of any number: a node may answer each of them with an error.
func TestReleasesThatANodeOwesAreBounded(t *testing.T) {
	d, path := noting(t) // with five nodes
	const more = 10
	for number := uint64(1); number <= maxPendingReleases+more; number++ {
		d.Journal.Granted(&state.Lease{Number: number, Phase: state.PhaseReleased})
		d.releasedExcept(number, 2)
	}
	for number := uint64(maxPendingReleases + more + 1); number <= maxPendingReleases+2*more; number++ {
		d.Journal.Granted(&state.Lease{Number: number, Phase: state.PhaseReleased})
		d.releasedExcept(number, 3) // nobody gets such a lock
	}
	if n := len(d.noted(path).Leases); n != maxPendingReleases+more || d.pendingReleases.Load() != maxPendingReleases {
		t.Errorf("%d are noted, %d counted; want %d, and %d that nobody gets", n, d.pendingReleases.Load(), maxPendingReleases, more)
	}
}

// But not for longer than it can be there: the state file would grow with every UNLOCK in an outage.
func TestReleaseWithoutQuorumIsNotedUntilItHasExpired(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, func(c *config.Config) { c.Quorum.MaxTTL, c.Lease.TTL = 2*time.Second, 2*time.Second })
	w, gone := d.dial(), d.dial()
	w.say("LOCK unlocked", granted5)
	gone.say("LOCK left", granted5)
	for _, server := range d.nodes.Servers[:2] {
		server.Kill()
	}
	w.say("UNLOCK unlocked", `OK lock=unlocked pending=1 : .*`)
	gone.conn.Close()
	eventually(t, "neither is noted", func() bool {
		p, err := d.notedNow() // half a record may be there just now
		return err == nil && leaseOf(t, p, "unlocked") == nil && leaseOf(t, p, "left") == nil
	})
}

// What was lost is not given back by the next daemon, though its client said UNLOCK.
func TestUnlockOfALostLeaseIsNotNoted(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	w, admin := d.dial(), d.dial()
	w.say("LOCK a ttl=20s", granted5)
	admin.say("FORCE a", `OK lock=a n=1 .*`)
	w.want(`LOST lock=a .*`)
	w.say("UNLOCK a", `ERR LOST lock=a reason=forced : .*`)
	w.say("LOCK a ttl=20s", granted5) // which ends the memory of the other
	w.say("UNLOCK a", `OK lock=a`)
	eventually(t, "nothing is noted", func() bool { // when the last node has heard of it
		p, err := d.notedNow() // half a record may be there just now
		return err == nil && leaseOf(t, p, "a") == nil
	})
}

// If somebody removes the state file, the daemon soon begins another one, and nothing is lost.
func TestStateFileRemoved(t *testing.T) {
	t.Parallel() // it mostly waits
	var log logged
	d := startDaemon(t, 3, nil).anotherThatLogs(logging.New(&log, hclog.Info, logging.Text))
	w := d.dial()
	w.say("LOCK a", granted5)
	path := statefile.PathFor(d.cfg.Socket.Path)
	if err := os.Remove(path + ".1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is another state file", func() bool {
		_, err := os.Stat(path + ".2")
		return err == nil && strings.Contains(log.String(), "the state file is written again")
	})
	if got := log.String(); strings.Count(got, "[ERROR] the state file cannot be written: ") != 1 || !strings.Contains(got, "somebody removed files of it") {
		t.Errorf("want that the state file was removed, once:\n%s", got)
	}
	if leaseOf(t, d.noted(), "a") == nil {
		t.Error("what is held is not noted")
	}
}

// A token that may be on the nodes is noted before it can be there: the next daemon is to
// take back what an attempt has left that was under way. Guards ask.request: BeforeAttempt.
func TestAttemptIsNoted(t *testing.T) {
	s := newSuccession(t)
	down := s.nodesMayFail()
	s.end()
	s.start()
	w := s.dial()
	down.Store(true)
	w.send("LOCK a ttl=20s")
	eventually(t, "an attempt has failed", func() bool {
		waiting := s.d.Queue.Waiting()
		return len(waiting) == 1 && s.d.Queue.LastFailure(waiting[0]) != nil
	})
	s.end()
	s.found = func(p *state.Recovered) {
		if l := leaseOf(t, p, "a"); l == nil || l.Phase != state.PhaseAcquiring || l.Record.Token == "" {
			t.Errorf("noted is %+v, want the attempt", l)
		}
	}
	down.Store(false)
	s.start(w)
	w.want(`BACK .*`)
	w.want(granted5)
}

// What was given back for a client that is gone is noted no more: or the state file would become
// longer with each, and the next daemon give all of them back once more.
func TestGivenBackIsNotedNoMore(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	w, look := d.dial(), d.dial()
	w.say("LOCK gone ttl=20s", granted5)
	look.say("LOCK stays ttl=20s", granted5)
	w.conn.Close()
	eventually(t, "it is not noted any more", func() bool {
		p, err := d.notedNow() // half a record may be there just now
		return err == nil && leaseOf(t, p, "stays") != nil && leaseOf(t, p, "gone") == nil
	})
}

// The deadlines that leases of before have once they are confirmed are noted, also of those
// that were confirmed before they were known again: the daemon after that one would take them
// for lost too early.
func TestDeadlinesOfBeforeAreNoted(t *testing.T) {
	s := newSuccession(t)
	w := s.dial()
	for _, name := range []string{"a", "b", "c"} {
		w.say("LOCK "+name+" ttl=20s", granted5)
	}
	s.end()
	s.found = func(*state.Recovered) {
		time.AfterFunc(300*time.Millisecond, lockQueue(s.d.Queue)) // the first one is long in becoming known
	}
	s.start(w)
	deadlines := map[string]time.Duration{}
	for _, h := range s.d.Leases.all() {
		deadlines[h.lease.ID()] = h.lease.Deadline()
	}
	s.end()
	s.found = func(p *state.Recovered) {
		for _, l := range p.Leases {
			if want := deadlines[l.Record.ID()]; l.Record.Deadline != want {
				t.Errorf("%v: the deadline %v is noted, want %v", l.Record.Names, l.Record.Deadline, want)
			}
		}
	}
	s.start(w)
}
