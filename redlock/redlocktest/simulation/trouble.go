package simulation

import (
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// What goes wrong at more than one node, or not at a node.

// partition: one host and one node lose what they send each other, one way or
// both ways.
func partition(f *faults) (mishap, bool) {
	h, n := pick(f.random, f.w.hosts...), pick(f.random, f.w.nodes...)
	lasts := below(f.random, 900*time.Millisecond)
	return f.cutLinks(h, []*simNode{n}, lasts), true
}

// slowLink: what one host and one node send each other takes long.
func slowLink(f *faults) (mishap, bool) {
	h, n := pick(f.random, f.w.hosts...), pick(f.random, f.w.nodes...)
	l := h.links[n.index]
	l.slower.Store(int64(between(f.random, 20*time.Millisecond, 200*time.Millisecond)))
	return mishap{
		where: h.name + "-" + n.Name(), at: []any{l}, lasts: below(f.random, 1500*time.Millisecond),
		end: func() { l.slower.Store(0) },
	}, true
}

// majorityPartition: a host loses the quorum, for longer than some leases last.
func majorityPartition(f *faults) (mishap, bool) {
	h := pick(f.random, f.w.hosts...)
	return f.cutLinks(h, f.majority(), below(f.random, 2*time.Second)), true
}

func (f *faults) cutLinks(h *host, nodes []*simNode, lasts time.Duration) mishap {
	what := mishap{where: h.name, lasts: lasts}
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

// majorityHang: the fleet has no quorum for a while.
func majorityHang(f *faults) (mishap, bool) {
	what := mishap{where: "nodes", lasts: below(f.random, 1500*time.Millisecond)}
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

// majority is so many nodes that those left are no quorum.
func (f *faults) majority() []*simNode {
	nodes := make([]*simNode, 0, len(f.w.nodes))
	for _, i := range f.random.Perm(len(f.w.nodes))[:(len(f.w.nodes)+1)/2] {
		nodes = append(nodes, f.w.nodes[i])
	}
	return nodes
}

// daemonCrash: a daemon ends without releasing anything, and starts again.
func daemonCrash(f *faults) (mishap, bool) {
	h := pick(f.random, f.w.hosts...)
	if q, _ := h.daemon(); q == nil {
		return mishap{}, false
	}
	f.done.Go(func() { h.crash() })
	return mishap{where: h.name, lasts: between(f.random, 500*time.Millisecond, 1500*time.Millisecond), end: h.start}, true
}

// stepWall sets the wall clock of a host wrong by up to an hour.
func stepWall(f *faults) (mishap, bool) {
	h := pick(f.random, f.w.hosts...)
	h.setWall(between(f.random, -time.Hour, time.Hour))
	return mishap{where: h.name, lasts: time.Millisecond, end: nothing}, true
}

// mayLose tells whether a node may lose what it holds without a quorum being
// without it then. In some plans a
// quorum may: the order of fencing tokens is lost then, and only that.
func (f *faults) mayLose(n *simNode) bool {
	lost := f.alsoLost(n) + 1
	if lost >= len(f.w.nodes)/2+1 {
		if !f.w.plan.losesQuorums() {
			return false
		}
		f.w.record.blackout(f.w.record.now())
	}
	return true
}

// alsoLost is how many other nodes have no vote now.
func (f *faults) alsoLost(n *simNode) (others int) {
	for _, other := range f.w.nodes {
		if other != n && (f.isCrashed(other) || !other.isAdmitted()) {
			others++
		}
	}
	return others
}

// isAdmitted tells whether the node's own hash says that it may vote, and has not said
// so since before the node was another one.
func (n *simNode) isAdmitted() bool {
	epoch := n.Do("HGET", redlocktest.NodeKey, "epoch").Str
	return strings.HasPrefix(epoch, "admitted:"+n.RunID()) && !n.isFormer()
}

// word is that of the epoch of a node that is admitted.
func (n *simNode) word() string {
	return strings.Split(n.Do("HGET", redlocktest.NodeKey, "epoch").Str, ":")[2]
}

// isFormer tells of a node that is again what it was before, which nobody has noticed
// yet.
func (n *simNode) isFormer() bool {
	former, moved := n.former.Load().(string)
	return moved && former != "" && former == n.Do("HGET", redlocktest.NodeKey, "epoch").Str
}

// losesQuorums: in some plans a quorum of nodes may be without counters.
func (p *Plan) losesQuorums() bool { return p.Loss && p.Seed%8 == 0 }
