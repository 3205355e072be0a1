package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// faults injects faults, several at a time, and ends each of them.
type faults struct {
	w       *world
	random  *rand.Rand
	kinds   []faultKind // each is repeated as often as its weight says
	gap     time.Duration
	done    sync.WaitGroup // faults that have not ended
	foreign atomic.Bool    // a node got the tokens of another node

	mu          sync.Mutex // guards what follows; not held during any call
	faultCounts map[any]*faultCount
	crashed     map[*simNode]bool
	stepped     map[*simNode]time.Duration
	restarted   map[*simNode]time.Duration
	forgot      map[*simNode]time.Duration // when a node lost its data
}

// faultCount counts the faults of one place: a node or a link.
type faultCount struct {
	now   int           // active faults
	ended time.Duration // when the last one ended
}

// faultKind is one kind of fault. begin starts the fault; ok is false if it is impossible now.
type faultKind struct {
	name   string
	weight int
	in     func(Plan) bool // nil: in all plans
	begin  func(f *faults) (what activeFault, ok bool)
}

// activeFault is one fault.
type activeFault struct {
	where string
	at    []any // the places that it affects
	lasts time.Duration
	end   func()
}

func faultKinds() []faultKind {
	return []faultKind{
		{"slow node", 4, nil, atNode(900, slow)},
		{"lost requests", 4, nil, atNode(300, loseRequests)},
		{"lost replies", 4, nil, atNode(300, loseReplies)},
		{"cut connections", 3, nil, atNode(20, cut)},
		{"late connections", 6, nil, atNode(900, cutLate)},
		{"hang", 4, nil, atNode(900, hang)},
		{"unreachable node", 3, nil, atNode(900, unreachable)},
		{"crash with data", 3, nil, atNode(500, crashWithData)},
		{"script flush", 2, nil, atNode(20, flushScripts)},
		{"refusals", 2, nil, atNode(400, refuseAll)},
		{"clock rate", 1, nil, atNode(20, changeRate)},
		{"slow link", 3, nil, slowLink},
		{"partition", 4, nil, partition},
		{"majority partition", 2, nil, majorityPartition},
		{"majority hang", 1, nil, majorityHang},
		{"daemon crash", 2, forgetting, daemonCrash},
		{"moved address", 20, moving, atNode(20, moveAddress)},
		{"crash without data", 4, losing, atNode(500, crashWithoutData)},
		{"flush", 2, losing, atNode(20, flushAllKeys)},
		{"flush before vouching", 2, losing, atNode(2500, flushBeforeVouching)},
		{"resynchronisation", 2, losing, atNode(300, resync)},
		{"older data", 2, losing, atNode(400, restoreOlder)},
		{"clock step", 6, stepping, atNode(20, stepClock)},
		{"wall clock step", 3, stepping, stepWall},
	}
}

func forgetting(p Plan) bool { return !p.Restarts }
func moving(p Plan) bool     { return p.Moves }
func losing(p Plan) bool     { return p.Loss }
func stepping(p Plan) bool   { return p.Steps }

// FaultKinds returns the names of all faults that Report.Faults can count.
func FaultKinds() []string {
	names := []string{"pause", "cancellation", "request lost", "reply lost", "connection killed", "dial refused", "force", "hand-over", "downgrade", "pass", "pass abandoned", "exchange", "list", "kept", "kept and released", "kept across a restart", "foreign lock", "daemon restart", "adoption"}
	for _, kind := range faultKinds() {
		names = append(names, kind.name)
	}
	return names
}

func newFaults(w *world) *faults {
	f := &faults{
		w: w, random: w.plan.stream(streamFaults), faultCounts: map[any]*faultCount{}, crashed: map[*simNode]bool{},
		stepped: map[*simNode]time.Duration{}, forgot: map[*simNode]time.Duration{}, restarted: map[*simNode]time.Duration{},
	}
	f.gap = pick[time.Duration](f.random, 100, 200, 300, 500, 1000) * time.Millisecond
	for _, kind := range faultKinds() {
		for range kind.weight {
			if kind.in == nil || kind.in(w.plan) {
				f.kinds = append(f.kinds, kind)
			}
		}
	}
	return f
}

