package redlock_test

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// restart ends the process that has s.q, and starts another.
func (s *servers) restart() {
	s.Helper()
	s.q.Close()
	s.q = s.another()
}

// adopt adopts leases and waits until they are confirmed.
func (s *servers) adopt(records ...redlock.Record) []*redlock.Lease {
	s.Helper()
	a := s.q.Adopt(records, nil)
	for _, err := range a.Errs {
		want(s, "error of a record", err, nil)
	}
	want(s, "Wait", a.Wait(s.Context()), nil)
	for _, l := range a.Leases {
		want(s, "the lease of "+l.Name(), l.Err(), nil)
	}
	return a.Leases
}

// Leases of each kind continue in another process. It extends them, hands them over and releases
// them.
func TestRealAdopt(t *testing.T) {
	for what, r := range allKinds {
		t.Run(what, func(t *testing.T) {
			s := startServers(t, 5)
			r.TTL = realTTL
			l := s.acquire(r)
			record := l.Record()
			s.restart()
			next := s.adopt(record)[0]
			want(t, "token", next.Record().Token, record.Token)
			want(t, "fencing token", next.Fence(), record.Fence)
			want(t, "the deadline is later", next.Deadline() > record.Deadline, true)
			_, err := s.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: realTTL})
			wantErr(t, "another client's attempt", err, redlock.ErrHeld)
			if !next.Shared() && next.Slots() == 0 {
				next = s.handOver(next, r)
			}
			want(t, "Extend", next.Extend(t.Context(), 0), nil)
			s.release(next)
			s.wantNoKeys()
		})
	}
}

// handOver hands l over to the next client, whose fencing token is larger.
func (s *servers) handOver(l *redlock.Lease, r redlock.Request) *redlock.Lease {
	s.Helper()
	_, begun, err := l.HandOver(r)
	want(s, "HandOver", err, nil)
	r.Pending = begun
	next := s.acquire(r)
	want(s, "a larger fencing token", next.Fence() > l.Fence(), true)
	return next
}

// If a quorum fails during the restart, the adopted lease is lost before its deadline. When the
// nodes work again, the lock is free.
func TestRealAdoptedIsLost(t *testing.T) {
	t.Parallel() // most of the time it waits
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startServers(t, 5)
			record := s.acquire(redlock.Request{Name: "x", TTL: 12 * time.Second, Guard: 6 * time.Second, Keep: true}).Record()
			s.q.Close()
			for _, server := range s.all[:3] {
				way.begin(t, server)
			}
			s.q = s.connect()
			l := s.q.Adopt([]redlock.Record{record}, nil).Leases[0]
			<-l.Lost()
			if l.Deadline() != record.Deadline || redlock.BootTime() >= record.Deadline {
				t.Errorf("lost %v after its deadline, which moved by %v", redlock.BootTime()-record.Deadline, l.Deadline()-record.Deadline)
			}
			want(t, "reason", l.Reason(), redlock.LostQuorum)
			for _, server := range s.all[:3] {
				way.end(t, server)
			}
			s.wantNoKeys()
		})
	}
}

// If an attempt was granted but no client learned of it, its record is enough to release the
// lock.
func TestRealAbandon(t *testing.T) {
	for what, r := range allKinds {
		t.Run(what, func(t *testing.T) {
			s, recorded := startServers(t, 5), &records{}
			r.TTL, r.BeforeAttempt = realTTL, recorded.add
			s.acquire(r)
			s.restart()
			want(t, "Abandon", s.q.Abandon(recorded.last()), nil)
			s.wantNoKeys()
			s.pair("x")
		})
	}
}

// A thousand leases continue in another process.
func TestRealAdoptMany(t *testing.T) {
	s := startServers(t, 5)
	var records []redlock.Record
	for i := range 1000 {
		records = append(records, s.acquire(redlock.Request{Name: name("x%d", i), TTL: realTTL, Keep: true}).Record())
	}
	s.restart()
	for i, l := range s.adopt(records...) {
		want(t, "fencing token", l.Fence(), records[i].Fence)
		want(t, "the deadline is later", l.Deadline() > records[i].Deadline, true)
	}
}
