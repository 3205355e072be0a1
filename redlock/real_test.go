package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// With two of five nodes down, everything continues, and no client waits for them.
func TestRealMinorityAway(t *testing.T) {
	t.Parallel() // most of the time it waits
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startServers(t, 5)
			for _, server := range s.all[:2] {
				way.begin(t, server)
			}
			l := s.acquire(redlock.Request{Name: "kept", TTL: extended, Keep: true})
			granted := l.Deadline()
			s.eventually("the lease is extended", func() bool { return l.Deadline() > granted })
			want(t, "Extend", l.Extend(t.Context(), realTTL), nil)
			s.release(l)
			s.fastPairs(200)
			for _, server := range s.all[:2] {
				way.end(t, server)
			}
			s.eventually("all nodes are used again", func() bool { return s.q.Status().Ready == 5 })
			s.wantNoKeys()
		})
	}
}

// fastPairs acquires and releases locks. None of them waits for a node that does not answer: on
// average they take a small part of the node timeout.
func (s *servers) fastPairs(n int) {
	s.Helper()
	start := time.Now()
	for range n {
		s.pair("x")
	}
	if took := time.Since(start); took > time.Duration(n)*realTimeout/10 {
		s.Errorf("%d pairs took %v, with a node timeout of %v: they waited for the nodes that do not answer", n, took, realTimeout)
	}
}

// wantLater checks that something happened only after a time. How much later it was depends on how busy the
// machine is: tests on fake time have bounds.
func wantLater(t testing.TB, what string, start time.Time, least time.Duration) {
	t.Helper()
	if took := time.Since(start); took < least {
		t.Errorf("%s: after %v, want %v at least", what, took, least)
	}
}

// Nodes that are down when the Quorum is made are used soon after their start.
func TestRealDownAtFirst(t *testing.T) {
	s := &servers{TB: t, all: startServers(t, 3).all}
	for _, server := range s.all {
		server.Kill()
	}
	s.q = s.connect()
	s.q.Settle(t.Context())
	_, err := s.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: realTTL})
	wantErr(t, "all nodes are down", err, redlock.ErrNoQuorum)
	want(t, "ready", s.q.Status().Ready, 0)
	for _, server := range s.all {
		must(t, server.Restart())
	}
	s.eventually("all are ready", func() bool { return s.q.Status().Ready == 3 })
	s.pair("x")
}

// A node that was killed and started again votes again soon.
func TestRealRestart(t *testing.T) {
	s := startServers(t, 3)
	for range 3 {
		s.all[0].Kill()
		s.pair("x")
		s.eventually("the host notices that the node died", func() bool { return s.q.Status().Ready == 2 })
		must(t, s.all[0].Restart())
		s.eventually("it is ready", func() bool { return s.q.Status().Ready == 3 })
		l := s.acquire(redlock.Request{Name: "x", TTL: realTTL})
		s.eventually("it votes", func() bool { token, err := s.all[0].Get("redlock:x"); return err == nil && token != "" })
		s.release(l)
	}
	s.wantNoKeys()
}

// Acquires that are cancelled at random instants leave no keys on the nodes.
func TestRealCancelledCallers(t *testing.T) {
	s := startServers(t, 5)
	cancelled := 0
	for range 500 {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(1500*time.Microsecond))
		l, err := s.q.Acquire(ctx, redlock.Request{Name: "x", TTL: realTTL, Wait: redlock.Forever})
		if err == nil {
			s.release(l)
		} else {
			wantErr(t, "cancelled", err, context.DeadlineExceeded)
			cancelled++
		}
		cancel()
	}
	t.Logf("%d of 500 were cancelled before the grant", cancelled)
	s.wantNoKeys()
}

// fewer returns how often something is repeated: with the race detector, which takes ten times
// the processor time, half as often.
func fewer(n int64) int64 {
	if raceEnabled {
		return n / 2
	}
	return n
}

// load has many callers that acquire and release a few locks.
type load struct {
	s       *servers
	holders [3]atomic.Int32 // by lock
	grants  atomic.Int64
	trouble func(nth int64) // called after each grant
}

// run ends after the given number of grants. With trouble, an attempt or a release may lack a quorum.
// A release must never find that the lock was lost.
func (l *load) run(callers int, grants int64, quorums ...*redlock.Quorum) {
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for l.grants.Load() < grants && !l.s.Failed() {
				l.once(quorums[i%len(quorums)], i%len(l.holders))
			}
		})
	}
	all.Wait()
}

func (l *load) once(q *redlock.Quorum, lock int) {
	lease, err := q.Acquire(l.s.Context(), redlock.Request{Name: name("x%d", lock), TTL: realTTL, Wait: patience})
	if err != nil {
		held := errors.Is(err, redlock.ErrHeld) // for patience, other callers were faster each time
		if !held && (l.trouble == nil || !errors.Is(err, redlock.ErrNoQuorum)) {
			l.s.Error(err)
		}
		return
	}
	if n := l.holders[lock].Add(1); n != 1 {
		l.s.Errorf("%d callers hold x%d at the same time", n, lock)
	}
	if nth := l.grants.Add(1); l.trouble != nil {
		l.trouble(nth)
	}
	_, _ = q.Who(l.s.Context(), lease.Name()) // it only takes time, and may fail because of the trouble
	l.holders[lock].Add(-1)
	if err := lease.Release(l.s.Context()); err != nil && (l.trouble == nil || !errors.Is(err, redlock.ErrNoQuorum)) {
		l.s.Error(err)
	}
}

