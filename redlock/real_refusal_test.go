package redlock_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A node that answers and keeps time, but refuses all writes, is no use for locks. Until it
// accepts writes again, its status shows that and nothing else, even if no client requests a
// lock.
func TestRealDenial(t *testing.T) {
	t.Parallel() // most of the time it waits
	for name, c := range map[string]struct {
		deny, allow []string
		says        string
	}{
		"no memory":   {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}, "maxmemory"},
		"no replicas": {[]string{"CONFIG", "SET", "min-replicas-to-write", "1"}, []string{"CONFIG", "SET", "min-replicas-to-write", "0"}, "min-replicas-to-write 0"},
		"no scripts":  {[]string{"ACL", "SETUSER", "default", "-evalsha"}, []string{"ACL", "SETUSER", "default", "+evalsha"}, "ACL"},
		"no SET":      {[]string{"ACL", "SETUSER", "default", "-set"}, []string{"ACL", "SETUSER", "default", "+set"}, "ACL"},
		"no locks":    {[]string{"ACL", "SETUSER", "default", "resetkeys", "~redlockd:*"}, []string{"ACL", "SETUSER", "default", "allkeys"}, "ACL"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 3)
			h := s.newHost()
			want(t, "spare nodes", h.Status().Spare(), 1)
			servers := []*redlocktest.Server{s.server("a"), s.server("b")}
			for _, server := range servers {
				s.tell(server, c.deny...)
			}
			var err error
			h.eventually("every node answers in time", func() bool {
				_, err = h.Acquire(t.Context(), redlock.Request{Name: "x", TTL: quarantine})
				var e *redlock.NoQuorumError
				return !errors.As(err, &e) || !slices.ContainsFunc(e.Failed, func(failed *redlock.NodeError) bool { return failed.Failure == redlock.FailedTimeout })
			})
			wantNoQuorum(t, err, redlock.FailedError, "a", "b")
			for _, node := range []string{"a", "b"} {
				wantRefused(h, node, "refuses what locks need", c.says)
			}
			h.awaits("c", redlock.NodeReady)
			h.forget()
			before := s.looks(servers[0])
			h.eventually("the host looks at the node repeatedly", func() bool { return s.looks(servers[0]) >= before+4 })
			want(t, "states reported meanwhile", len(h.states("a")), 0)
			want(t, "spare nodes while two refuse", h.Status().Spare(), -1)
			for _, server := range servers {
				s.tell(server, c.allow...)
			}
			h.awaits("a", redlock.NodeReady)
			h.awaits("b", redlock.NodeReady)
			want(t, "spare nodes", h.Status().Spare(), 1)
			h.pair("x")
			h.wantNoQuarantine("a denial")
		})
	}
}

// The status also shows a denial if no client has requested a lock, provided that INFO gives a
// reason to check.
func TestRealDenialAtRest(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost()
	a, b := s.server("a"), s.server("b")
	s.tell(a, "CONFIG", "SET", "maxmemory", "1")
	wantRefused(h, "a", "refuses what locks need", "maxmemory")
	s.tell(b, "CONFIG", "SET", "min-replicas-to-write", "1")
	wantRefused(h, "b", "refuses what locks need", "min-replicas-to-write 0")
	want(t, "spare nodes", h.Status().Spare(), -1)
	s.tell(a, "CONFIG", "SET", "maxmemory", "0")
	s.tell(b, "CONFIG", "SET", "min-replicas-to-write", "0")
	h.awaits("a", redlock.NodeReady)
	h.awaits("b", redlock.NodeReady)
}

// If a command of the scripts is renamed on a node (rename-command), that node grants no lock.
// Status does not count it as usable.
func TestRealRenamedCommandIsADenial(t *testing.T) {
	for _, command := range []string{"SET", "PEXPIRE", "DEL"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel() // most of the time it waits
			s := &site{TB: t, all: redlocktest.StartRedis(t, 1, redlocktest.Args("--rename-command", command, "")).Servers}
			h := s.openHost(everywhere)
			wantRefused(h, "a", "refuses what locks need", "rename-command", command)
			if l, err := h.Acquire(t.Context(), redlock.Request{Name: "x", TTL: quarantine}); err == nil {
				wantErr(t, "extend or release", errors.Join(l.Extend(t.Context(), 0), l.Release(t.Context())), redlock.ErrNoQuorum)
			}
		})
	}
}

