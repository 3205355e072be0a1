package session

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
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
	if os.Getenv("REDLOCKD_LONG") != "" && seeds == fewSeeds {
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
	conns   map[net.Conn]bool // the daemon's ends
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
	h.host, h.server, h.conns = host, srv, map[net.Conn]bool{}
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

// --- clients

var searchNames = []string{"a", "b", "c"}

type searchClient struct {
	s      *daemonSearch
	number int
	host   *searchHost
	random *rand.Rand
	conn   net.Conn
	lines  chan string
	held   *searchHold // also of a connection that has ended
	isCalm bool        // no more faults are made

	repeat   *searchRequest // to be repeated on the next connection; nil: none
	requests int            // with an id=
}

func (c *searchClient) run() {
	for {
		select {
		case <-c.s.calm:
			c.isCalm = true
		default:
		}
		if c.conn == nil && !c.connect() {
			time.Sleep(time.Duration(1 + c.random.Int64N(int64(50*time.Millisecond))))
			continue
		}
		if c.once() && c.isCalm && c.held == nil {
			if c.conn != nil {
				c.disconnect()
			}
			c.s.clients.Done()
			return
		}
	}
}

func (c *searchClient) connect() bool {
	conn := c.host.dial()
	if conn == nil {
		return false
	}
	lines := make(chan string, 100)
	go func() { // ends with the connection
		defer close(lines)
		for in := bufio.NewScanner(conn); in.Scan(); {
			switch word, _, _ := strings.Cut(in.Text(), " "); word {
			case "LOST":
				c.s.referee.lost(c)
			case "OK", "ERR":
				lines <- in.Text()
			}
		}
		c.s.referee.cut(c)
	}()
	c.conn, c.lines = conn, lines
	return true
}

// disconnect ends the connection. What it holds ends before.
func (c *searchClient) disconnect() {
	c.s.referee.end(c.held)
	c.conn.Close()
	for range c.lines {
	}
	c.conn, c.held = nil, nil
}

// resume takes over, on a new connection, the lease of one that ended. It reports whether it holds it.
func (c *searchClient) resume() bool {
	h := c.held
	c.held = nil // the connection may end again
	answer := c.ask(0, fmt.Sprintf("RESUME %s lease=%s", h.name, h.lease))
	deadline, ok := answerField(answer, "deadline")
	if !strings.HasPrefix(answer, "OK ") || !ok {
		c.s.referee.end(h)
		return false
	}
	c.held = h
	return c.s.referee.resumed(h, deadline)
}

// ask returns "" if the connection has ended.
func (c *searchClient) ask(wait time.Duration, request string) string {
	asked := time.Now()
	go fmt.Fprintf(c.conn, "%s\n", request) // a pipe takes it when the daemon reads; the daemon or disconnect ends it
	select {
	case line, open := <-c.lines:
		if !open {
			c.conn.Close()
			c.conn = nil
			return ""
		}
		if took := time.Since(asked); took > wait+answerWithin {
			c.s.t.Errorf("client %d: %s was answered after %v: %s", c.number, request, took, line)
		}
		return line
	case <-time.After(time.Minute + wait):
		c.s.t.Errorf("client %d: %s was not answered within a minute", c.number, request)
		c.disconnect()
		return ""
	}
}

// once takes a lock, holds it and releases it. It reports whether it was granted.
func (c *searchClient) once() bool {
	switch {
	case c.held == nil:
		if !c.lock() {
			return false
		}
	case c.random.IntN(4) == 0: // it does not resume
		c.s.referee.end(c.held)
		c.held = nil
		return false
	case !c.resume():
		return false
	}
	c.hold()
	if c.conn == nil || c.held == nil {
		return true
	}
	if c.random.IntN(10) == 0 {
		c.disconnect()
		return true
	}
	h := c.held
	c.held = nil
	c.s.referee.end(h)
	answer := c.ask(searchTimeout, "UNLOCK "+h.name+[]string{"", " wait=0"}[c.random.IntN(2)])
	if answer != "" && !strings.HasPrefix(answer, "OK ") && !strings.HasPrefix(answer, "ERR LOST ") && !c.s.referee.wasLost(h) {
		c.s.t.Errorf("client %d: UNLOCK %s: %s", c.number, h.name, answer)
	}
	return true
}

// lock requests a lock, and reports whether it was granted. If the connection ends before the answer,
// it repeats the request, with the same id=.
func (c *searchClient) lock() bool {
	r := c.repeat
	if r == nil {
		r = &searchRequest{name: searchNames[c.random.IntN(len(searchNames))], wait: time.Duration(c.random.Int64N(int64(3 * time.Second))).Truncate(time.Millisecond)}
		if c.isCalm {
			r.wait = calmWithin
		}
		switch n := c.random.IntN(12); {
		case n == 0:
			r.shared, r.options = true, " mode=shared"
		case n == 1:
			r.options = " min=20"
		case n < 5:
			c.requests++
			r.options = fmt.Sprintf(" id=%d-%d", c.number, c.requests)
		}
		r.asked = c.s.referee.ask()
	}
	c.repeat = nil
	answer := c.ask(r.wait, fmt.Sprintf("LOCK %s wait=%d ttl=%d%s", r.name, r.wait.Milliseconds(), searchTTL.Milliseconds(), r.options))
	switch {
	case answer == "" && strings.HasPrefix(r.options, " id="):
		c.repeat = r
	case strings.HasPrefix(answer, "OK "):
		c.held = c.s.referee.grant(c, r, answer)
		return true
	case answer != "":
		time.Sleep(time.Duration(c.random.Int64N(int64(20 * time.Millisecond))))
	}
	return false
}

// searchRequest is a LOCK.
type searchRequest struct {
	name    string
	shared  bool
	wait    time.Duration
	options string
	asked   int // see referee.asked
}

// hold holds the lock for a while, mostly briefly.
func (c *searchClient) hold() {
	most := 2 * time.Millisecond
	switch n := c.random.IntN(100); {
	case c.isCalm:
	case n < 3:
		most = 2 * searchMaxTTL
	case n < 20:
		most = 300 * time.Millisecond
	}
	time.Sleep(time.Duration(c.random.Int64N(int64(most))))
	if c.random.IntN(4) == 0 {
		answer := c.ask(0, "CHECK "+c.held.name)
		if ms, ok := answerField(answer, "deadline"); ok {
			c.s.referee.extend(c.held, ms)
		}
	}
}

// answerWord returns a field of an answer.
func answerWord(answer, key string) string {
	for word := range strings.FieldsSeq(answer) {
		if value, found := strings.CutPrefix(word, key+"="); found {
			return value
		}
	}
	return ""
}

// answerField returns a number of an answer.
func answerField(answer, key string) (n int64, ok bool) {
	n, err := strconv.ParseInt(answerWord(answer, key), 10, 64)
	return n, err == nil
}

// --- the referee

// referee checks what clients rely on.
type referee struct {
	t      *testing.T
	mu     sync.Mutex // guards the fields below
	names  map[string]*judged
	asked  int // requests and grants, in their order
	grants int
}

// judged is what is known of one lock.
type judged struct {
	holds  []*searchHold
	forced int // FORCEs under way: two may hold it for a moment
	fences []fenceAt
}

type fenceAt struct {
	granted int
	fence   uint64
	shared  bool
}

// searchHold is one hold of a lock.
type searchHold struct {
	client  *searchClient
	name    string
	lease   string
	shared  bool
	fence   uint64
	until   time.Duration // its last known deadline
	isCut   bool          // the connection has ended: the client relies on the deadline
	wasLost bool
}

func (r *referee) lock(name string) *judged {
	if r.names[name] == nil {
		r.names[name] = &judged{}
	}
	return r.names[name]
}

func (r *referee) ask() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.asked
}

