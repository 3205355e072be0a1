package session

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/state"
)

// A client whose connection the daemon cut may still work. Its lease stays taken, even if the next
// daemon has neither the client nor its connection.
func TestLeaseOfACutConnectionStays(t *testing.T) {
	s := newSuccession(t)
	s.server.LineTimeout = time.Millisecond
	w, look := s.dial(), s.dial()
	w.Say("LOCK a ttl=20s", granted5)
	if _, err := w.Conn.Write([]byte("PI")); err != nil {
		t.Fatal(err)
	}
	w.Want(`ERR SYNTAX : a line was not ended .*`)
	w.Want(`BYE .*`)
	look.Until("STATUS", `connections=1\b`)
	s.end()
	s.start()
	s.dial().Say("LOCK a wait=300ms", `ERR HELD .*`)
}

// After a restart, all names of a lease still count for its user's limit.
func TestRestoredNamesCount(t *testing.T) {
	s := newSuccession(t)
	s.d.setLimits(config.Limits{LeasesPerUser: 4})
	w := s.dial()
	w.Say("LOCK a,b,c ttl=20s", granted(`a,b,c`))
	s.end()
	s.start(w)
	s.d.setLimits(config.Limits{LeasesPerUser: 4})
	w.Want(`BACK .*`)
	for range 2 {
		w.Say("TRY d,e", `ERR LIMIT lock=d,e : .*`)
		w.Say("TRY d", granted(`d`))
		w.Say("UNLOCK d", `OK lock=d`)
	}
	w.Say("UNLOCK a,b,c", `OK lock=a,b,c`)
	w.Say("TRY a,b,c,d", granted(`a,b,c,d`))
}

// If the state file has nothing about a stored connection, the daemon cannot know what its client
// was answered. It ends the connection, and removes it from the service manager.
func TestUnknownConnectionEnds(t *testing.T) {
	s := newSuccession(t)
	w, known := s.dial(), s.dial()
	s.end()
	s.ends[w].number = 999
	s.start(w, known)
	w.Want(`BYE resume=0 : .*`)
	w.Ends()
	known.Want(`BACK .*`)
	if first, second := s.ends[s.dial()].number, s.ends[s.dial()].number; first <= s.ends[known].number || second <= first {
		t.Errorf("new connections have the numbers %d and %d, want unused ones", first, second)
	}
}

// BYE of a connection that cannot continue states how long its own leases can be resumed: the
// shortest time of those that can be.
func TestByeStatesShortestResumeTime(t *testing.T) {
	s := newSuccession(t)
	w, other, bare := s.dial(), s.dial(), s.dial()
	other.Say("LOCK other ttl=2s", granted5)
	over := w.Say("LOCK over hold=ttl ttl=300ms", granted5)[0]
	w.Want(`LOST lock=over .*`) // shortly before its deadline
	other.Say("LOCK over wait=5s", granted5)
	other.Say("UNLOCK over", `OK .*`)
	for name, ttl := range map[string]string{"a": "20s", "b": "15s", "c": "18s", "forced": "5s"} {
		w.Say("LOCK "+name+" ttl="+ttl, granted5)
	}
	w.Send("FORCE forced")
	w.Want(`LOST lock=forced .*`)
	w.Want(`OK .*`)
	s.end()
	s.found = func(p *state.Recovered) {
		clear(p.Conns) // as if no connection was recorded
		for _, l := range p.Leases {
			if l.Record.ID() == over {
				l.Life.State, l.Record.Lost = locktable.Held, "" // as if its loss was not recorded
			}
		}
	}
	s.start(w, other, bare)
	left := duration(t, w.Want(`BYE resume=(\d+) : .*`)[0])
	if left <= 5*time.Second || left > 15*time.Second {
		t.Errorf("BYE says %v, want the rest of 15s", left)
	}
	bare.Want(`BYE resume=0 : .*`)
}

// After a restart, a lease is still lost if no BEAT comes.
func TestBeatIsNeededAfterRestart(t *testing.T) {
	s := newSuccession(t)
	w := s.dial()
	w.Say("LOCK a ttl=20s beat=20s", granted5)
	s.end()
	s.found = func(p *state.Recovered) { recordOf(t, p, "a").Holder.Beat = 100 * time.Millisecond } // no loss is due before
	s.start(w)
	w.Want(`BACK .*`)
	w.Want(`LOST lock=a lease=\S+ reason=beat : .*`)
}

