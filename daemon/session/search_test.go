package session

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// The whole daemon in virtual time: hosts with a state file, simulated nodes, and clients that lock,
// wait, resume, disconnect and are paused, while nodes and daemons fail. Clients speak the protocol, so
// the checks are those of the promises that a client has:
//
//   - at most one client holds a lock exclusively, or as many as it has slots;
//   - a token is larger than those of grants that were made before the request;
//   - each request is answered within its wait= and answerWithin;
//   - after the last fault, each client is granted a lock within calmWithin;
//   - when all clients have ended, no daemon has a lease or a waiter, and no node has a key.
const (
	searchFor    = 60 * time.Second
	searchTTL    = 2 * time.Second
	searchMaxTTL = 4 * time.Second
	answerWithin = 4 * searchTimeout
	calmWithin   = 5 * searchMaxTTL // a long hold, a quarantine, and the lease of a client that is gone

	searchTimeout = 100 * time.Millisecond // node_timeout
)

var daemonSeeds = flag.Int("daemonseeds", fewSeeds, "TestSearchDaemons: number of seeds")

// fewSeeds is the number of seeds of a run with the race detector, which takes ten times as long.
const fewSeeds = 1

func TestSearchDaemons(t *testing.T) {
	seeds := *daemonSeeds
	if effort.IsLong() && seeds == fewSeeds {
		seeds = 500
	}
	grants, faults := 0, map[string]int{}
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			s := newDaemonSearch(t, seed)
			s.run()
			grants += s.referee.grants
			for kind, n := range s.did {
				faults[kind] += n
			}
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d grants, %v", grants, faults)
	for _, kind := range searchFaults {
		if seeds > fewSeeds && faults[kind.name] == 0 {
			t.Errorf("no fault %q", kind.name)
		}
	}
}

// daemonSearch is one simulation.
type daemonSearch struct {
	t       *testing.T
	random  *rand.Rand
	sims    []*redlocktest.Sim
	hosts   []*searchHost
	referee *referee
	boot    time.Time
	calm    chan struct{}  // closed after the last fault
	clients sync.WaitGroup // that are not granted a lock after that yet
	did     map[string]int // faults, by kind
}

func newDaemonSearch(t *testing.T, seed uint64) *daemonSearch {
	s := &daemonSearch{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), boot: time.Now().Add(-time.Hour),
		referee: &referee{t: t, names: map[string]*judged{}}, calm: make(chan struct{}), did: map[string]int{},
	}
	for i := range 3 + 2*int(seed%2) {
		sim := redlocktest.NewSim(string(rune('a' + i)))
		t.Cleanup(sim.Close)
		s.sims = append(s.sims, sim)
	}
	for i := range 2 {
		h := &searchHost{s: s, name: fmt.Sprintf("host%d", i), socket: daemontest.ShortDir(t) + "/s"}
		s.hosts = append(s.hosts, h)
		h.start()
	}
	return s
}

func (s *daemonSearch) run() {
	for i := range 10 {
		c := &searchClient{s: s, number: i, host: s.hosts[i%len(s.hosts)], random: rand.New(rand.NewPCG(s.random.Uint64(), 1))}
		s.clients.Add(1)
		go c.run() // ends after calm; awaited below
	}
	s.makeFaults()
	close(s.calm)
	calm := time.Now()
	granted := make(chan struct{})
	go func() { // ends when the last client was granted a lock
		s.clients.Wait()
		close(granted)
	}()
	select {
	case <-granted:
	case <-time.After(10 * calmWithin):
		s.t.Fatalf("a client was granted no lock in %v after the last fault", 10*calmWithin)
	}
	if took := time.Since(calm); took > calmWithin {
		s.t.Errorf("the last client was granted a lock %v after the last fault, want at most %v", took, calmWithin)
	}
	time.Sleep(2 * time.Minute) // an entry of a waiter whose end was lost stays on a node for a minute
	for _, h := range s.hosts {
		if n := queued(h.host); n > 0 {
			s.t.Errorf("%s: %d names are held or waited for, although all clients have ended", h.name, n)
		}
		h.stop()
	}
	for _, sim := range s.sims {
		for _, key := range sim.Keys() {
			if strings.HasPrefix(key, "redlock:") {
				s.t.Errorf("node %s: the key %q is left", sim.Name(), key)
			}
		}
	}
}

func (s *daemonSearch) now() time.Duration { return time.Since(s.boot) }

// --- hosts

// searchHost is a host: its daemons, one after the other, use one state file.
type searchHost struct {
	s      *daemonSearch
	name   string
	socket string

	mu      sync.Mutex
	host    *Host // nil: no daemon runs
	server  *server.Server
	serving sync.WaitGroup
}