// An error about one lock does not make the node unusable.
func TestRealWrongTypeIsNoDenial(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost()
	for _, node := range []string{"a", "b"} {
		s.tell(s.server(node), "LPUSH", "redlock:x", "1")
	}
	_, err := h.Acquire(t.Context(), redlock.Request{Name: "x", TTL: quarantine})
	wantNoQuorum(t, err, redlock.FailedError, "a", "b")
	want(t, "ready nodes", h.Status().Ready, 3)
	want(t, "the error says what to do: "+err.Error(), strings.Contains(err.Error(), "DEL it there"), true)
}

// If a node hides the holder of a lock, it has not reported another holder. A release is resent
// until it succeeds. An extension that fails this way does not lose the lease.
func TestRealUnseenIsNotLost(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost(maxTTL(realTTL))
	l := h.take(redlock.Request{Name: "x", TTL: realTTL})
	servers := []*redlocktest.Server{s.server("a"), s.server("b")}
	for _, server := range servers {
		s.tell(server, "ACL", "SETUSER", "default", "-get")
	}
	wantErr(t, "extend", l.Extend(t.Context(), 0), redlock.ErrNoQuorum)
	want(t, "the lease", l.Err(), nil)
	wantErr(t, "release", l.Release(t.Context()), redlock.ErrNoQuorum)
	for _, server := range servers {
		s.tell(server, "ACL", "SETUSER", "default", "+get")
	}
	h.release(h.take(redlock.Request{Name: "x", TTL: realTTL}))
}

// The host handles whatever another client wrote to a lock's keys, and keeps the connection.
func TestRealPlantedTime(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost()
	for _, node := range []string{"a", "b", "c"} {
		s.tell(s.server(node), "SET", "redlock:x", "redlockd:slots=3")
		s.tell(s.server(node), "ZADD", "redlock:x\x00m", "inf", "1 another client's")
	}
	_, err := h.Acquire(t.Context(), redlock.Request{Name: "x", TTL: quarantine})
	wantErr(t, "a foreign lock without an end", err, redlock.ErrHeld)
	held, err := h.Who(t.Context(), "x")
	if err != nil || len(held) != 1 || held[0].TTL != redlock.Endless {
		t.Errorf("Who: %+v, %v; want one holder without an end", held, err)
	}
}

// A node that answers everything except scripts (CLIENT PAUSE … WRITE) does not become ready
// repeatedly. It is down until it answers scripts.
func TestRealPausedNodeIsDown(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost(impatient)
	server := s.server("a")
	s.tell(server, "CLIENT", "PAUSE", "600000", "WRITE")
	h.pair("x")
	h.awaits("a", redlock.NodeDown)
	h.forget()
	before := s.looks(server)
	h.eventually("the host looks at the node repeatedly", func() bool { return s.looks(server) >= before+4 })
	if slices.Contains(h.states("a"), redlock.NodeReady) {
		t.Errorf("it was reported as ready meanwhile: %v", h.states("a"))
	}
	s.tell(server, "CLIENT", "UNPAUSE")
	h.awaits("a", redlock.NodeReady)
	h.wantNoQuarantine("a pause")
}

// If Redis refuses the writes of the release script, the host resends the release at each look
// until it succeeds. The script itself was answered, but released nothing.
func TestRealRefusedReleaseIsRepeated(t *testing.T) {
	t.Parallel() // most of the time it waits
	for name, kind := range map[string]redlock.Request{"exclusive": {Name: "x"}, "several": {Names: []string{"x", "y"}}, "shared": {Name: "x", Shared: true}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1)
			h := s.newHost(maxTTL(realTTL))
			kind.TTL = realTTL
			l := h.take(kind)
			server := s.server("a")
			s.tell(server, "CONFIG", "SET", "min-replicas-to-write", "1")
			wantErr(t, "release", l.Release(t.Context()), redlock.ErrNoQuorum)
			before := s.looks(server)
			h.eventually("the release was refused repeatedly", func() bool { return s.looks(server) >= before+6 })
			s.tell(server, "CONFIG", "SET", "min-replicas-to-write", "0")
			h.eventually("the release has succeeded", func() bool { return s.tell(server, "EXISTS", "redlock:x", "redlock:y").Int == 0 })
			want(t, "the keys had not expired", l.Validity() > 0, true)
		})
	}
}

