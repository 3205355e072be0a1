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
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/daemon/state/statefile"
)

// recorded stops the daemon and returns the state that the next daemon would read.
func (d *testDaemon) recorded() *state.Recovered {
	d.T.Helper()
	if err := d.Stop(); err != nil {
		d.T.Fatal(err)
	}
	p, err := d.readState(d.Cfg.Socket.Path)
	if err != nil {
		d.T.Fatal(err)
	}
	return p
}

// recordedNow returns the state that the next daemon would read if this daemon was killed now.
func (d *testDaemon) recordedNow() (*state.Recovered, error) {
	d.T.Helper()
	files, err := filepath.Glob(statefile.PathFor(d.Cfg.Socket.Path) + ".*")
	if err != nil {
		d.T.Fatal(err)
	}
	dir := d.T.TempDir()
	for _, file := range files {
		found, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(statefile.PathFor(filepath.Join(dir, "s"))+filepath.Ext(file), found, 0o600)
		}
		if err != nil {
			d.T.Fatal(err)
		}
	}
	return d.readState(filepath.Join(dir, "s"))
}

// readState reads the state file beside a socket.
func (d *testDaemon) readState(socket string) (*state.Recovered, error) {
	var log daemontest.Log
	journal := state.NewJournal(logging.New(&log, hclog.Info, logging.Text))
	recovered := journal.Open((&Host{Cfg: d.Cfg}).journalOptions(socket))
	journal.Close()
	if !recovered.Complete {
		return nil, errors.New(log.String())
	}
	return recovered, nil
}

// recordOf returns the only lease of a lock in the state file, or nil if there is none.
func recordOf(t *testing.T, p *state.Recovered, name string) (only *state.Lease) {
	t.Helper()
	t.Helper()
	for _, l := range p.Leases {
		if slices.Contains(l.Record.Names, name) {
			if only != nil {
				t.Errorf("%s is recorded twice: %+v and %+v", name, only, l)
			}
			only = l
		}
	}
	return only
}

// When a client has its reply, the state file has the change. No answered request is recorded as
// pending: the next daemon would answer it a second time.
func TestAnsweredChangesAreRecorded(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w, other := d.dial(), d.dial()
	w.Say("LOCK held ttl=20s owner=o id=i note=n linger=3s beat=15s", granted5)
	w.Say("LOCK gone ttl=20s", granted5)
	w.Say("UNLOCK gone", `OK lock=gone`)
	for i, id := range []string{"first", "second", "third"} {
		w.Say("LOCK counted ttl=20s reentrant=yes id="+id, counted(i+1))
	}
	w.Say("UNLOCK counted", `OK lock=counted count=2`)
	moved := w.Say("LOCK moved ttl=20s", granted5)[0]
	other.Say("LOCK others ttl=20s", granted5)
	other.Say("RESUME moved lease="+moved, granted5)
	w.Say("LOCK extended ttl=10s", granted5)
	extended := w.Say("EXTEND extended ttl=20s", granted5)
	w.Say("LOCK again hold=ttl ttl=100ms", granted5)
	w.Want(`LOST lock=again .*`)
	w.Say("LOCK again ttl=20s", granted5)

	p := d.recorded()
	if len(p.Requests) != 0 {
		t.Errorf("%d requests are recorded as unanswered", len(p.Requests))
	}
	if l := recordOf(t, p, "held"); l == nil || l.Life.State != locktable.Held || l.Conn == 0 || l.Record.TTL != 20*time.Second || !l.Record.Keep ||
		l.Holder.Owner != "o" || l.Holder.ID != "i" || l.Holder.Note != "n" || l.Holder.Linger != 3*time.Second || l.Holder.Beat != 15*time.Second {
		t.Errorf("held: %+v", l)
	}
	if l := recordOf(t, p, "gone"); l != nil {
		t.Errorf("gone: %+v", l)
	}
	if l := recordOf(t, p, "counted"); l == nil || !slices.Equal(l.Reentrants, []string{"second"}) {
		t.Errorf("counted: %+v, want one more id beside the first", l)
	}
	if l, its := recordOf(t, p, "moved"), recordOf(t, p, "others"); l == nil || its == nil || l.Conn != its.Conn || l.Conn == recordOf(t, p, "held").Conn {
		t.Errorf("moved: %+v, want it on the connection of %+v", l, its)
	}
	if l := recordOf(t, p, "extended"); l == nil || l.Record.TTL != 20*time.Second || l.Record.Deadline.Truncate(time.Millisecond) != duration(t, extended[2]) {
		t.Errorf("extended: %+v, want the deadline %s", l, extended[2])
	}
	if l := recordOf(t, p, "again"); l == nil || l.Life.State != locktable.Held {
		t.Errorf("again: %+v, want only the new lease", l)
	}
}

