package redlock_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// If a node ends a listener, the host notices it then, not at the next ping. The waiter retries,
// because it may have missed a call. Guards redisListener.watch.
func TestRealListenersKilled(t *testing.T) {
	s, hosts := threeHosts(t)
	l, err := hosts[0].Acquire(t.Context(), redlock.Request{Name: "x", TTL: 29 * time.Second, Keep: true})
	must(t, err)
	for _, server := range s.all { // otherwise the client gets votes, and calls for them
		hosts[0].tokenOn(server, "x")
	}
	var tries atomic.Int64
	granted := make(chan time.Time, 1)
	go func() {
		r := redlock.Request{Name: "x", TTL: 29 * time.Second, Wait: redlock.Forever, Failed: func(error) { tries.Add(1) }}
		if l, err := hosts[1].Acquire(t.Context(), r); err == nil {
			granted <- time.Now()
			l.BeginRelease()
		}
	}()
	hosts[1].eventually("the client waits", func() bool { return tries.Load() >= 2 })
	before, killed := tries.Load(), time.Now()
	killListeners(s)
	for _, server := range s.all { // a host may still count on a listener that is gone
		hosts[1].eventually("all hosts listen to "+server.Name()+" again", func() bool { return len(listenersOf(s, server)) == len(hosts) })
	}
	if took := time.Since(killed); took > listenerPing/2 {
		t.Errorf("all hosts listened again after %v, want at most %v: not at the next ping", took, listenerPing/2)
	}
	hosts[1].eventually("the client has retried", func() bool { return tries.Load() > before })
	wakeups := hosts[1].Status().Counts.Wakeups
	at := time.Now()
	must(t, l.Release(t.Context()))
	took := (<-granted).Sub(at)
	if took > 250*ms && hosts[1].Status().Counts.Wakeups == wakeups { // sooner: the client was just asking again
		t.Errorf("granted %v after the release, without a call of the nodes; the client made %d attempts between the broken listeners and the release", took, tries.Load()-before)
	}
}

// listenerPing is the interval of pings on a listener, in package redis.
const listenerPing = 5 * time.Second

func killListeners(s *site) {
	for _, server := range s.all {
		for _, id := range listenersOf(s, server) {
			s.tell(server, "CLIENT", "KILL", "ID", id)
		}
	}
}

// listenersOf returns the ids of the connections on which hosts have subscribed to their channel.
func listenersOf(s *site, server *redlocktest.Server) (ids []string) {
	for line := range strings.SplitSeq(s.tell(server, "CLIENT", "LIST").Str, "\n") {
		if strings.Contains(line, "name=redlockd-listener ") && strings.Contains(line, " sub=1 ") {
			ids = append(ids, strings.TrimPrefix(strings.Fields(line)[0], "id="))
		}
	}
	return ids
}