func (h *searchHost) start() {
	cfg := config.Dev()
	cfg.Quorum.Nodes, cfg.Quorum.NodeTimeout, cfg.Quorum.MaxTTL = nil, searchTimeout, searchMaxTTL
	var nodes []redlock.Node
	for _, sim := range h.s.sims {
		nodes = append(nodes, sim.Node())
		cfg.Quorum.Nodes = append(cfg.Quorum.Nodes, config.Node{Name: sim.Name(), Address: "simulated"})
	}
	cfg.Lease.TTL = searchTTL
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: daemontest.Defects{T: h.s.t}})
	host := NewHost(HostOptions{Config: cfg, Log: log, Version: "test"})
	host.Clock, host.hostname = h.s.now, h.name
	if err := host.Connect(redlock.Options{
		Nodes: nodes, Prefix: cfg.Quorum.KeyPrefix, NodeTimeout: cfg.Quorum.NodeTimeout, MaxTTL: cfg.Quorum.MaxTTL, Clock: h.s.now,
	}); err != nil {
		h.s.t.Fatal(err)
	}
	host.Nodes.Settle(h.s.t.Context())
	srv := newPipeServer(host)
	host.Restore(srv, nil, state.Inherited{}, h.socket)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.host, h.server = host, srv
}

// stop ends the daemon as SIGTERM does. The connections end with it.
func (h *searchHost) stop() {
	h.mu.Lock()
	host, srv := h.host, h.server
	h.host = nil
	h.mu.Unlock()
	if host == nil {
		return
	}
	host.Shutdown(srv)
	h.serving.Wait()
	host.Nodes.Close()
}

func (h *searchHost) dial() net.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.host == nil {
		return nil
	}
	ours, theirs := net.Pipe()
	srv := h.server
	h.serving.Go(func() { srv.ServeConn(theirs) })
	return ours
}

// --- faults

// searchFault is a kind of fault. It ends after a duration, which is drawn before.
type searchFault struct {
	name   string
	onHost bool // its target is a host, not a node
	make   func(s *daemonSearch, target int, d time.Duration)
}

var searchFaults = []searchFault{
	{name: "node unreachable", make: func(s *daemonSearch, node int, d time.Duration) {
		s.sims[node].Down()
		time.Sleep(d)
		s.sims[node].Up()
	}},
	{name: "node hangs", make: func(s *daemonSearch, node int, d time.Duration) {
		s.sims[node].Hang()
		time.Sleep(d)
		s.sims[node].Resume()
	}},
	{name: "node restarted empty", make: func(s *daemonSearch, node int, d time.Duration) {
		s.sims[node].Crash(false)
		time.Sleep(d)
		s.sims[node].Restart()
	}},
	{name: "node restarted", make: func(s *daemonSearch, node int, d time.Duration) {
		s.sims[node].Crash(true)
		time.Sleep(d)
		s.sims[node].Restart()
	}},
	{name: "slow network", make: func(s *daemonSearch, node int, d time.Duration) {
		slow := d % (2 * searchTimeout)
		s.sims[node].SetDelay(func() (request, reply time.Duration) { return slow / 2, slow / 2 })
		time.Sleep(d)
		s.sims[node].SetDelay(nil)
	}},
	{name: "messages lost", make: func(s *daemonSearch, node int, d time.Duration) {
		s.sims[node].DropMessages(true)
		time.Sleep(d)
		s.sims[node].DropMessages(false)
	}},
	{name: "node flushed", make: func(s *daemonSearch, node int, _ time.Duration) { s.sims[node].Flush() }},
	{name: "connections cut", make: func(s *daemonSearch, node int, _ time.Duration) { s.sims[node].Cut() }},
	{name: "replies lost", make: func(s *daemonSearch, node int, _ time.Duration) { s.sims[node].DropReplies(2) }},
	{name: "requests lost", make: func(s *daemonSearch, node int, _ time.Duration) { s.sims[node].DropRequests(2) }},
	{name: "daemon restarted", onHost: true, make: func(s *daemonSearch, host int, d time.Duration) {
		s.hosts[host].stop()
		if d < searchTTL/2 {
			time.Sleep(d)
		}
		s.hosts[host].start()
	}},
	{name: "FORCE", onHost: true, make: func(s *daemonSearch, host int, d time.Duration) {
		name, conn := searchNames[int(d)%len(searchNames)], s.hosts[host].dial()
		if conn == nil {
			return
		}
		defer conn.Close()
		s.referee.force(name, true)
		fmt.Fprintf(conn, "FORCE %s\n", name)
		_, _ = bufio.NewReader(conn).ReadString('\n')
		time.Sleep(searchMaxTTL) // a node that did not answer still has the key
		s.referee.force(name, false)
	}},
}

// makeFaults makes faults, several at a time, each node and host has at most one.
func (s *daemonSearch) makeFaults() {
	var mu sync.Mutex
	busy := map[[2]int]bool{}
	var faults sync.WaitGroup
	for start := time.Now(); time.Since(start) < searchFor; {
		time.Sleep(time.Duration(s.random.Int64N(int64(time.Second))))
		kind, d := searchFaults[s.random.IntN(len(searchFaults))], time.Duration(s.random.Int64N(int64(searchTTL)))
		on := [2]int{0, s.random.IntN(len(s.sims))}
		if kind.onHost {
			on = [2]int{1, s.random.IntN(len(s.hosts))}
		}
		mu.Lock()
		if !busy[on] {
			busy[on] = true
			s.did[kind.name]++
			faults.Go(func() {
				kind.make(s, on[1], d)
				mu.Lock()
				defer mu.Unlock()
				busy[on] = false
			})
		}
		mu.Unlock()
	}
	faults.Wait()
}