// After a restart, the daemon still detects a deadlock with a restored lease, of a connection or of
// a process.
func TestDeadlockAfterARestart(t *testing.T) {
	for name, hold := range map[string]string{"a connection": "", "a process": " hold=pid"} {
		t.Run(name, func(t *testing.T) {
			s := newSuccession(t)
			w, other, look := s.dial(), s.dial(), s.dial()
			w.Say("LOCK a ttl=20s"+hold, granted5)
			other.Say("LOCK b ttl=20s", granted5)
			s.end()
			s.start(w, other, look)
			for _, w := range []*wire{w, other, look} {
				w.Want(`BACK .*`)
			}
			other.sendWaiting(look, "LOCK a", 1)
			w.Say("LOCK b"+hold, `ERR DEADLOCK lock=b .*`)
		})
	}
}

// A lease that no client resumes ends with its ttl, even with linger=. A lease that is resumed is
// extended as before.
func TestOnlyResumedLeaseIsExtended(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSuccession(t)
	w, _ := s.dialUnstored()
	w.Say("LOCK left ttl=2s linger=1s", granted5)
	lease := w.Say("LOCK back ttl=4s", granted5)[0]
	s.end()
	s.start()
	look, _ := s.dialUnstored()
	look.Say("RESUME back lease="+lease, granted5)
	look.Say("LOCK left wait=15s", granted5)
	look.Say("LOCK clock hold=ttl ttl=5s guard=1", granted5)
	look.Want(`LOST lock=clock .*`)
	look.Say("CHECK back", granted5)
	for _, want := range []string{"[WARN]  lease lost: lock=left reason=expired ", "[INFO]  lease over: its ttl ended (hold=ttl): lock=clock "} {
		s.log.Await(t, want)
	}
}

// If the quorum refuses a restored lease, its client gets one LOST, its process is no longer
// watched, and no record of it is left.
func TestRefusedLeaseIsForgotten(t *testing.T) {
	s := newSuccession(t)
	c, w := newChild(t, os.Getuid()), s.dial()
	w.Say(fmt.Sprintf("LOCK a ttl=20s hold=pid pid=%d", c.pid), granted5)
	s.end()
	s.found = func(p *state.Recovered) { recordOf(t, p, "a").Record.TTL = time.Hour } // more than max_ttl
	s.start(w)
	w.Want(`BACK .*`)
	w.Want(`LOST lock=a .*`)
	if len(s.d.Processes.byPID) != 0 {
		t.Error("the process is still watched")
	}
	s.end()
	s.found = func(p *state.Recovered) {
		if recordOf(t, p, "a") != nil {
			t.Error("the lease is still recorded")
		}
	}
	s.start(w)
	w.Want(`BACK .*`)
	w.Say("PING", `OK`)
}

// When a daemon has found that a client is gone, the state file keeps no record of its connection,
// its requests and its leases.
func TestGoneClientIsForgotten(t *testing.T) {
	s := newSuccession(t)
	w, gone := s.dial(), s.dial()
	w.Say("LOCK a ttl=20s", granted5)
	gone.Say("LOCK b ttl=20s", granted5)
	gone.sendWaiting(w, "LOCK a", 1)
	s.end()
	s.start(w)
	w.Want(`BACK .*`)
	w.Say("CHECK a", granted5)
	w.Say("LOCK b wait=5s", granted5)
	s.end()
	s.found = func(p *state.Recovered) {
		if len(p.Conns) != 1 || len(p.Requests) != 0 || len(p.Leases) != 2 {
			t.Errorf("%d connections, %d requests and %d leases are recorded, want 1, none and 2", len(p.Conns), len(p.Requests), len(p.Leases))
		}
	}
	s.start(w)
}