// run injects faults for this long.
func (f *faults) run(span time.Duration) {
	for end := f.w.record.now() + span; f.w.record.now() < end; time.Sleep(below(f.random, f.gap)) {
		f.one(pick(f.random, f.kinds...))
	}
}

func (f *faults) one(kind faultKind) {
	what, ok := kind.begin(f)
	if !ok {
		return
	}
	f.w.record.count(kind.name)
	f.w.record.event(Event{Actor: what.where, What: kind.name, Note: fmt.Sprintf("for %v", what.lasts)})
	f.faultCount(what.at, 1)
	f.done.Go(func() {
		time.Sleep(what.lasts)
		what.end()
		f.faultCount(what.at, -1)
		f.w.record.event(Event{Actor: what.where, What: "recovers", Note: "from " + kind.name})
	})
}

// faultCount adds n to the number of active faults of some places.
func (f *faults) faultCount(places []any, n int) {
	now := f.w.record.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, place := range places {
		if f.faultCounts[place] == nil {
			f.faultCounts[place] = &faultCount{}
		}
		t := f.faultCounts[place]
		t.now, t.ended = t.now+n, now
	}
}

// healthySince returns, for each host, since when it, the node and their link have had no fault.
func (f *faults) healthySince(n *simNode) []time.Duration {
	now := f.w.record.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	since := make([]time.Duration, len(f.w.hosts))
	for i, h := range f.w.hosts {
		since[i] = max(f.endOf(n, now), f.endOf(h.links[n.index], now))
	}
	return since
}

// connectedSince is healthySince, and the host's lane has been connected.
func (f *faults) connectedSince(n *simNode) []time.Duration {
	now, since := f.w.record.now(), f.healthySince(n)
	for i, h := range f.w.hosts {
		since[i] = max(since[i], h.links[n.index].connectedSince(now))
	}
	return since
}

// endOf returns when the last fault of a place ended: now, if one is active. The caller holds mu.
func (f *faults) endOf(place any, now time.Duration) time.Duration {
	switch t := f.faultCounts[place]; {
	case t == nil:
		return 0
	case t.now > 0:
		return now
	default:
		return t.ended
	}
}

// heal waits until all faults have ended, and sets the nodes' clocks right.
func (f *faults) heal() {
	f.done.Wait()
	for _, n := range f.w.nodes {
		n.StepClock(-f.stepped[n])
	}
	f.w.record.event(Event{Actor: "all", What: "recovers"})
}

// The faults below affect more than one node, or no node.

// partition makes what one host and one node send each other disappear, in one or both directions.
func partition(f *faults) (activeFault, bool) {
	h, n := pick(f.random, f.w.hosts...), pick(f.random, f.w.nodes...)
	lasts := below(f.random, 900*time.Millisecond)
	return f.cutLinks(h, []*simNode{n}, lasts), true
}

// slowLink delays the messages between one host and one node.
func slowLink(f *faults) (activeFault, bool) {
	h, n := pick(f.random, f.w.hosts...), pick(f.random, f.w.nodes...)
	l := h.links[n.index]
	l.slower.Store(int64(between(f.random, 20*time.Millisecond, 200*time.Millisecond)))
	return activeFault{
		where: h.name + "-" + n.Name(), at: []any{l}, lasts: below(f.random, 1500*time.Millisecond),
		end: func() { l.slower.Store(0) },
	}, true
}

// majorityPartition cuts a host off from so many nodes that it has no quorum, for longer than some
// leases last.
func majorityPartition(f *faults) (activeFault, bool) {
	h := pick(f.random, f.w.hosts...)
	return f.cutLinks(h, f.majority(), below(f.random, 2*time.Second)), true
}