// Many callers of two processes request one lock. There are never two holders.
func TestRealMutualExclusion(t *testing.T) {
	s := startServers(t, 5)
	var holders, grants atomic.Int32
	var all sync.WaitGroup
	quorums := []*redlock.Quorum{s.q, s.another()}
	stop := make(chan struct{})
	for i := range fewer(100) {
		all.Go(func() {
			for {
				l, err := quorums[i%2].Acquire(t.Context(), redlock.Request{Name: "x", TTL: realTTL, Wait: redlock.Forever, StopRetrying: stop})
				if err != nil {
					wantErr(t, "stopped", err, redlock.ErrHeld)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d callers hold it at the same time", n)
				}
				if grants.Add(1) == int32(fewer(150)) {
					close(stop)
				}
				if _, err := quorums[i%2].Who(t.Context(), "x"); err != nil { // a round trip, in which another caller could get the lock
					t.Error(err)
				}
				holders.Add(-1)
				s.release(l)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	all.Wait()
	s.wantNoKeys()
}

// While connections are killed repeatedly, no lock is granted twice and no key stays.
func TestRealClientKillUnderLoad(t *testing.T) {
	s := startServers(t, 5)
	var mu sync.Mutex // one at a time: they would kill each other's connection
	l := &load{s: s, trouble: func(nth int64) {
		if nth%20 == 0 {
			mu.Lock()
			defer mu.Unlock()
			s.do(rand.IntN(5), "CLIENT", "KILL", "TYPE", "normal")
		}
	}}
	l.run(12, fewer(600), s.q, s.another())
	s.wantNoKeys()
}

// A fleet of each size tolerates exactly the failures that leave a quorum.
func TestRealSizes(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 7} {
		t.Run(name("%d", n), func(t *testing.T) {
			s := startServers(t, n)
			other := s.another()
			spare := n - (n/2 + 1)
			for _, server := range s.all[:spare] {
				server.Kill()
			}
			l := s.acquire(redlock.Request{Name: "x", TTL: realTTL, Holder: redlock.Holder{Host: "web3", PID: 4121, User: "cron"}})
			_, err := other.Acquire(t.Context(), redlock.Request{Name: "x", TTL: realTTL})
			wantHeldBy(t, err, "web3")
			want(t, "Extend", l.Extend(t.Context(), 0), nil)
			s.release(l)
			s.wantNoKeysOn(spare)
			s.all[spare].Kill()
			_, err = s.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: realTTL})
			wantErr(t, "one more node killed", err, redlock.ErrNoQuorum)
			s.wantNoKeysOn(spare + 1)
		})
	}
}

// wantNoKeysOn is wantNoKeys for the servers from the given one on.
func (s *servers) wantNoKeysOn(first int) {
	s.Helper()
	(&servers{TB: s.TB, all: s.all[first:], q: s.q}).wantNoKeys()
}

func wantHeldBy(t *testing.T, err error, host string) {
	t.Helper()
	var held *redlock.HeldError
	if !errors.As(err, &held) {
		t.Errorf("got error %v, want held by %q", err, host)
		return
	}
	want(t, "holder", held.Holder.Host, host)
	wantWithin(t, "its ttl", held.TTL, realTTL/2, realTTL)
}

// If the lock's key has a value of another type, the error names the nodes.
func TestRealWrongType(t *testing.T) {
	s := startServers(t, 3)
	for i := range 3 {
		s.do(i, "LPUSH", "redlock:x", "v")
	}
	_, err := s.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: realTTL})
	wantErr(t, "the key is a list", err, redlock.ErrNoQuorum)
	var node *redlock.NodeError
	if !errors.As(err, &node) || node.Failure != redlock.FailedError || !regexp.MustCompile(`; `+node.Node+`(, \w)*: acquire: error: WRONGTYPE`).MatchString(err.Error()) {
		t.Errorf("got error %v, want WRONGTYPE and the names of the nodes", err)
	}
	s.pair("y")
}

// If another Redlock client's plain key holds the lock, requests are refused, and Who shows an
// unknown holder. redlock neither extends nor deletes that key.
func TestRealForeignClient(t *testing.T) {
	s := startServers(t, 5)
	for i := range 3 {
		s.do(i, "SET", "redlock:x", "2XxPvMeeLEpyEvi8Cn7bKQ==", "NX", "PX", fmt.Sprint(realTTL.Milliseconds()))
	}
	_, err := s.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: realTTL})
	wantHeldBy(t, err, "")
	all, err := s.q.Who(t.Context(), "x")
	want(t, "error of Who", err, nil)
	if len(all) != 1 || all[0].Holder.Known() || all[0].Held != 3 || all[0].Nodes != 5 {
		t.Errorf("Who: got %+v, want one unknown holder on 3 of 5 nodes", all)
	}
	for i := range 3 {
		s.do(i, "DEL", "redlock:x")
	}
	s.pair("x")
	s.wantNoKeys()
}

// A lease excludes other Redlock clients: their SET NX finds a key on every node.
func TestRealForeignClientIsExcluded(t *testing.T) {
	s := startServers(t, 3)
	l := s.acquire(redlock.Request{Name: "x", TTL: realTTL})
	for _, server := range s.all {
		s.eventually("the key is on "+server.Name(), func() bool { token, err := server.Get("redlock:x"); return err == nil && token != "" })
		if reply, err := server.Do("SET", "redlock:x", "foreign", "NX", "PX", "30000"); err != nil || !reply.Nil {
			t.Errorf("SET NX of another client: got %+v, error %v, want nil, because a lease holds the lock", reply, err)
		}
	}
	s.release(l)
	s.wantNoKeys()
}
