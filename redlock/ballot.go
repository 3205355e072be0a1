package redlock

import (
	"context"
	"sync"
	"time"
)

// ballot is one script call put to every node, its answers counted as they
// come: an acquire, a release, or the question who holds a lock. (Extensions
// are counted by extension, many leases at once.)
type ballot struct {
	op     string
	quorum int
	yes    func(*Reply) bool // what a reply means
	all    bool              // every answer is wanted: none decides before the last

	mu      sync.Mutex // guards what follows
	answers []answer   // by node
	granted int
	refused int
	failed  int
	over    bool          // decided, or given up: later answers are ignored
	decided chan struct{} // closed when the ballot is decided
}

// answer is what one node said.
type answer struct {
	verdict verdict
	reply   Reply
	failure *NodeError
}

type verdict uint8

const (
	unanswered verdict = iota
	granted
	refused
	failed
)

func newBallot(op string, nodes int, yes func(*Reply) bool) *ballot {
	return &ballot{
		op:      op,
		quorum:  quorumOf(nodes),
		yes:     yes,
		answers: make([]answer, nodes),
		decided: make(chan struct{}),
	}
}

// quorumOf is ⌊n/2⌋+1: any two quorums of the same nodes have a node in common.
func quorumOf(nodes int) int { return nodes/2 + 1 }

// vote counts one node's answer. Answers after the deciding one are ignored.
func (b *ballot) vote(node int, replies []Reply, failure *NodeError) {
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
	switch a := &b.answers[node]; {
	case failure != nil:
		a.verdict, a.failure = failed, failure
		b.failed++
	case b.yes(&replies[0]):
		a.verdict, a.reply = granted, replies[0]
		b.granted++
	default:
		a.verdict, a.reply = refused, replies[0]
		b.refused++
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

// wait waits until the ballot is decided, timeout is over or ctx is done. The
// nodes that have not answered by then have failed, and the ballot is over.
func (b *ballot) wait(ctx context.Context, timeout time.Duration, l []*lane) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-b.decided:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	b.giveUp(timeout, l)
}

func (b *ballot) giveUp(timeout time.Duration, lanes []*lane) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.over = true
	for i := range b.answers {
		if b.answers[i].verdict == unanswered {
			b.count(i, nil, &NodeError{Node: lanes[i].node.Name, Op: b.op, Failure: FailedTimeout, Err: silence(timeout)})
		}
	}
}

// What follows is for after wait: nothing changes any more.

func (b *ballot) won() bool { return b.granted >= b.quorum }

// lacksQuorum tells whether too few nodes could vote, rather than too few
// having voted as was wished.
func (b *ballot) lacksQuorum() bool { return b.failed > len(b.answers)-b.quorum }

func (b *ballot) failures() []*NodeError {
	var all []*NodeError
	for i := range b.answers {
		if failure := b.answers[i].failure; failure != nil {
			all = append(all, failure)
		}
	}
	return all
}