// Nodes without free memory still extend leases of each kind, because an extension needs no
// memory. (A script that has written may write more.)
func TestRealNoMemoryKeepsLeases(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost(maxTTL(realTTL))
	leases := map[string]*redlock.Lease{
		"exclusive": h.take(redlock.Request{Name: "x", TTL: realTTL}),
		"several":   h.take(redlock.Request{Names: []string{"y", "z"}, TTL: realTTL}),
		"shared":    h.take(redlock.Request{Name: "r", TTL: realTTL, Shared: true}),
		"slot":      h.take(redlock.Request{Name: "s", TTL: realTTL, Slots: 3}),
	}
	for _, node := range []string{"a", "b", "c"} {
		s.tell(s.server(node), "CONFIG", "SET", "maxmemory", "1")
	}
	for what, l := range leases {
		if err := l.Extend(t.Context(), 0); err != nil {
			t.Errorf("extend %s: %v", what, err)
		}
	}
}

// The status also shows missing ACL rights, even if they were missing before this host started,
// and renamed commands. INFO shows neither. Rights that locks do not need, and rights to the keys
// of other locks, may be missing.
func TestRealDenialByACLAtRest(t *testing.T) {
	t.Parallel() // most of the time it waits
	for _, command := range []string{"SET", "PTTL", "ZADD", "EVALSHA"} {
		t.Run(command, func(t *testing.T) {
			s := newSite(t, 3)
			h := s.newHost()
			want(t, "spare nodes", h.Status().Spare(), 1)
			a := s.server("a")
			h.forget()
			s.tell(a, "ACL", "SETUSER", "default", "-"+command)
			wantRefused(h, "a", "refuses what locks need", "NODES.md")
			before := s.looks(a)
			h.eventually("the host looks at the node repeatedly", func() bool { return s.looks(a) >= before+4 })
			want(t, "reported only as refused", slices.Equal(h.states("a"), []redlock.NodeState{redlock.NodeRefused}), true)
			if command != "EVALSHA" { // without EVALSHA, no epoch can be written
				late := s.openHost(everywhere)
				wantRefused(late, "a", "refuses what locks need", strings.ToLower(command))
				want(t, "it was ready for a later host", slices.Contains(late.states("a"), redlock.NodeReady), false)
			}
			s.tell(a, "ACL", "SETUSER", "default", "+"+command)
			h.awaits("a", redlock.NodeReady)
			h.wantNoQuarantine("a denial")
		})
	}
}

func TestRealNarrowACLIsNoDenial(t *testing.T) {
	s := newSite(t, 1)
	s.tell(s.server("a"), "ACL", "SETUSER", "default", "resetkeys", "~redlockd:*", "~redlock:web/*", "-hgetall", "-lpush")
	h := s.newHost()
	h.awaits("a", redlock.NodeReady)
	before := s.looks(s.server("a"))
	h.eventually("the host looks at the node", func() bool { return s.looks(s.server("a")) >= before+4 })
	h.pair("web/x")
	want(t, "it was refused", slices.Contains(h.states("a"), redlock.NodeRefused), false)
}

// TestRightsOfAllCommandsAreChecked checks that rights.lua tests the right to each command that a script
// calls. Exempt are TIME, which each look at the node needs, and HGETALL, which the quarantine of
// another node needs. SCAN, for the list of all locks, reports a missing right itself. Locks need
// none of these.
func TestRightsOfAllCommandsAreChecked(t *testing.T) {
	scripts := map[string]string{}
	for _, script := range script.Scripts() {
		scripts[script.Name] = script.Source
	}
	checked := map[string]bool{"TIME": true, "HGETALL": true, "SCAN": true}
	for _, found := range regexp.MustCompile(`\{'([A-Z]+)'`).FindAllStringSubmatch(scripts["rights"], -1) {
		checked[found[1]] = true
	}
	for _, name := range []string{"ballot", "epoch"} {
		calls := regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(scripts[name], -1)
		if len(calls) < 3 {
			t.Errorf("%s calls %v: the test does not find its calls", name, calls)
		}
		for _, found := range calls {
			if !checked[found[1]] {
				t.Errorf("%s calls %s, which rights.lua does not check", name, found[1])
			}
		}
	}
}
