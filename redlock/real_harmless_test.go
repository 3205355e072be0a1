package redlock_test

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Scripts that are flushed repeatedly under load cost only one attempt each: no lease is lost, no
// node loses its vote, and tokens stay in order.
func TestRealScriptFlushIsHarmless(t *testing.T) {
	s := newSite(t, 5)
	one, two := s.newHost(maxTTL(realTTL)), s.newHost(maxTTL(realTTL))
	kept := one.take(redlock.Request{Name: "kept", TTL: realTTL, Keep: true})
	h := s.work(one, two)
	var tries []int
	for range rounds(10) {
		h.more()
		for _, server := range s.all {
			s.tell(server, "SCRIPT", "FLUSH")
		}
		tries = append(tries, one.triesFor("y"))
	}
	wantHeldOn(t, kept)
	if slices.Sort(tries); tries[len(tries)/2] > 2 {
		t.Errorf("attempts after each flush: %v, want mostly 2: one that finds the scripts missing and loads them, and one that is granted", tries)
	}
	one.wantNoQuarantine("SCRIPT FLUSH")
	two.wantNoQuarantine("SCRIPT FLUSH")
	h.wantSafe()
}

// triesFor acquires a free lock and returns the number of attempts.
func (h *host) triesFor(lock string) (tries int) {
	h.site.Helper()
	l := h.take(redlock.Request{Name: lock, TTL: realTTL, Failed: func(error) { tries++ }})
	h.release(l)
	return tries + 1
}

// CONFIG RESETSTAT resets the statistics of INFO, but nothing that votes depend on.
func TestRealResetStatIsHarmless(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost()
	before := h.Status().Counts
	var looks []int64
	for _, server := range s.all {
		s.tell(server, "CONFIG", "RESETSTAT")
		looks = append(looks, s.looks(server))
	}
	for i, server := range s.all {
		h.looksAgain(server, looks[i])
	}
	h.wantNoQuarantine("CONFIG RESETSTAT")
	want(t, "counts", h.Status().Counts, before)
}

// looksAgain waits until a node was looked at twice more than before. By then, everything that a
// heartbeat notices was noticed.
func (h *host) looksAgain(server *redlocktest.Server, before int64) {
	h.site.Helper()
	h.eventually("node "+server.Name()+" was looked at twice", func() bool { return h.site.looks(server) >= before+2 })
}

// looks returns how often hosts have looked at a node.
func (s *site) looks(server *redlocktest.Server) int64 {
	s.Helper()
	return s.count(server, "hget")
}

// count returns how often a server has executed a command.
func (s *site) count(server *redlocktest.Server, command string) int64 {
	s.Helper()
	counts, err := server.Commands()
	must(s, err)
	return counts.ByName[command]
}

// A node whose address changes is still the same node, as its run_id shows. It keeps its epoch
// and its votes.
func TestRealAddressChanges(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost(maxTTL(extended))
	epoch := s.epochOf(s.server("a"))
	relay := newRelay(t, s.server("a"))
	far := s.newHost(maxTTL(extended), func(o *redlock.Options) {
		o.Nodes[0] = redlock.RedisNode(redlock.NodeOptions{Name: "a", Address: "relay", Dial: relay.dial})
	})
	s.server("c").Kill() // now a is needed
	kept := far.take(redlock.Request{Name: "kept", TTL: extended, Keep: true})
	far.forget()
	relay.move()
	far.wentThrough("a", redlock.NodeDown)
	far.awaits("a", redlock.NodeReady)
	deadline := kept.Deadline()
	far.eventually("the lease is extended over the new address", func() bool { return kept.Deadline() > deadline })
	far.wantNoQuarantine("a changed address")
	h.wantNoQuarantine("another host's address for it")
	h.wantHeld("kept")
	want(t, "the epoch with the larger max_ttl", s.epochOf(s.server("a")), s.epochWith(epoch, extended))
}

// relay forwards TCP to a server. Its own address can change.
type relay struct {
	testing.TB
	server *redlocktest.Server
	all    sync.WaitGroup

	mu       sync.Mutex // guards what follows
	listener net.Listener
	conns    []net.Conn
}

func newRelay(tb testing.TB, server *redlocktest.Server) *relay {
	r := &relay{TB: tb, server: server}
	r.open()
	tb.Cleanup(func() {
		r.shut()
		r.all.Wait()
	})
	return r
}

func (r *relay) open() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(r, err)
	r.mu.Lock()
	r.listener = listener
	r.mu.Unlock()
	r.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.forward(conn)
		}
	})
}

// shut closes the present address and all of its connections.
func (r *relay) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener.Close()
	for _, conn := range r.conns {
		conn.Close()
	}
}

func (r *relay) move() {
	r.shut()
	r.open()
}

func (r *relay) dial(ctx context.Context) (net.Conn, error) {
	r.mu.Lock()
	address := r.listener.Addr().String()
	r.mu.Unlock()
	return dialAddress(ctx, address)
}

// forward closes both connections when one ends.
func (r *relay) forward(near net.Conn) {
	far, err := dialAddress(r.Context(), r.server.Addr())
	if err != nil {
		near.Close()
		return
	}
	r.mu.Lock()
	r.conns = append(r.conns, near, far)
	r.mu.Unlock()
	pass := func(from, to net.Conn) {
		io.Copy(to, from) // ends when a connection ends
		from.Close()
		to.Close()
	}
	r.all.Go(func() { pass(near, far) })
	r.all.Go(func() { pass(far, near) })
}