// If the service manager has emptied its store, a missing connection does not prove that its client
// is gone. If records are missing, an attempt may have been granted. Neither lease is released.
func TestNoReleaseInDoubt(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, doubt := range map[string]func(*succession) state.Inherited{
		"no mark": func(s *succession) state.Inherited { return state.Inherited{} },
		"a part of a held lease's records": func(s *succession) state.Inherited {
			s.partial = true
			return state.Inherited{Marked: true}
		},
		"a part of an attempt's records": func(s *succession) state.Inherited {
			s.partial, s.found = true, func(p *state.Recovered) { recordOf(t, p, "a").Life.State = locktable.Acquiring }
			return state.Inherited{Marked: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSuccession(t)
			s.dial().Say("LOCK a ttl=20s", granted5)
			s.end()
			s.startWith(doubt(s))
			s.dial().Say("LOCK a wait=200ms", `ERR HELD .*`)
		})
	}
}

// Leases that expired while no daemon ran are lost. Each client gets one LOST for each.
func TestLostWhileNoDaemonRan(t *testing.T) {
	const n = 30
	s := newSuccession(t)
	w := s.dial()
	for i := range n {
		w.Say(fmt.Sprintf("LOCK a%d ttl=20s", i), granted5)
	}
	s.end()
	s.found = func(p *state.Recovered) {
		for _, l := range p.Leases {
			l.Record.Deadline = 1
		}
	}
	s.start(w)
	w.Want(`BACK .*`)
	for range n {
		w.Want(`LOST lock=a\d+ .*`)
	}
	w.Say("CHECK a0", `ERR LOST .*`)
	s.log.AwaitThat(t, "each loss, and why", func(log string) bool { // the log follows LOST
		return strings.Count(log, "[WARN]  lease lost: ") == n && strings.Count(log, `or no redlockd ran"`) == n
	})
}

// wait= counts from the request, not from the restart.
func TestWaitContinuesAfterRestart(t *testing.T) {
	s := newSuccession(t)
	holder, w, longer := s.dial(), s.dial(), s.dial()
	holder.Say("LOCK a ttl=20s", granted5)
	w.sendWaiting(holder, "LOCK a wait=40s", 1) // longer than a test waits
	longer.sendWaiting(holder, "LOCK a wait=80s", 2)
	s.end()
	s.found = func(p *state.Recovered) {
		for _, r := range p.Requests {
			r.Since -= 40 * time.Second
		}
	}
	s.start(holder, w, longer)
	w.Want(`BACK .*`)
	w.Want(`ERR HELD .*`)
	holder.Want(`BACK .*`)
	holder.Say("UNLOCK a", `OK .*`)
	longer.Want(`BACK .*`)
	longer.Want(granted5)
}

// The record of a RESUME has all that the next daemon needs: the connection, and the owner.
func TestResumeIsRecorded(t *testing.T) {
	s := newSuccession(t)
	w, next := s.dial(), s.dial()
	lease := w.Say("LOCK a ttl=20s owner=me", granted5)[0]
	next.Say("RESUME a owner=me lease="+lease, granted5)
	w.Conn.Close()
	next.Until("STATUS", `connections=1\b`)
	s.end()
	s.start(next)
	next.Want(`BACK .*`)
	next.Say("UNLOCK a owner=me", `OK lock=a`)
}

// A RESUME is recorded even if no quorum confirms it for now. From then on the lease belongs to the
// new connection, where CHECK shows its deadline. The end of the previous connection does not end
// it.
func TestRefusedResumeIsRecorded(t *testing.T) {
	s := newSuccession(t)
	down := s.nodesMayFail()
	s.end()
	s.start()
	w, next := s.dial(), s.dial()
	lease := w.Say("LOCK a ttl=20s linger=1s", granted5)[0]
	w.Conn.Close()
	next.Until("STATUS", `connections=1\b`)
	down.Store(true)
	next.Say("RESUME a lease="+lease, `ERR NOQUORUM lock=a .*`)
	down.Store(false)
	next.Say("CHECK a", granted5+`.*`)
	s.end()
	s.start(next)
	next.Want(`BACK .*`)
	next.Say("CHECK a", granted5+`.*`)
}

