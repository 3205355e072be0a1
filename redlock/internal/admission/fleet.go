package admission

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// NodeOptions describe one node.
type NodeOptions struct {
	Name    string
	Durable bool // the operator declares that no restart loses a write
	Joining bool // it is not in the old list of a change of the nodes
	Leaving bool // it is not in the new list
}

// Options describe the nodes whose votes count together.
type Options struct {
	Nodes        []NodeOptions
	Prefix       string // of the locks' keys
	Quorum       quorum.System
	Refusing     *quorum.Refusing // of a changing Quorum
	MaxTTL       time.Duration    // of this host
	NoQuarantine bool             // every node may vote at once
	Databases    bool             // some nodes are databases of a server: two of them can be on the same one
}

// Fleet is what a process knows about its nodes together: the reasons why the admission of one
// depends on the others. It is safe for concurrent use.
type Fleet struct {
	options  Options
	lists    []quorum.System // the old list and the new one; or the only one
	change   *change
	members  []*Member
	register *incarnationRegister
	jumps    clockJumps
	bounds   fenceBounds

	// maxTTL is the longest lease that any host may take on these nodes: this host's
	// max_ttl, or a larger one that other hosts recorded there. It never decreases.
	maxTTL atomic.Int64

	mu        sync.Mutex    // guards what follows; no other mutex is taken inside it
	losses    []CounterLoss // by node
	connected []bool        // by node
	runIDs    []string      // by node: of its Redis process, with Databases; "": not connected
	lastLost  []uint64      // by node: the last turn in which it was seen without counters; 0: never
	voted     quorum.Set    // nodes that were seen with a vote
	heard     time.Duration // BootTime of the last answer of a node; 0: none has answered
	unheard   quorum.Set    // nodes that did not answer since a gap in which none did
	elsewhere quorum.Set    // nodes that were admitted with another list when they were last seen
	isInUse   bool          // the nodes were used before this process, or a quorum has voted since
	announced bool          // the loss of a quorum's counters was reported
}

// NewFleet makes a fleet of nodes that are not connected yet.
func NewFleet(o Options) *Fleet {
	n := len(o.Nodes)
	f := &Fleet{options: o, losses: make([]CounterLoss, n), connected: make([]bool, n), runIDs: make([]string, n), lastLost: make([]uint64, n)}
	f.maxTTL.Store(int64(o.MaxTTL))
	f.jumps.nodes = make([]nodeClock, n)
	f.bounds = newFenceBounds(n)
	if f.lists = o.Quorum.Lists(); f.lists == nil {
		f.lists = []quorum.System{{}} // for tests without quorums
	}
	var names []string
	var before, after quorum.Set
	for i, node := range o.Nodes {
		names = append(names, node.Name)
		f.members = append(f.members, &Member{fleet: f, index: i, name: node.Name, durable: node.Durable})
		if !node.Joining {
			before |= quorum.Of(i)
		}
		if !node.Leaving {
			after |= quorum.Of(i)
		}
	}
	f.change = newChange(&f.options, f.lists, before, after, names)
	f.register = newIncarnationRegister(names, f.lists)
	return f
}

// Member returns the node with that index.
func (f *Fleet) Member(node int) *Member { return f.members[node] }

// LongestTTL returns the max_ttl of the fleet.
func (f *Fleet) LongestTTL() time.Duration { return time.Duration(f.maxTTL.Load()) }

// raiseMaxTTL adopts a larger max_ttl.
func (f *Fleet) raiseMaxTTL(ttl time.Duration) {
	for {
		known := f.maxTTL.Load()
		if int64(ttl) <= known || f.maxTTL.CompareAndSwap(known, int64(ttl)) {
			return
		}
	}
}

