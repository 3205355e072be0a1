package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// site has some redis-servers that hosts use with quarantines.
type site struct {
	testing.TB
	all []*redlocktest.Server
}

// newSite starts n servers that are already admitted: their first quarantine has passed. The test
// runs in parallel with others, because it mostly waits.
func newSite(t *testing.T, n int, options ...redlocktest.Option) *site {
	t.Helper()
	t.Parallel()
	cluster := redlocktest.StartRedis(t, n, options...)
	cluster.Admit(t)
	return &site{TB: t, all: cluster.Servers}
}

// server returns the server with that name.
func (s *site) server(name string) *redlocktest.Server {
	return s.all[slices.IndexFunc(s.all, func(server *redlocktest.Server) bool { return server.Name() == name })]
}

// tell sends a command to a server, which must not refuse it.
func (s *site) tell(server *redlocktest.Server, args ...string) redlock.Reply {
	s.Helper()
	reply, err := server.Do(args...)
	if err = errors.Join(err, reply.Err); err != nil {
		s.Fatalf("server %s: %v: %v", server.Name(), args, err)
	}
	return reply
}

// epochOf returns the epoch in a server's hash.
func (s *site) epochOf(server *redlocktest.Server) string {
	s.Helper()
	return s.tell(server, "HGET", nodeKey, "epoch").Str
}

// host is a Quorum of a site's servers, as a daemon on another host has it, with everything that
// it reported.
type host struct {
	*redlock.Quorum
	site  *site
	reach atomic.Pointer[string] // the nodes that it can dial

	mu      sync.Mutex // guards what follows
	notices []redlock.Notice
	seen    []redlock.NodeStatus
}

const (
	// quarantine is the default max_ttl of hosts, so that quarantines are short. A lease that
	// must not be lost has steady instead, because a busy machine may delay its extension, or
	// realTTL if the test neither waits for a quarantine nor for an extension.
	steady     = 8 * time.Second
	quarantine = 1500 * ms
	// extended is the ttl of a lease whose extension a test waits for, without a quarantine.
	extended = 30 * time.Second
)

// openHost makes a host that reaches only some nodes, and does not wait for them.
func (s *site) openHost(reach string, change ...func(*redlock.Options)) *host {
	s.Helper()
	h := &host{site: s}
	h.only(reach)
	o := redlock.Options{Prefix: "redlock:", NodeTimeout: realTimeout, MaxTTL: quarantine, Observe: h.observe, Notice: h.notice}
	for _, server := range s.all {
		o.Nodes = append(o.Nodes, h.node(redlock.NodeOptions{Name: server.Name(), Address: server.Addr()}))
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if h.Quorum, err = redlock.New(o); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(h.Close)
	return h
}

// everywhere is the reach of a host that reaches all nodes.
const everywhere = "abcdefg"

// newHost makes a host and waits until all nodes are ready.
func (s *site) newHost(change ...func(*redlock.Options)) *host {
	s.Helper()
	return s.newHostAt(everywhere, change...)
}

// newHostAt makes a host and waits until all nodes that it can reach are ready.
func (s *site) newHostAt(reach string, change ...func(*redlock.Options)) *host {
	s.Helper()
	h := s.openHost(reach, change...)
	for _, server := range s.all {
		if h.reaches(server.Name()) {
			h.awaits(server.Name(), redlock.NodeReady)
		}
	}
	return h
}

// only makes the host reach only these nodes, from its next dial on.
func (h *host) only(names string) { h.reach.Store(&names) }

func (h *host) reaches(name string) bool { return strings.Contains(*h.reach.Load(), name) }

var errNoRoute = errors.New("no route from here")

// node is a Redis master behind a network that only can cut.
func (h *host) node(o redlock.NodeOptions) redlock.Node {
	address := o.Address
	o.Dial = func(ctx context.Context) (net.Conn, error) {
		if !h.reaches(o.Name) {
			return nil, errNoRoute
		}
		return dialAddress(ctx, address)
	}
	return redlock.RedisNode(o)
}

func dialAddress(ctx context.Context, address string) (net.Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

func noQuarantine(o *redlock.Options) { o.NoQuarantine = true }

// unhurried is for a test in which a node has work for many seconds on a busy machine.
func unhurried(o *redlock.Options) { o.NodeTimeout = 2 * patience }

// impatient is for a test in which a node hangs, and the host notices it after eight node timeouts.
func impatient(o *redlock.Options) { o.NodeTimeout = shortTimeout }

func maxTTL(ttl time.Duration) func(*redlock.Options) {
	return func(o *redlock.Options) { o.MaxTTL = ttl }
}

func (h *host) observe(node redlock.NodeStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, node)
}

func (h *host) notice(n redlock.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notices = append(h.notices, n)
}

// noticesOf returns the host's notices of a kind about a node; name "": about no single node.
func (h *host) noticesOf(kind redlock.NoticeKind, name string) (all []redlock.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.notices {
		if n.Kind == kind && n.Node == name {
			all = append(all, n)
		}
	}
	return all
}

// states returns the states of a node that the host reported since the last forget.
func (h *host) states(name string) (all []redlock.NodeState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, node := range h.seen {
		if node.Name == name {
			all = append(all, node.State)
		}
	}
	return all
}

// forget clears the recorded states and notices.
func (h *host) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen, h.notices = nil, nil
}