// If too few nodes confirmed a release, the next daemon releases the lock as well. The release
// comes from UNLOCK or from the end of a client.
func TestReleaseWithoutQuorumStaysRecorded(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, nil)
	w, gone := d.dial(), d.dial()
	w.Say("LOCK unlocked ttl=20s", granted5)
	gone.Say("LOCK left ttl=20s", granted5)
	for _, server := range d.Nodes.Servers[:2] {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	w.Say("UNLOCK unlocked", `OK lock=unlocked pending=1 : .*`)
	gone.Conn.Close()
	w.Until("STATUS", `leases=0\b`)
	p := d.recorded()
	for _, name := range []string{"unlocked", "left"} {
		if l := recordOf(t, p, name); l == nil || l.Life.State != locktable.Releasing {
			t.Errorf("%s: %+v, want the record of a release", name, l)
		}
	}
	if len(p.Requests) != 0 {
		t.Errorf("%d requests are recorded as unanswered", len(p.Requests))
	}
}

// The record of a release stays while a node that may have the lock has not confirmed it, even if a
// quorum has. If another node fails then, no client can take the lock until it expires there. The
// UNLOCK is answered.
func TestUnconfirmedReleaseStaysRecorded(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, func(c *config.Config) { c.Quorum.MaxTTL = 3 * daemontest.Patience })
	w, gone := d.dial(), d.dial()
	w.Say("LOCK unlocked ttl=5m", granted5)
	gone.Say("LOCK left ttl=5m", granted5)
	daemontest.Eventually(t, "all nodes have both locks", func() bool { return len(d.Keys()) == 6 })
	if err := d.Nodes.Servers[2].Stop(); err != nil {
		t.Fatal(err)
	}
	w.Say("UNLOCK unlocked", `OK lock=unlocked`)
	gone.Conn.Close()
	w.Until("STATUS", `leases=0\b`)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	p, err := d.recordedNow()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"unlocked", "left"} {
		if l := recordOf(t, p, name); l == nil || l.Life.State != locktable.Releasing {
			t.Errorf("%s: %+v, want the record of a release", name, l)
		}
	}
	if len(p.Requests) != 0 {
		t.Errorf("%d requests are recorded as unanswered", len(p.Requests))
	}
	if err := d.Nodes.Servers[2].Cont(); err != nil {
		t.Fatal(err)
	}
	d.Start() // the next daemon
	daemontest.Eventually(t, "no node has either lock, before they would expire", func() bool { return len(d.Keys()) == 0 })
}

// The number of these records is bounded: a node may answer each release with an error.
func TestUnconfirmedReleasesAreBounded(t *testing.T) {
	d, path := journalHost(t) // with five nodes
	const more = 10
	for number := uint64(1); number <= maxPendingReleases+more; number++ {
		d.Journal.Lease(&state.Lease{Number: number, Life: locktable.Life{State: locktable.Releasing}}, number)
		d.releasedExcept(number, 2)
	}
	for number := uint64(maxPendingReleases + more + 1); number <= maxPendingReleases+2*more; number++ {
		d.Journal.Lease(&state.Lease{Number: number, Life: locktable.Life{State: locktable.Releasing}}, number)
		d.releasedExcept(number, 3) // no client can take such a lock
	}
	if n := len(d.recorded(path).Leases); n != maxPendingReleases+more || d.pendingReleases.Load() != maxPendingReleases {
		t.Errorf("%d releases are recorded, %d counted; want %d counted, and %d more without a quorum", n, d.pendingReleases.Load(), maxPendingReleases, more)
	}
}

// These records are deleted when the lock has expired. Otherwise the state file would grow with
// every UNLOCK in an outage.
func TestReleaseWithoutQuorumIsRecordedUntilExpiry(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, func(c *config.Config) { c.Quorum.MaxTTL, c.Lease.TTL = 2*time.Second, 2*time.Second })
	w, gone := d.dial(), d.dial()
	w.Say("LOCK unlocked", granted5)
	gone.Say("LOCK left", granted5)
	for _, server := range d.Nodes.Servers[:2] {
		server.Kill()
	}
	w.Say("UNLOCK unlocked", `OK lock=unlocked pending=1 : .*`)
	gone.Conn.Close()
	daemontest.Eventually(t, "neither is recorded", func() bool {
		p, err := d.recordedNow() // the daemon may be in the middle of writing a record
		return err == nil && recordOf(t, p, "unlocked") == nil && recordOf(t, p, "left") == nil
	})
}