func (f *faults) cutLinks(h *host, nodes []*simNode, lasts time.Duration) activeFault {
	what := activeFault{where: h.name, lasts: lasts}
	requests := oneIn(f.random, 2)
	replies := !requests || oneIn(f.random, 2)
	for _, n := range nodes {
		l := h.links[n.index]
		what.where += "-" + n.Name()
		what.at = append(what.at, l)
		l.losesRequests.Store(requests)
		l.losesReplies.Store(replies)
	}
	what.end = func() {
		for _, n := range nodes {
			h.links[n.index].losesRequests.Store(false)
			h.links[n.index].losesReplies.Store(false)
		}
	}
	return what
}

// majorityHang leaves all hosts without a quorum for a while.
func majorityHang(f *faults) (activeFault, bool) {
	what := activeFault{where: "nodes", lasts: below(f.random, 1500*time.Millisecond)}
	nodes := f.majority()
	for _, n := range nodes {
		n.Hang()
		what.where += " " + n.Name()
		what.at = append(what.at, n)
	}
	what.end = func() {
		for _, n := range nodes {
			n.Resume()
		}
	}
	return what, true
}

// majority returns so many random nodes that the others are no quorum.
func (f *faults) majority() []*simNode {
	nodes := make([]*simNode, 0, len(f.w.nodes))
	for _, i := range f.random.Perm(len(f.w.nodes))[:(len(f.w.nodes)+1)/2] {
		nodes = append(nodes, f.w.nodes[i])
	}
	return nodes
}

// daemonCrash ends a daemon without releasing its leases, and starts it again.
func daemonCrash(f *faults) (activeFault, bool) {
	h := pick(f.random, f.w.hosts...)
	if q, _ := h.daemon(); q == nil {
		return activeFault{}, false
	}
	f.done.Go(func() { h.crash() })
	return activeFault{where: h.name, lasts: between(f.random, 500*time.Millisecond, 1500*time.Millisecond), end: h.start}, true
}

// stepWall makes the wall clock of a host wrong by up to an hour.
func stepWall(f *faults) (activeFault, bool) {
	h := pick(f.random, f.w.hosts...)
	h.setWall(between(f.random, -time.Hour, time.Hour))
	return activeFault{where: h.name, lasts: time.Millisecond, end: nothing}, true
}

// mayLose reports whether a node may lose its data now. At least a quorum must keep its data,
// except in some plans. In these, the order of fencing tokens may be lost, but nothing else.
func (f *faults) mayLose(n *simNode) bool {
	lost := f.alsoLost(n) + 1
	if lost >= len(f.w.nodes)/2+1 {
		if !f.w.plan.losesQuorums() {
			return false
		}
		f.w.record.noteCounterLoss(f.w.record.now())
	}
	return true
}

// alsoLost returns how many other nodes cannot vote now.
func (f *faults) alsoLost(n *simNode) (others int) {
	for _, other := range f.w.nodes {
		if other != n && (f.isCrashed(other) || !other.isAdmitted()) {
			others++
		}
	}
	return others
}

// isAdmitted reports whether the node's own hash says that it may vote. After a move of the address
// it is false until a daemon has written a new epoch.
func (n *simNode) isAdmitted() bool {
	epoch := n.Do("HGET", redlocktest.NodeKey, "epoch").Str
	return strings.HasPrefix(epoch, "admitted:"+n.RunID()) && !n.wasMoved()
}

// word returns the random word in the epoch of an admitted node.
func (n *simNode) word() string {
	return strings.Split(n.Do("HGET", redlocktest.NodeKey, "epoch").Str, ":")[2]
}

// wasMoved reports whether the address was moved, and no daemon has written a new epoch since.
func (n *simNode) wasMoved() bool {
	epoch, moved := n.movedEpoch.Load().(string)
	return moved && epoch != "" && epoch == n.Do("HGET", redlocktest.NodeKey, "epoch").Str
}

// losesQuorums reports whether the plan lets a quorum of nodes lose its counters. Some plans do.
func (p *Plan) losesQuorums() bool { return p.Loss && p.Seed%8 == 0 }
