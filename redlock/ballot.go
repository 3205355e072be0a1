package redlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// ballot is one script call put to every node, its answers counted as they
// come: an acquire, a release, or the question who holds a lock. (Extensions
// are counted by extension, many leases at once.)
type ballot struct {
	op     string
	quorum int
	yes    func(*Reply) bool // what a reply means
	width  int               // of that many replies of a node, all must be so
	all    bool              // every answer is wanted: none decides before the last

	mu      sync.Mutex // guards what follows
	answers []answer   // by node
	granted int
	refused int
	failed  int
	over    bool          // decided, or given up: later answers are ignored
	decided chan struct{} // closed when the ballot is decided

	one [1]script.Operation // what is asked, where it is one operation: one allocation less
	few [5]answer           // where answers are, for as many nodes: one allocation less
}

// answer is what one node said.
type answer struct {
	verdict verdict
	shown   *Reply // the array that it showed a holder with
	fence   uint64 // of an acquire that was granted: the fencing token
	even    bool   // all of its keys have that very one
	wanted  bool   // and somebody waits for one of them
	failure *NodeError
}

type verdict uint8

const (
	unanswered verdict = iota
	granted
	refused
	failed
)

func newBallot(op string, nodes, quorum int, yes func(*Reply) bool) *ballot {
	b := &ballot{op: op, quorum: quorum, yes: yes, width: 1, decided: make(chan struct{})}
	if nodes <= len(b.few) {
		b.answers = b.few[:nodes]
	} else {
		b.answers = make([]answer, nodes)
	}
	return b
}

// ask makes the ballot one on a single operation.
func (b *ballot) ask(o script.Operation) []script.Operation {
	b.one[0] = o
	return b.one[:]
}

// askEach makes it one on an operation for each key.
func (b *ballot) askEach(t *target, o script.Operation) []script.Operation {
	b.width = t.width()
	return t.each(b.one[:0], o)
}

// askToTake makes it one on taking all keys, or none.
func (b *ballot) askToTake(t *target, o script.Operation) []script.Operation {
	b.width = t.width()
	return t.taking(b.one[:0], o)
}

// quorumOf is ⌊n/2⌋+1: any two quorums of the same nodes have a node in common.
func quorumOf(nodes int) int { return nodes/2 + 1 }

// vote counts one node's answer. Answers after the deciding one are ignored.
func (b *ballot) Vote(node int, replies []Reply, failure *NodeError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.count(node, replies, failure)
	if b.isDecided() {
		b.over = true
		close(b.decided)
	}
}

// count needs mu.
func (b *ballot) count(node int, replies []Reply, failure *NodeError) {
	a := &b.answers[node]
	if failure != nil {
		a.verdict, a.failure = failed, failure
		b.failed++
		return
	}
	replies = replies[:min(b.width, len(replies))]
	decisive := &replies[0]
	if no := b.firstNo(replies); no != nil {
		a.verdict, decisive = refused, no
		b.refused++
	} else {
		a.verdict = granted
		a.noteFences(replies)
		b.granted++
	}
	if len(decisive.Array) > 0 {
		shown := *decisive
		a.shown = &shown
	}
}

// firstNo is nil where every reply is as wished. (What is called by its address must
// not be a copy: that would be an allocation for each.)
func (b *ballot) firstNo(replies []Reply) *Reply {
	for i := range replies {
		if !b.yes(&replies[i]) {
			return &replies[i]
		}
	}
	return nil
}

// noteFences reads the fencing tokens: negative where somebody waits.
func (a *answer) noteFences(replies []Reply) {
	a.even = true
	for i := range replies {
		n := replies[i].Int
		fence := uint64(max(n, -n))
		a.even = a.even && (i == 0 || fence == a.fence)
		a.fence = max(a.fence, fence)
		a.wanted = a.wanted || n < 0
	}
}

// isDecided tells whether further answers could still change the outcome, or
// what is to be said of it: a ballot that cannot be won any more is "held" once
// a quorum voted, and "no quorum" once none can. Never waited out: where every
// node that is up has voted, one of the two is so. The caller holds mu.
func (b *ballot) isDecided() bool {
	spare := len(b.answers) - b.quorum
	switch {
	case b.all:
		return b.granted+b.refused+b.failed == len(b.answers)
	case b.granted >= b.quorum:
		return true
	case b.failed > spare:
		return true
	case b.refused+b.failed > spare:
		return b.granted+b.refused >= b.quorum
	}
	return false
}

// wait waits until the ballot is decided, late comes, timeout after its begin, or
// ctx is done. The nodes that have not answered by then have failed, and the ballot
// is over.
func (b *ballot) wait(ctx context.Context, late <-chan time.Time, timeout time.Duration, l []*node.Lane) {
	select {
	case <-b.decided:
		return
	case <-late:
	case <-ctx.Done():
	}
	b.giveUp(timeout, l)
}

func (b *ballot) giveUp(timeout time.Duration, lanes []*node.Lane) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.over = true
	for i := range b.answers {
		if b.answers[i].verdict == unanswered {
			b.count(i, nil, &NodeError{Node: lanes[i].Name(), Op: b.op, Failure: FailedTimeout, Err: node.Silence(timeout)})
		}
	}
}

// What follows is for after wait: nothing changes any more.

func (b *ballot) won() bool { return b.granted >= b.quorum }

// lacksQuorum tells whether too few nodes could vote, rather than too few
// having voted as was wished.
func (b *ballot) lacksQuorum() bool { return b.failed > len(b.answers)-b.quorum }

// voters are the nodes that granted it, as bits.
func (b *ballot) voters() (nodes uint64) {
	for i := range b.answers {
		if b.answers[i].verdict == granted {
			nodes |= 1 << i
		}
	}
	return nodes
}

// fence is the fencing token of an acquire that was won: the largest that a
// granting node gave; and how many of them gave it.
func (b *ballot) fence() (fence uint64, nodes int) {
	for i := range b.answers {
		a := &b.answers[i]
		if a.verdict == granted && a.fence > fence {
			fence, nodes = a.fence, 0
		}
		if a.verdict == granted && a.fence == fence && a.even {
			nodes++
		}
	}
	return fence, nodes
}

// isWanted tells whether a node said that somebody waits for what was granted.
func (b *ballot) isWanted() bool {
	return slices.ContainsFunc(b.answers, func(a answer) bool { return a.verdict == granted && a.wanted })
}

// noteUnreachable counts as failed what is known to be down but was not waited
// for: who mends the nodes wants to know of all.
func (b *ballot) noteUnreachable(lanes []*node.Lane) {
	for i := range b.answers {
		if b.answers[i].verdict != unanswered {
			continue
		}
		if failure := lanes[i].Unreachable(b.op); failure != nil {
			b.count(i, nil, failure)
		}
	}
}

func (b *ballot) failures() []*NodeError {
	var all []*NodeError
	for i := range b.answers {
		if failure := b.answers[i].failure; failure != nil {
			all = append(all, failure)
		}
	}
	return all
}