// The next daemon does not release a lease that was lost, although its client sent UNLOCK.
func TestUnlockOfLostLeaseIsNotRecorded(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w, admin := d.dial(), d.dial()
	w.Say("LOCK a ttl=20s", granted5)
	admin.Say("FORCE a", `OK lock=a n=1 .*`)
	w.Want(`LOST lock=a .*`)
	w.Say("UNLOCK a", `ERR LOST lock=a reason=forced : .*`)
	w.Say("LOCK a ttl=20s", granted5) // the daemon forgets the lost lease
	w.Say("UNLOCK a", `OK lock=a`)
	daemontest.Eventually(t, "nothing is recorded", func() bool { // when the last node has released it
		p, err := d.recordedNow() // the daemon may be in the middle of writing a record
		return err == nil && recordOf(t, p, "a") == nil
	})
}

// If a user removes the state file, the daemon soon writes another one, and no record is lost.
func TestStateFileRemoved(t *testing.T) {
	t.Parallel() // it mostly waits
	var log daemontest.Log
	d := startDaemon(t, 3, nil).anotherWithLog(logging.New(&log, hclog.Info, logging.Text))
	w := d.dial()
	w.Say("LOCK a", granted5)
	path := statefile.PathFor(d.Cfg.Socket.Path)
	if err := os.Remove(path + ".1"); err != nil {
		t.Fatal(err)
	}
	log.Await(t, "the state file is written again")
	if _, err := os.Stat(path + ".2"); err != nil {
		t.Errorf("there is no other state file: %v", err)
	}
	if got := log.String(); strings.Count(got, "[ERROR] the state file cannot be written: ") != 1 || !strings.Contains(got, "somebody removed files of it") {
		t.Errorf("want one error about the removed state file:\n%s", got)
	}
	if recordOf(t, d.recorded(), "a") == nil {
		t.Error("the held lease is not recorded")
	}
}

// A token is in the state file before it can be on a node, so that the next daemon releases an
// unfinished attempt. This guards Request.BeforeAttempt.
func TestAttemptIsRecorded(t *testing.T) {
	s := newSuccession(t)
	down := s.nodesMayFail()
	s.end()
	s.start()
	w := s.dial()
	down.Store(true)
	w.Send("LOCK a ttl=20s")
	daemontest.Eventually(t, "an attempt has failed", func() bool {
		s.d.queueMu.Lock()
		defer s.d.queueMu.Unlock()
		waiting := s.d.queue.Waiting()
		return len(waiting) == 1 && s.d.queue.LastFailure(waiting[0]) != nil
	})
	s.end()
	s.found = func(p *state.Recovered) {
		if l := recordOf(t, p, "a"); l == nil || l.Life.State != locktable.Acquiring || l.Record.Token == "" {
			t.Errorf("recorded is %+v, want the attempt", l)
		}
	}
	down.Store(false)
	s.start(w)
	w.Want(`BACK .*`)
	w.Want(granted5)
}

// The record of a lease that was released because its client is gone is removed. Otherwise the
// state file would grow with each of them, and the next daemon would release all of them again.
func TestRecordOfReleasedLeaseIsDeleted(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w, look := d.dial(), d.dial()
	w.Say("LOCK gone ttl=20s", granted5)
	look.Say("LOCK stays ttl=20s", granted5)
	w.Conn.Close()
	daemontest.Eventually(t, "the lease is no longer recorded", func() bool {
		p, err := d.recordedNow() // the daemon may be in the middle of writing a record
		return err == nil && recordOf(t, p, "stays") != nil && recordOf(t, p, "gone") == nil
	})
}

// After a restart, the daemon records the new deadline of each lease that it confirms, even before
// it has restored the lease. Otherwise the daemon after that one would consider the lease lost too
// early.
func TestRestoredDeadlinesAreRecorded(t *testing.T) {
	s := newSuccession(t)
	w := s.dial()
	for _, name := range []string{"a", "b", "c"} {
		w.Say("LOCK "+name+" ttl=20s", granted5)
	}
	s.end()
	s.found = func(*state.Recovered) {
		time.AfterFunc(300*time.Millisecond, holdQueue(s.d)) // restoring the first lease takes long
	}
	s.start(w)
	deadlines := map[string]time.Duration{}
	for _, h := range s.d.allLeases() {
		deadlines[h.lease.ID()] = h.lease.Deadline()
	}
	s.end()
	s.found = func(p *state.Recovered) {
		for _, l := range p.Leases {
			if want := deadlines[l.Record.ID()]; l.Record.Deadline != want {
				t.Errorf("%v: the deadline %v is recorded, want %v", l.Record.Names, l.Record.Deadline, want)
			}
		}
	}
	s.start(w)
}
