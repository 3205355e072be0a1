package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Traced has three nodes and two hosts with one client each, which want one lock. Report.Steps has what they
// did, in order, for a comparison with the model: packaging/model. Faults lose messages, and the data of
// nodes. A client begins an attempt only when the nodes have released its earlier ones, as in the model.
var Traced = &Scene{Name: "traced", hosts: 2, nodes: 3, play: (*world).traced}

// Step is one observable step of a traced simulation.
type Step struct {
	At    time.Duration
	What  StepKind
	Host  int
	Node  int
	Token int           // number of the attempt, from 1 on
	Op    rune          // of Executed: the opcode of ballot.lua
	Done  bool          // of Executed: the node did what was asked
	Vote  bool          // of Executed: the node has a vote
	Fence uint64        // of Granted, and of Executed if a node granted; from 1 on
	Left  time.Duration // of Granted and Extended: until the new deadline
}

// StepKind is what a host or a node did.
type StepKind string

const (
	Began    StepKind = "begins"   // an attempt
	Failed   StepKind = "fails"    // the attempt, which is released
	Granted  StepKind = "granted"  // the client has the lock
	Extends  StepKind = "extends"  // the nodes are asked for an extension
	Extended StepKind = "extended" // a quorum has extended the lease
	NotMoved StepKind = "not extended"
	Released StepKind = "releases" // the client has stopped. (A lost lease is released at its deadline, without this step)
	Forces   StepKind = "forces"   // an operator sends FORCE through this host
	Answered StepKind = "answered" // the FORCE
	Executed StepKind = "executes" // a node, an operation of the host
	LostData StepKind = "lost its data"
	Marked   StepKind = "quarantined" // the pending epoch was written
	Reads    StepKind = "reads"       // a host, the counters of the node
	Admitted StepKind = "admitted"
)

// maxTraced is how many attempts a trace has: the model has a bit for each.
const maxTraced = 28

// TraceTTL is the ttl of all leases of a traced simulation. It is max_ttl too, as in the model.
const TraceTTL = simulatedMaxTTL

// tracer records the steps of a traced simulation.
type tracer struct {
	w    *world
	lock string

	mu     sync.Mutex // guards what follows
	on     bool
	base   uint64         // the nodes' counters at the beginning
	tokens map[string]int // numbers of the attempts, by the id of the token
	forcer int            // the host of the last FORCE
}

// traced is Traced.
func (w *world) traced(ctx context.Context) {
	t := w.tracer
	for _, h := range w.hosts {
		for q, _ := h.daemon(); q.Status().Ready < len(w.nodes); {
			time.Sleep(time.Millisecond + 11)
		}
	}
	time.Sleep(heartbeat / 2)
	t.begin()
	work, end := context.WithCancel(ctx)
	w.work = work
	calm := make(chan struct{}, 1) // holds a value during an extension or a FORCE
	for i, h := range w.hosts {
		c := &tracedClient{w: w, host: h, random: w.plan.stream(streamClient + i), alone: calm}
		w.clients.Go(func() { c.run(ctx) })
	}
	w.faults.kinds = slices.DeleteFunc(w.faults.kinds, func(k faultKind) bool { return !slices.Contains(tracedFaults, k.name) })
	for span := 20 * time.Second; !t.isFull() && w.record.now() < span; time.Sleep(below(w.random, 700*time.Millisecond)) {
		w.faults.one(pick(w.random, w.faults.kinds...))
	}
	end()
	w.clients.Wait()
	t.end()
	w.faults.heal()
}

// tracedFaults are the faults that the model has, too.
var tracedFaults = []string{"lost requests", "lost replies", "cut connections", "unreachable node", "partition", "flush", "crash without data"}

// tracedDelay makes each request reach its node before any node's answer is received: the model has no
// request that a daemon sends while an earlier one is on its way.
func (w *world) tracedDelay(random *rand.Rand) func() (request, reply time.Duration) {
	var mu sync.Mutex
	return func() (request, reply time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		return between(random, 200*time.Microsecond, 1500*time.Microsecond), between(random, 1600*time.Microsecond, 4*time.Millisecond)
	}
}

// begin sets the counters of all nodes so far ahead that no clock affects them, and starts the record.
func (t *tracer) begin() {
	base := uint64(time.Now().Add(time.Hour).UnixMicro())
	for _, n := range t.w.nodes {
		n.setCounter(t.lock, base)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on, t.base = true, base
}

func (t *tracer) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on = false
}

func (t *tracer) isFull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.tokens) >= maxTraced
}

// add records a step.
func (t *tracer) add(s Step) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addLocked(s)
}

func (t *tracer) addLocked(s Step) {
	if !t.on {
		return
	}
	s.At = t.w.record.now()
	s.Fence -= min(s.Fence, t.base)
	t.w.record.report.Steps = append(t.w.record.report.Steps, s)
}

// began records an attempt, and gives its token a number.
func (t *tracer) began(h *host, token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens[idOf(token)] = len(t.tokens) + 1
	t.addLocked(Step{What: Began, Host: h.index, Token: len(t.tokens)})
}

// forces records a FORCE.
func (t *tracer) forces(h *host) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forcer = h.index
	t.addLocked(Step{What: Forces, Host: h.index})
}