// wantNoQuarantine checks that no node was quarantined since the last forget.
func (h *host) wantNoQuarantine(why string) {
	h.site.Helper()
	for _, server := range h.site.all {
		if all := h.states(server.Name()); slices.Contains(all, redlock.NodeQuarantined) {
			h.site.Errorf("%s: node %s went through %v, want no quarantine", why, server.Name(), all)
		}
	}
}

// of returns what the host knows about a node now.
func (h *host) of(name string) redlock.NodeStatus {
	for _, node := range h.Status().Nodes {
		if node.Name == name {
			return node
		}
	}
	return redlock.NodeStatus{}
}

// awaits waits until a node is in the given state, and returns its status.
func (h *host) awaits(name string, state redlock.NodeState) (node redlock.NodeStatus) {
	h.site.Helper()
	h.eventually(fmt.Sprintf("node %s is %s", name, state), func() bool {
		node = h.of(name)
		return node.State == state
	})
	return node
}

// wentThrough waits until a node was in the given state since the last forget, however briefly.
func (h *host) wentThrough(name string, state redlock.NodeState) {
	h.site.Helper()
	h.eventually(fmt.Sprintf("node %s was %s", name, state), func() bool { return slices.Contains(h.states(name), state) })
}

// eventually polls for an event.
func (h *host) eventually(what string, happened func() bool) {
	h.site.Helper()
	poll := time.NewTicker(2 * ms)
	defer poll.Stop()
	for giveUp := time.Now().Add(patience); !happened(); <-poll.C {
		if time.Now().After(giveUp) {
			h.site.Fatalf("%s: not within %v; nodes: %+v", what, patience, h.Status().Nodes)
		}
	}
}

// tokenOn waits until a node has the lock, which may be after the grant, and returns its token.
func (h *host) tokenOn(server *redlocktest.Server, lock string) (token string) {
	h.site.Helper()
	h.eventually(lock+" is on "+server.Name(), func() bool {
		token = h.site.keyOn(server, lock)
		return token != ""
	})
	return token
}

// take acquires a lock that will become free.
func (h *host) take(r redlock.Request) *redlock.Lease {
	h.site.Helper()
	if r.Wait == 0 {
		r.Wait = patience
	}
	for giveUp := time.Now().Add(patience); ; {
		l, err := h.Acquire(h.site.Context(), r)
		if err == nil {
			return l
		}
		if time.Now().After(giveUp) || !errors.Is(err, redlock.ErrNoQuorum) {
			h.site.Fatal(err)
		}
	}
}

// pair acquires a lock and releases it. On a busy machine the short lease may expire before that, or an
// impatient host may not hear in time that it is released.
func (h *host) pair(lock string) {
	h.site.Helper()
	l := h.take(redlock.Request{Name: lock, TTL: quarantine})
	if err := l.Release(h.site.Context()); err != nil && !errors.Is(err, redlock.ErrLost) && !errors.Is(err, redlock.ErrNoQuorum) {
		h.site.Error(err)
	}
}

// wantHeld checks that this host is not granted the lock.
func (h *host) wantHeld(name string) {
	h.site.Helper()
	l, err := h.Acquire(h.site.Context(), redlock.Request{Name: name, TTL: quarantine})
	if err == nil {
		h.site.Errorf("%s was granted with fencing token %d, although another host holds it", name, l.Fence())
		h.release(l)
	}
}

func (h *host) release(l *redlock.Lease) {
	h.site.Helper()
	if err := l.Release(h.site.Context()); err != nil {
		h.site.Error(err)
	}
}

// epochWith returns the epoch with another max_ttl.
func (s *site) epochWith(epoch string, maxTTL time.Duration) string {
	words := strings.Split(epoch, ":")
	words[3] = name("%d", maxTTL.Milliseconds())
	return strings.Join(words, ":")
}

// raiseCounters sets all fencing counters to an hour ahead of every clock, so that only copies
// can be as large. It returns their new value.
func (s *site) raiseCounters() uint64 {
	s.Helper()
	least := uint64(time.Now().Add(time.Hour).UnixMicro())
	for _, server := range s.all {
		command := []string{"HSET", nodeKey}
		for field := range s.counters(server) {
			command = append(command, field, name("%d", least))
		}
		s.tell(server, command...)
	}
	return least
}

// counters returns the fencing counters of a server.
func (s *site) counters(server *redlocktest.Server) map[string]uint64 {
	s.Helper()
	all := map[string]uint64{}
	for field := range slices.Chunk(s.tell(server, "HGETALL", nodeKey).Array, 2) {
		if n, err := strconv.ParseUint(field[1].Str, 10, 64); err == nil && !slices.Contains([]string{"keeps", "queues"}, field[0].Str) {
			all[field[0].Str] = n
		}
	}
	return all
}

// wantCounters checks that a server has all fencing counters, and none below least.
func (s *site) wantCounters(server *redlocktest.Server, least uint64) {
	s.Helper()
	all := s.counters(server)
	if n := len(all); n != 1024 {
		s.Errorf("server %s has %d fencing counters, want 1024", server.Name(), n)
	}
	for field, value := range all {
		if value < least {
			s.Errorf("server %s: fencing counter %s is %d, want at least %d, as on the others", server.Name(), field, value, least)
			return
		}
	}
}

// keyOn returns the token of a lock on a server; "" if it has none.
func (s *site) keyOn(server *redlocktest.Server, lock string) string {
	s.Helper()
	return s.tell(server, "GET", "redlock:"+lock).Str
}

// rounds returns how often a random test repeats: 20 times as often if the tests may take hours.
func rounds(n int) int { return effort.Rounds(n, 20*n) }
