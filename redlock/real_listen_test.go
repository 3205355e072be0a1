package redlock_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// If a node ends a listener, it breaks then, not at the next ping. Guards redisListener.watch.
func TestRealListenerBreaks(t *testing.T) {
	s := newSite(t, 1)
	for range 12 { // on a busy machine, it may come late
		l, err := s.all[0].Node().Listen(t.Context(), "channel", func(string) {})
		must(t, err)
		killed := time.Now()
		killListeners(s)
		<-l.Done()
		took := time.Since(killed)
		if l.Close(); took < listenerPing/2 {
			return
		}
	}
	t.Errorf("no listener broke within %v", listenerPing/2)
}

// If nodes end the listeners of all hosts, these listen again. A waiter retries, because it may have
// missed a call, and is called later.
func TestRealListenersKilled(t *testing.T) {
	s, hosts := threeHosts(t)
	request := redlock.Request{Name: "x", TTL: realTTL}
	l := hosts[0].take(request)
	for _, server := range s.all { // otherwise the client gets votes, and calls for them
		hosts[0].tokenOn(server, "x")
	}
	w := &realWaiter{host: hosts[1], granted: make(chan *redlock.Lease, 1)}
	w.wait(request)
	before := w.tries.Load()
	killListeners(s)
	for _, server := range s.all { // a host may still count on a listener that is gone
		hosts[1].eventually("all hosts listen to "+server.Name()+" again", func() bool { return len(listenersOf(s, server)) == len(hosts) })
	}
	hosts[1].eventually("the client has retried", func() bool { return w.tries.Load() > before })
	wakeups := hosts[1].Status().Counts.Wakeups
	hosts[1].eventually("a release calls the client", func() bool {
		hosts[0].release(l)
		hosts[1].release(<-w.granted)
		called := hosts[1].Status().Counts.Wakeups > wakeups
		if !called { // it was just asking again
			l = hosts[0].take(request)
			w.wait(request)
		}
		return called
	})
}

// realWaiter is a client that waits for a lock.
type realWaiter struct {
	host    *host
	tries   atomic.Int64
	granted chan *redlock.Lease
}

// wait starts to wait for a held lock, and returns after two attempts.
func (w *realWaiter) wait(r redlock.Request) {
	before := w.tries.Load()
	r.Wait, r.Failed = redlock.Forever, func(error) { w.tries.Add(1) }
	go func() { // ends with the test at the latest
		if l, err := w.host.Acquire(w.host.site.Context(), r); err == nil {
			w.granted <- l
		}
	}()
	w.host.eventually("the client waits", func() bool { return w.tries.Load() >= before+2 })
}

// threeHosts returns three hosts with five servers.
func threeHosts(t *testing.T) (*site, []*host) {
	s := newSite(t, 5)
	var hosts []*host
	for range 3 {
		hosts = append(hosts, s.newHost(maxTTL(realTTL)))
	}
	for _, h := range hosts {
		h.eventually("the nodes report changes", func() bool {
			for _, node := range h.Status().Nodes {
				if !node.Calls {
					return false
				}
			}
			return true
		})
	}
	return s, hosts
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
