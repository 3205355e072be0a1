package redlock_test

import (
	"testing"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

func durable(o *redlock.Options) {
	for i := range o.Nodes {
		o.Nodes[i].Durable = true
	}
}

func appending(fsync string) redlocktest.Option {
	return redlocktest.Args("--appendonly", "yes", "--appendfsync", fsync)
}

// A durable node that is killed and started again votes at once and has lost nothing: a lock that
// it helped one side to get stays held for the other side.
func TestRealDurableNodeRestarts(t *testing.T) {
	s := newSite(t, 5, appending("always"))
	// The ttl is longer than the test, so only the restart could cost the lease.
	left, right := s.newHostAt("abc", durable, maxTTL(realTTL)), s.newHostAt("cde", durable, maxTTL(realTTL))
	for round := range rounds(3) {
		lock := name("x%d", round)
		held := left.take(redlock.Request{Name: lock, TTL: realTTL, Keep: true})
		left.forget()
		right.forget()
		must(t, s.server("c").Restart())
		left.wentThrough("c", redlock.NodeReady)
		right.wentThrough("c", redlock.NodeReady)
		left.wantNoQuarantine("durable nodes")
		right.wantNoQuarantine("durable nodes")
		_, err := right.Acquire(t.Context(), redlock.Request{Name: lock, TTL: realTTL})
		wantErr(t, "the lock is held by the other host", err, redlock.ErrHeld)
		want(t, "the lease over the restart", held.Err(), nil)
		left.release(held)
	}
	want(t, "warnings", len(left.of("c").Warning), 0)
}

// A durable node that loses its power has what it answered for: it had synced it before. A kill
// would not show that, because it leaves the page cache.
func TestRealDurableNodeLosesPower(t *testing.T) {
	s := newSite(t, 5, appending("always"), redlocktest.Unplugged())
	left, right := s.newHostAt("abc", durable, maxTTL(realTTL)), s.newHostAt("cde", durable, maxTTL(realTTL))
	for round := range rounds(3) {
		lock := name("x%d", round)
		held := left.take(redlock.Request{Name: lock, TTL: realTTL, Keep: true})
		left.forget()
		right.forget()
		vote := s.keyOn(s.server("c"), lock)
		_, err := s.server("c").LosePower() // it may lose what it was just writing, and had not answered for
		must(t, err)
		must(t, s.server("c").Restart())
		want(t, "the vote after the loss", s.keyOn(s.server("c"), lock), vote)
		left.wentThrough("c", redlock.NodeReady)
		right.wentThrough("c", redlock.NodeReady)
		_, err = right.Acquire(t.Context(), redlock.Request{Name: lock, TTL: realTTL})
		wantErr(t, "the lock is held by the other host", err, redlock.ErrHeld)
		left.release(held)
	}
}

// If a node is configured as durable but is not, the host warns, and quarantines it like any
// other node after a restart.
func TestRealNodeIsNotDurable(t *testing.T) {
	s := newSite(t, 3, appending("everysec"))
	h := s.newHost(durable)
	wantWarning(t, h.of("c").Warning, "durable = true does not hold: appendfsync is everysec; until")
	must(t, s.server("c").Restart())
	h.wentThrough("c", redlock.NodeQuarantined)
	h.awaits("c", redlock.NodeReady)
}

// Redis loads its file with the rights of its default user, and skips commands of scripts that
// this user may not run. Such a node loses votes, or their extensions. The host warns, also if a
// node does not reveal these rights, and quarantines it like any other node after a restart.
func TestRealDurableNodeSkipsVotesWithoutRights(t *testing.T) {
	for _, c := range []struct {
		user    []string
		warning string
	}{
		{[]string{"~redlockd:*", "+@all", "(~redlock:* +@all -pexpireat)"}, "durable = true does not hold: its user default may not PEXPIREAT redlock:"},
		{[]string{"~*", "+@all", "-acl|dryrun"}, "durable = true does not hold: our ACL has no +acl|dryrun"},
	} {
		t.Run(c.warning, func(t *testing.T) {
			s := newSite(t, 3, appending("always"), redlocktest.Args(append([]string{"--user", "default", "on", "nopass", "&*"}, c.user...)...))
			h := s.newHost(durable)
			wantWarning(t, h.of("c").Warning, c.warning)
			must(t, s.server("c").Restart())
			h.wentThrough("c", redlock.NodeQuarantined)
			h.awaits("c", redlock.NodeReady)
		})
	}
}

// While such a node rewrites its file, its votes are not on disk when they are answered.
func TestRealNodeIsNotDurableInRewrites(t *testing.T) {
	h := newSite(t, 3, appending("always"), redlocktest.Args("--no-appendfsync-on-rewrite", "yes")).newHost(durable)
	wantWarning(t, h.of("c").Warning, "durable = true does not hold: no-appendfsync-on-rewrite is yes; until")
}

// A durable server alone changes nothing: the operator must also declare it durable.
func TestRealNodeIsNotCalledDurable(t *testing.T) {
	s := newSite(t, 3, appending("always"))
	h := s.newHost()
	must(t, s.server("c").Restart())
	h.wentThrough("c", redlock.NodeQuarantined)
	h.awaits("c", redlock.NodeReady)
}