// The daemon does not restart requests that revoke something. Since the FORCE, another client may
// have got the lock. Since the ADMIT, the node may have been quarantined again.
func TestForceIsNotRepeated(t *testing.T) {
	s := newSuccession(t)
	w, holder := s.dial(), s.dial()
	holder.Say("LOCK a ttl=20s", granted5)
	s.end()
	s.found = func(p *state.Recovered) {
		for _, line := range []string{"@1 FORCE a", "@2 ADMIT all"} {
			number := s.d.Journal.NextNumber()
			p.Requests[number] = &state.Request{Number: number, Conn: s.ends[w].number, Line: []byte(line)}
		}
	}
	s.start(w, holder)
	w.Want(`BACK .*`)
	w.Want(`@1 ERR UNKNOWN lock=a : .*WHO shows.*`)
	w.Want(`@2 ERR UNKNOWN : .*STATUS shows.*`)
	holder.Want(`BACK .*`)
	holder.Say("CHECK a", granted5)
}

// A daemon that stops does not release a lease that lingers: its client may be about to reconnect
// to the next daemon.
func TestStoppingDaemonReleasesNothing(t *testing.T) {
	s := newSuccession(t)
	lease := s.dial().Say("LOCK a ttl=20s", granted5)[0]
	h := s.d.leaseByID(lease)
	s.d.mu.Lock()
	s.d.table.Disconnect(h.Reporter())
	s.d.mu.Unlock()
	s.d.Stopping.Store(true)
	if s.d.releaseAbandoned(h, nil); h.lease.Err() != nil {
		t.Error(h.lease.Err())
	}
}

// Smaller limits after a restart do not end the wait of a request that was admitted before, even of
// a LOCK that counts on a lease.
func TestWaitIgnoresSmallerLimits(t *testing.T) {
	s := newSuccession(t)
	holder, w := s.dial(), s.dial()
	holder.Say("LOCK a ttl=20s", granted5)
	w.Send("@1 LOCK a reentrant=yes")
	w.Send("@2 LOCK a reentrant=yes")
	answers(w, "@9 PING", `@9 OK`) // the daemon has read both
	s.end()
	s.found = func(*state.Recovered) { s.d.setLimits(config.Limits{LeasesPerUser: 1, WaitersPerUser: 1}) }
	s.start(holder, w)
	holder.Want(`BACK .*`)
	w.Want(`BACK .*`)
	answers(holder, "UNLOCK a", `OK lock=a`)
	for range 2 {
		w.Want(`@[12] ` + counted(2))
	}
}

// A connection that waits for a lock is stored at once, in place of an idle one, even if a process
// is to hold the lock.
func TestWaitingConnIsStored(t *testing.T) {
	for name, options := range map[string]string{"connection": "", "process": " hold=pid pid=%d"} {
		t.Run(name, func(t *testing.T) {
			s := newSuccession(t)
			manager := connManager{capacity: 2, stored: make(chan string, 10)}
			s.d.Store = state.NewConnStore(state.ConnStoreOptions{Manager: manager, Journal: s.d.Journal, Log: s.d.Log, Clock: s.d.Clock, Marked: true, Failed: s.d.LogManagerError})
			holder, _ := s.dial(), s.dial()
			holder.Say("LOCK a ttl=20s", granted5)
			w, session := s.dialUnstored()
			done := make(chan struct{})
			var running sync.WaitGroup
			running.Go(func() { s.d.Store.Run(done) })
			defer running.Wait()
			defer close(done)
			s.log.Await(t, "keeps no more connections")
			if len(manager.stored) > 0 {
				t.Fatal("an idle connection is stored")
			}
			if options != "" {
				options = fmt.Sprintf(options, newChild(t, os.Getuid()).pid)
			}
			w.Send("@1 LOCK a%s", options)
			if got, want := <-manager.stored, state.ConnName(session.number); got != want {
				t.Errorf("%s is stored, want %s", got, want)
			}
			w.Until("STATUS", `waiters=1\b`)
			if !session.HoldsLeases() {
				t.Error("a waiting connection does not count as holding leases")
			}
			answers(w, "CANCEL 1", `@1 ERR .*`, `OK`)
			if session.HoldsLeases() {
				t.Error("the connection counts as holding leases after CANCEL")
			}
		})
	}
}
