package redlock_test

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

const (
	// realTimeout is the node timeout in these tests. It is far above a round trip on a busy
	// machine, so only nodes that are really down or hang fail. On a machine with eight times more
	// work than processors, a node has been silent for 2.6 s.
	realTimeout = 10 * time.Second
	// shortTimeout is for a test that waits for node timeouts, and in which a late answer of a good
	// node does no harm.
	shortTimeout = 400 * ms
	// patience bounds each wait for an event. No test waits that long unless something is broken.
	// It is below the ttl of each lock that a test checks afterwards, so that none expires by
	// itself.
	patience = time.Minute
	realTTL  = 5 * time.Minute
)

// servers has redis-servers and a Quorum of them.
type servers struct {
	testing.TB
	all []*redlocktest.Server
	q   *redlock.Quorum
}

// startServers starts n servers and waits until all are ready.
func startServers(tb testing.TB, n int) *servers {
	tb.Helper()
	cluster := redlocktest.StartRedis(tb, n)
	s := &servers{TB: tb, all: cluster.Servers}
	s.q = s.another()
	return s
}

// another returns a second Quorum with the same servers, as in another process.
func (s *servers) another() *redlock.Quorum {
	s.Helper()
	q := s.connect()
	s.eventually("all nodes are ready", func() bool { return q.Status().Ready == len(s.all) })
	return q
}

// connect returns a Quorum and does not wait for the nodes.
func (s *servers) connect() *redlock.Quorum {
	s.Helper()
	o := redlock.Options{Prefix: "redlock:", NodeTimeout: realTimeout, MaxTTL: realTTL, NoQuarantine: true}
	for _, server := range s.all {
		o.Nodes = append(o.Nodes, server.Node())
	}
	q, err := redlock.New(o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(q.Close)
	return q
}

// eventually polls for an event.
func (s *servers) eventually(what string, happened func() bool) {
	s.Helper()
	poll := time.NewTicker(2 * ms)
	defer poll.Stop()
	for giveUp := time.Now().Add(patience); !happened(); <-poll.C {
		if time.Now().After(giveUp) {
			s.Fatalf("%s: not within %v; nodes: %+v", what, patience, s.q.Status().Nodes)
		}
	}
}

func (s *servers) acquire(r redlock.Request) *redlock.Lease {
	s.Helper()
	l, err := s.q.Acquire(s.Context(), r)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

func (s *servers) release(l *redlock.Lease) {
	s.Helper()
	if err := l.Release(s.Context()); err != nil {
		s.Error(err)
	}
}

func (s *servers) pair(name string) {
	s.Helper()
	s.release(s.acquire(redlock.Request{Name: name, TTL: realTTL, Wait: patience}))
}

// do sends a command to one server, which must not refuse it.
func (s *servers) do(i int, args ...string) {
	s.Helper()
	if reply, err := s.all[i].Do(args...); err != nil || reply.Err != nil {
		s.Errorf("%v: %v %v", args, err, reply.Err)
	}
}

// wantNoKeys waits until no node has a lock any more.
func (s *servers) wantNoKeys() {
	s.Helper()
	for _, server := range s.all {
		s.wantNoKeysAt(server)
	}
}

func (s *servers) wantNoKeysAt(server *redlocktest.Server) {
	s.Helper()
	var keys []string
	var err error
	defer func() {
		if len(keys) > 0 || err != nil {
			s.Logf("left on %s: %q (%v)", server.Name(), keys, err)
		}
		for _, key := range keys {
			value, _ := server.Do("GET", key)
			left, _ := server.Do("PTTL", key)
			s.Logf("%q is %q for %d ms", key, value.Str, left.Int)
		}
	}()
	s.eventually("no keys are left on "+server.Name(), func() bool {
		keys, err = server.Keys("redlock:*")
		return err == nil && len(keys) == 0
	})
}

// away is a way to make a node fail and work again.
type away struct {
	name  string
	begin func(testing.TB, *redlocktest.Server)
	end   func(testing.TB, *redlocktest.Server)
}

var ways = []away{
	{
		"killed",
		func(_ testing.TB, s *redlocktest.Server) { s.Kill() },
		func(tb testing.TB, s *redlocktest.Server) { must(tb, s.Restart()) },
	},
	{
		"stopped",
		func(tb testing.TB, s *redlocktest.Server) { must(tb, s.Stop()) },
		func(tb testing.TB, s *redlocktest.Server) { must(tb, s.Cont()) },
	},
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