// onServerOf returns the name of an earlier node that is another database of the same server; "": there
// is none. (Without databases, the epoch has the name.)
func (f *Fleet) onServerOf(node int, runID string) string {
	if !f.options.Databases {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runIDs[node] = runID
	if i := slices.Index(f.runIDs[:node], runID); i >= 0 {
		return f.members[i].name
	}
	return ""
}

// Freshness returns how recent the knowledge of the nodes' reports is, and which nodes to look at
// now.
func (f *Fleet) Freshness(now time.Duration) (fresh Freshness, lookAt []int) {
	return f.register.freshness(now)
}

// LatestDeadline returns a deadline that no lease may exceed that nodes have granted or
// extended, if fresh was known when the calls were sent. Until then, no other host has a vote of
// another Redis under the name of one of them: such a vote waits for max_ttl and maxStaleness
// from when enough nodes report that Redis. (If nodes are looked at once per LookInterval, it is
// beyond all other deadlines. It may not be if a granting node hung, or this process or host was
// stopped.)
func (f *Fleet) LatestDeadline(fresh Freshness, nodes quorum.Set) time.Duration {
	since := fresh.Since
	if nodes&fresh.Silent != 0 {
		since = min(since, fresh.SilentSince)
	}
	if since == never {
		return never
	}
	longest := f.options.MaxTTL + maxStaleness
	return since + longest - DriftAllowance(longest)
}

// Applied records the state that follows from a verdict. It returns the nodes to look at now.
func (m *Member) Applied(state State, at time.Duration) (lookAt []int) {
	f := m.fleet
	f.mu.Lock()
	f.connected[m.index] = true
	if state != Refused {
		f.elsewhere &^= quorum.Of(m.index)
	}
	if state != Quarantined {
		f.losses[m.index] = CounterLoss{}
	}
	if state == Ready {
		f.noteVoterLocked(m.index)
	}
	f.mu.Unlock()
	if state == Refused {
		return f.register.noteNotVoting(m.index, at)
	}
	return nil
}

// Disconnected records that the node cannot be reached. It returns the nodes to look at now.
func (m *Member) Disconnected(at time.Duration) (lookAt []int) {
	m.fleet.mu.Lock()
	m.fleet.connected[m.index], m.fleet.runIDs[m.index] = false, ""
	m.fleet.mu.Unlock()
	return m.fleet.register.noteNotVoting(m.index, at)
}

// CounterLoss is when a node certainly had no fencing counters, in turns: from the answer that
// first showed its marker to the question whose answer last showed it. (An answer shows nothing
// about the time after its question.)
type CounterLoss struct {
	Lost        bool
	totalOf     quorum.Set // the lists of which a majority had none at one instant of it, by index
	all         quorum.Set // all lists
	first, last uint64
}

// Total reports whether a quorum had no counters at one instant of the loss.
func (l *CounterLoss) Total() bool { return l.totalOf != 0 && l.totalOf == l.all }

func (l *CounterLoss) contains(turn uint64) bool {
	return l.Lost && l.first <= turn && turn <= l.last
}

// CounterLoss returns when the node had no counters, if it is connected and still has
// none.
func (f *Fleet) CounterLoss(node int) CounterLoss {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counterLossLocked(node)
}

// counterLossLocked is CounterLoss for callers that hold mu.
func (f *Fleet) counterLossLocked(node int) CounterLoss {
	loss := f.losses[node]
	loss.Lost = loss.Lost && f.connected[node]
	return loss
}

// noteCounterLoss records that the node's marker was seen from turn first to turn last.
func (f *Fleet) noteCounterLoss(node int, lost bool, first, last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	loss := CounterLoss{Lost: lost, first: first, last: last}
	if was := f.losses[node]; was.first == first {
		loss.totalOf, loss.all = was.totalOf, was.all
	}
	f.losses[node] = loss
	if lost {
		f.lastLost[node] = last
	}
}

// noteTotalLoss finds out whether a quorum of nodes had no trustworthy counters at one instant,
// and records it for each of them. Then their earlier counters are lost and cannot be copied, so
// each node may restart its own. (No later grant had the vote of a node that was not admitted
// yet.) Losses one after the other do not add up: another daemon may have admitted the first
// node, with the counters of the others, before the last node lost its own. A node that cannot be
// reached does not count either, because it may have kept its counters.
func (f *Fleet) noteTotalLoss() {
	f.mu.Lock()
	defer f.mu.Unlock()
	losses := make([]CounterLoss, len(f.losses))
	for i := range losses {
		losses[i] = f.counterLossLocked(i)
	}
	for _, loss := range losses {
		if !loss.Lost {
			continue
		}
		for l, list := range f.lists {
			if !list.Decides(lostAt(losses, loss.first)) {
				continue
			}
			for i := range losses {
				if losses[i].contains(loss.first) {
					f.losses[i].totalOf |= quorum.Of(l)
					f.losses[i].all = quorum.First(len(f.lists))
				}
			}
		}
	}
}

// lostAt returns the nodes that had no counters at that turn.
func lostAt(losses []CounterLoss, turn uint64) (nodes quorum.Set) {
	for i := range losses {
		if losses[i].contains(turn) {
			nodes |= quorum.Of(i)
		}
	}
	return nodes
}

// noteHeard records when a node answered. After a longer time without an answer of any node, this process was
// stopped or cut off: the nodes may have been changed meanwhile.
func (f *Fleet) noteHeard(node int, at time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heard != 0 && at-f.heard > max(f.LongestTTL(), 2*LookInterval) {
		f.unheard = quorum.First(len(f.members))
	}
	f.heard = max(f.heard, at)
	f.unheard &^= quorum.Of(node)
}

// unheardNames returns the names of nodes that did not answer since this process was stopped or cut off.
func (f *Fleet) unheardNames() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.namesOf(f.unheard)
}