// executed records the operations of a command that a node has executed.
func (t *tracer) executed(n *simNode, c redlock.Command, reply redlock.Reply) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if redlocktest.ScriptName(c) == "epoch" && reply.Int == 1 {
		switch seen, written := c[4], c[5]; {
		case strings.HasPrefix(written, "pending:") && wordOf(seen) != wordOf(written):
			t.addLocked(Step{What: Marked, Node: n.index})
		case strings.HasPrefix(written, "admitted:") && strings.HasPrefix(seen, "pending:"):
			t.addLocked(Step{What: Admitted, Node: n.index})
		}
		return
	}
	letters, args := operationsOf(c)
	for i, letter := range letters {
		if letter == 'c' {
			t.addLocked(Step{What: Reads, Node: n.index})
		}
		if strings.ContainsRune("arefpzx", letter) && c[4+i] == redlock.DefaultPrefix+t.lock && i < len(reply.Array) {
			t.addOperation(n, letter, args[0], &reply.Array[i])
		}
		args = args[argumentsOf[letter]:]
	}
}

// addOperation records an operation of a traced attempt. A node that refused it because it came too late did nothing,
// and is not recorded. The caller holds mu.
func (t *tracer) addOperation(n *simNode, letter rune, token string, reply *redlock.Reply) {
	s := Step{What: Executed, Node: n.index, Op: letter, Token: t.tokens[idOf(token)], Vote: true}
	s.Host, _ = strconv.Atoi(strings.TrimPrefix(field(token, "host"), "h"))
	s.Host--
	if letter == 'z' || letter == 'x' {
		s.Host = t.forcer
	}
	switch {
	case s.Token == 0: // it is of an attempt before the trace
		return
	case reply.Err != nil && strings.HasPrefix(reply.Err.Error(), "EPOCH"), reply.Err != nil && strings.HasPrefix(reply.Err.Error(), "COUNTERS"):
		s.Vote = false
	case reply.Err != nil:
		return
	case letter == 'a':
		if s.Done = reply.Int > 0; s.Done {
			s.Fence = uint64(reply.Int)
		}
	default:
		s.Done = reply.Int == 1
	}
	t.addLocked(s)
}

// wordOf returns the random word of an epoch.
func wordOf(epoch string) string {
	if words := strings.Split(epoch, ":"); len(words) > 2 {
		return words[2]
	}
	return ""
}

// tracedClient is the only client of its host.
type tracedClient struct {
	w      *world
	host   *host
	random *rand.Rand
	alone  chan struct{}
}

func (c *tracedClient) run(ctx context.Context) {
	t := c.w.tracer
	for c.w.work.Err() == nil && !t.isFull() {
		c.settle()
		time.Sleep(below(c.random, pick(c.random, 10*time.Millisecond, 300*time.Millisecond)))
		q, life := c.host.daemon()
		if oneIn(c.random, 5) {
			c.alone <- struct{}{}
			t.forces(c.host)
			forced := (&operator{w: c.w}).force(ctx, c.host, q, t.lock)
			t.add(Step{What: Answered, Host: c.host.index, Done: forced})
			<-c.alone
			continue
		}
		if l, g := c.acquire(ctx, q, life); l != nil {
			c.use(ctx, l, g)
		}
	}
}

// settle waits until no message of an earlier attempt is on its way, and no node has its token.
func (c *tracedClient) settle() {
	time.Sleep(nodeTimeout + 10*time.Millisecond)
	for c.isOnNodes() {
		time.Sleep(time.Millisecond + 11)
	}
}

func (c *tracedClient) isOnNodes() (found bool) {
	for _, n := range c.w.nodes {
		n.Tokens(func(_, token string) { found = found || field(token, "host") == c.host.name })
	}
	return found
}

func (c *tracedClient) acquire(ctx context.Context, q *redlock.Quorum, life int) (*redlock.Lease, *Grant) {
	t := c.w.tracer
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := redlock.Request{Name: t.lock, TTL: TraceTTL}
	record := c.w.record.request(c.host, life, c.host.name+".1", &r)
	r.Holder, r.OnLost = record.holder(), record.lost
	r.BeforeAttempt = func(token redlock.Record) { t.began(c.host, token.Token) }
	r.Failed = func(err error) {
		record.failed(err)
		t.add(Step{What: Failed, Host: c.host.index})
		cancel() // it makes no second attempt
	}
	l, err := q.Acquire(ctx, r)
	if err != nil {
		record.ended(err)
		return nil, nil
	}
	g := record.granted(l)
	c.w.lookAtGrant(g)
	t.add(Step{What: Granted, Host: c.host.index, Fence: l.Fence(), Left: l.Validity()})
	return l, g
}

// use holds the lock for a while, and extends it sometimes. Then it releases the lock, or waits until it is lost.
func (c *tracedClient) use(ctx context.Context, l *redlock.Lease, g *Grant) {
	t := c.w.tracer
	for range pick(c.random, 0, 0, 1, 2, 3) {
		time.Sleep(nodeTimeout + below(c.random, pick(c.random, 50*time.Millisecond, TraceTTL)))
		if l.Err() == nil {
			c.alone <- struct{}{}
			c.extend(ctx, l)
			<-c.alone
		}
	}
	time.Sleep(below(c.random, 100*time.Millisecond))
	if oneIn(c.random, 5) {
		<-l.Lost()
	}
	g.releasing()
	if l.Err() != nil {
		time.Sleep(max(l.Validity(), 0)) // it is released at its deadline
		return
	}
	t.add(Step{What: Released, Host: c.host.index})
	_ = l.Release(ctx)
}

func (c *tracedClient) extend(ctx context.Context, l *redlock.Lease) {
	t := c.w.tracer
	t.add(Step{What: Extends, Host: c.host.index})
	if err := l.Extend(ctx, TraceTTL); err != nil {
		t.add(Step{What: NotMoved, Host: c.host.index})
		return
	}
	t.add(Step{What: Extended, Host: c.host.index, Left: l.Validity()})
	time.Sleep(nodeTimeout)
}