func (r *referee) grant(c *searchClient, q *searchRequest, answer string) *searchHold {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, asked := q.name, q.asked
	r.asked++
	r.grants++
	fence, _ := answerField(answer, "fence")
	deadline, _ := answerField(answer, "deadline")
	h := &searchHold{client: c, name: name, lease: answerWord(answer, "lease"), shared: q.shared, fence: uint64(fence), until: time.Duration(deadline) * time.Millisecond}
	of, now := r.lock(name), c.s.now()
	of.holds = slices.DeleteFunc(of.holds, func(other *searchHold) bool { return other.isCut && other.until <= now })
	for _, other := range of.holds {
		if !(other.shared && h.shared) && of.forced == 0 {
			r.t.Errorf("%v: client %d holds %s (fence %d), and client %d too (fence %d, cut %v, deadline in %v)", now, c.number, name, h.fence, other.client.number, other.fence, other.isCut, other.until-now)
		}
	}
	for _, earlier := range of.fences {
		if earlier.granted < asked && h.fence <= earlier.fence && !(earlier.shared && h.shared) {
			r.t.Errorf("client %d was granted %s with token %d, and an earlier grant had %d", c.number, name, h.fence, earlier.fence)
		}
	}
	of.holds = append(of.holds, h)
	if of.fences = append(of.fences, fenceAt{r.asked, h.fence, h.shared}); len(of.fences) > 50 {
		of.fences = of.fences[1:]
	}
	return h
}

func (r *referee) extend(h *searchHold, deadline int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.until = max(h.until, time.Duration(deadline)*time.Millisecond)
}

// end ends a hold, before its release is sent.
func (r *referee) end(h *searchHold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h != nil {
		of := r.lock(h.name)
		of.holds = slices.DeleteFunc(of.holds, func(other *searchHold) bool { return other == h })
	}
}

// cut notes that a client's connection has ended. It relies on what it holds until the deadline.
func (r *referee) cut(c *searchClient) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.names {
		for _, h := range of.holds {
			h.isCut = h.isCut || h.client == c
		}
	}
}

// resumed notes that a connection has taken over a hold. It returns false if that was lost.
func (r *referee) resumed(h *searchHold, deadline int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.lock(h.name)
	if h.wasLost {
		return true
	}
	h.isCut, h.until = false, time.Duration(deadline)*time.Millisecond
	for _, other := range of.holds {
		if other != h && !(other.shared && h.shared) && of.forced == 0 && !(other.isCut && other.until <= h.client.s.now()) {
			r.t.Errorf("client %d resumes %s (token %d), and client %d holds it (token %d)", h.client.number, h.name, h.fence, other.client.number, other.fence)
		}
	}
	if !slices.Contains(of.holds, h) { // its deadline had passed for the client
		of.holds = append(of.holds, h)
	}
	return true
}

func (r *referee) wasLost(h *searchHold) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return h.wasLost
}

func (r *referee) lost(c *searchClient) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.names {
		of.holds = slices.DeleteFunc(of.holds, func(h *searchHold) bool {
			isThis := h.client == c && !h.isCut
			h.wasLost = h.wasLost || isThis
			return isThis
		})
	}
}

func (r *referee) force(name string, begins bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if begins {
		r.lock(name).forced++
	} else {
		r.lock(name).forced--
	}
}