func (f *Fleet) namesOf(nodes quorum.Set) (names []string) {
	for i, m := range f.members {
		if nodes.Has(i) {
			names = append(names, m.name)
		}
	}
	return names
}

// noteElsewhere records that a node was admitted with another list.
func (f *Fleet) noteElsewhere(node int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.elsewhere |= quorum.Of(node)
}

// elsewhereNames returns the names of nodes that were admitted with another list. Hosts with that list
// may hold locks, so the other nodes of this host's list cannot all be new.
func (f *Fleet) elsewhereNames() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.namesOf(f.elsewhere)
}

// areAllNew reports whether a quorum lost its counters together with the node, and every node
// that votes by now has also lost its own since then.
func (f *Fleet) areAllNew(node int) bool {
	f.mu.Lock()
	loss, lastLost := f.counterLossLocked(node), append([]uint64(nil), f.lastLost...)
	f.mu.Unlock()
	for i := range f.members {
		if i != node && f.register.votes(i) && lastLost[i] < loss.first {
			return false
		}
	}
	return loss.Total()
}

// forgetAnnouncedLoss allows the next loss to be announced, once all nodes have counters.
func (f *Fleet) forgetAnnouncedLoss() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.losses {
		if f.counterLossLocked(i).Lost {
			return
		}
	}
	f.announced = false
}

// noteVoterLocked records that a node has a vote. The caller holds mu.
func (f *Fleet) noteVoterLocked(node int) {
	f.voted |= quorum.Of(node)
	f.isInUse = f.isInUse || f.lastLost[node] == 0 || f.lists[0].Decides(f.voted)
}

// IsNew reports whether this process saw all nodes without counters, and none of them with a vote
// before. Nodes that cannot be reached may have counters.
func (f *Fleet) IsNew() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.isInUse && !slices.Contains(f.lastLost, 0)
}

// announceLoss returns true once: then the loss of a quorum's counters is to be reported.
func (f *Fleet) announceLoss() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.announced
	f.announced = true
	return !was
}

// Warnings returns what could be better about the fleet as a whole, with the fix.
func (f *Fleet) Warnings() []string {
	var all []string
	if n := f.change.after.Len(); n%2 == 0 {
		all = append(all, fmt.Sprintf("%d nodes tolerate no more failures than %d would: use an odd number", n, n-1))
	}
	if longest := f.LongestTTL(); longest > f.options.MaxTTL {
		all = append(all, fmt.Sprintf("max_ttl is %v here and %v on other hosts, or was earlier: the nodes remember it, and quarantines last that long; use the same everywhere. To go back, stop all daemons, wait that long, HDEL %s epoch on every node", f.options.MaxTTL, longest, NodeKey))
	}
	return all
}
