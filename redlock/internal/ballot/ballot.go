package ballot

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Ballot counts the answers to one script call that is sent to every node: an acquire, a release,
// or a query of the holder. (Package redlock counts extensions itself, many leases in one call.)
type Ballot struct {
	Op          string
	Quorum      quorum.System
	isVote      func(*redis.Reply) bool // whether a reply is a vote for the ballot
	Width       int                     // the number of a node's replies that must all be votes for it
	Order       []int                   // of an acquire of several names: the replies, sorted by the names
	WaitsForAll bool                    // only the last answer decides
	// RaiseTo is the value to which a node raises the counters after the acquire; 0: it does not.
	// The call ends with as many operations for that as it has keys.
	RaiseTo uint64

	mu       sync.Mutex // guards the fields below; no other mutex is taken while it is held
	Answers  []Answer   // by node
	Granted  quorum.Set
	Refused  quorum.Set
	Failed   quorum.Set
	blocked  []quorum.Set  // of an acquire of several names that was refused: the nodes that refused each, as Order
	isClosed bool          // decided or timed out: later answers are ignored
	decided  chan struct{} // closed when the ballot is decided

	oneOp      [1]script.Operation // room for a single operation: saves an allocation
	fewAnswers [5]Answer           // room for the answers of few nodes: saves an allocation
}

// Answer is what one node answered.
type Answer struct {
	Verdict Verdict
	Shown   *redis.Reply // the array that shows the holder
	Fence   uint64       // of a granted acquire: the fencing token
	counter uint64       // of a granted acquire: the least counter of its keys; otherwise 0
	wanted  bool         // another client waits for one of its locks
	Failure *node.Error  // nil: it has not failed
}

// Verdict is what a node's answer counts as.
type Verdict uint8

const (
	unanswered Verdict = iota
	Granted
	Refused
	Failed
)

// New makes a ballot of the given number of nodes. yes reports whether a reply is a vote for it.
func New(op string, nodes int, system quorum.System, yes func(*redis.Reply) bool) *Ballot {
	b := &Ballot{Op: op, Quorum: system, isVote: yes, Width: 1, decided: make(chan struct{})}
	if nodes <= len(b.fewAnswers) {
		b.Answers = b.fewAnswers[:nodes]
	} else {
		b.Answers = make([]Answer, nodes)
	}
	return b
}

// Ask sets the number of keys, and returns the room for their operations.
func (b *Ballot) Ask(width int) []script.Operation {
	b.Width = width
	return b.oneOp[:0]
}

// Vote counts one node's answer. Answers after the deciding one are ignored.
func (b *Ballot) Vote(voter int, replies []redis.Reply, failure *node.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isClosed {
		return
	}
	b.countLocked(voter, replies, failure)
	if b.isDecidedLocked() {
		b.isClosed = true
		close(b.decided)
	}
}

// countLocked counts one node's answer. The caller holds mu.
func (b *Ballot) countLocked(voter int, replies []redis.Reply, failure *node.Error) {
	a := &b.Answers[voter]
	if failure != nil {
		a.Verdict, a.Failure = Failed, failure
		b.Failed |= quorum.Of(voter)
		return
	}
	raised := b.RaiseTo > 0 && areRaised(replies[max(0, len(replies)-b.Width):])
	replies = replies[:min(b.Width, len(replies))]
	decisive := &replies[0]
	if no := b.firstRefusal(replies); no != nil {
		a.Verdict, decisive = Refused, no
		b.Refused |= quorum.Of(voter)
		if len(b.Order) > 0 && len(replies) == len(b.Order) {
			decisive = b.noteBlockedLocked(voter, replies)
		}
	} else {
		a.Verdict = Granted
		a.noteFences(replies)
		if raised {
			a.counter = max(a.counter, b.RaiseTo)
		}
		b.Granted |= quorum.Of(voter)
	}
	if len(decisive.Array) > 0 {
		shown := *decisive
		a.Shown = &shown
	}
}

// firstRefusal returns the first reply that is no vote for the ballot; nil: all are votes. (It takes
// addresses of the elements, because copies would escape, with an allocation each.)
func (b *Ballot) firstRefusal(replies []redis.Reply) *redis.Reply {
	for i := range replies {
		if !b.isVote(&replies[i]) {
			return &replies[i]
		}
	}
	return nil
}

// noteBlockedLocked notes which of several names a node refused, and returns the reply to the first of
// them. The caller holds mu.
func (b *Ballot) noteBlockedLocked(voter int, replies []redis.Reply) (first *redis.Reply) {
	if b.blocked == nil {
		b.blocked = make([]quorum.Set, len(b.Order))
	}
	for n, i := range slices.Backward(b.Order) {
		if reply := &replies[i]; !b.isVote(reply) && !script.IsFree(reply) {
			b.blocked[n] |= quorum.Of(voter)
			first = reply
		}
	}
	return cmp.Or(first, &replies[0])
}

// noteFences reads the fencing tokens. A negative one means that a client waits.
func (a *Answer) noteFences(replies []redis.Reply) {
	for i := range replies {
		n := replies[i].Int
		fence := uint64(max(n, -n))
		if a.Fence = max(a.Fence, fence); i == 0 || fence < a.counter {
			a.counter = fence
		}
		a.wanted = a.wanted || n < 0
	}
}

// areRaised reports whether the node raised the counters of all keys.
func areRaised(replies []redis.Reply) bool {
	for i := range replies {
		if replies[i].Err != nil || replies[i].Int != 1 {
			return false
		}
	}
	return true
}

// isDecidedLocked reports whether no further answer can change the outcome or its reason. A ballot that
// cannot be won means "held" once a quorum has voted, and "no quorum" once no quorum can vote. So
// it never waits for the timeout if every node that is up has voted. The caller holds mu.
func (b *Ballot) isDecidedLocked() bool {
	switch {
	case b.WaitsForAll:
		return b.Granted|b.Refused|b.Failed == quorum.First(len(b.Answers))
	case b.Won(), b.LacksQuorum():
		return true
	case b.Quorum.Blocks(b.Refused | b.Failed):
		return b.Quorum.Decides(b.Granted | b.Refused)
	}
	return false
}

// Wait waits until the ballot is decided, late fires (timeout after its begin), or ctx is done.
// Nodes that have not answered by then have failed, and the ballot ends.
func (b *Ballot) Wait(ctx context.Context, late <-chan time.Time, timeout time.Duration, l []*node.Lane) {
	select {
	case <-b.decided:
		return
	case <-late:
	case <-ctx.Done():
	}
	b.timeOut(timeout, l)
}

// timeOut ends the ballot: nodes that have not answered have failed.
func (b *Ballot) timeOut(timeout time.Duration, lanes []*node.Lane) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isClosed {
		return
	}
	b.isClosed = true
	for i := range b.Answers {
		if b.Answers[i].Verdict == unanswered {
			b.countLocked(i, nil, &node.Error{Node: lanes[i].Name(), Op: b.Op, Failure: node.FailedTimeout, Err: lanes[i].Late(timeout)})
		}
	}
}

// Call the methods below after Wait, when nothing changes any more.

// Won reports whether a quorum granted it.
func (b *Ballot) Won() bool { return b.Quorum.Decides(b.Granted) }

// FirstBlocked returns the first name, in the order of the names, that so many nodes refused that no quorum
// is left; otherwise the one that most nodes refused. It is an index of the replies.
func (b *Ballot) FirstBlocked() int {
	most := 0
	for n, nodes := range b.blocked {
		if b.Quorum.Blocks(nodes | b.Failed) {
			return b.Order[n]
		}
		if nodes.Len() > b.blocked[most].Len() {
			most = n
		}
	}
	if b.blocked == nil {
		return 0
	}
	return b.Order[most]
}

// LacksQuorum reports whether too few nodes could vote. (Otherwise enough voted, and too few of
// them for it.)
func (b *Ballot) LacksQuorum() bool { return b.Quorum.Blocks(b.Failed) }

// Fence returns the fencing token of a won acquire, which is the largest that a granting node
// returned. It also returns which of the granting nodes have counters not below it.
func (b *Ballot) Fence() (fence uint64, nodes quorum.Set) {
	for i := range b.Answers {
		if a := &b.Answers[i]; a.Verdict == Granted {
			fence = max(fence, a.Fence)
		}
	}
	for i := range b.Answers {
		if a := &b.Answers[i]; a.Verdict == Granted && a.counter >= fence {
			nodes |= quorum.Of(i)
		}
	}
	return fence, nodes
}

// Reserved returns the largest fencing token that the counters of a quorum of granting nodes have
// reached.
func (b *Ballot) Reserved() uint64 {
	return quorum.AtLeast(b.Quorum, func(node int) uint64 { return b.Answers[node].counter })
}

// HasGranted reports whether the node's vote counts for a won ballot.
func (b *Ballot) HasGranted(node int) bool { return b.Granted.Has(node) }

// IsWanted reports whether a granting node reported that another client waits.
func (b *Ballot) IsWanted() bool {
	return slices.ContainsFunc(b.Answers, func(a Answer) bool { return a.Verdict == Granted && a.wanted })
}

// NoteUnreachable counts nodes that are known to be down, but were not waited for, as failed. So
// the error names all nodes that must be fixed. The ballot has ended: no other goroutine counts.
func (b *Ballot) NoteUnreachable(lanes []*node.Lane) {
	for i := range b.Answers {
		if b.Answers[i].Verdict != unanswered {
			continue
		}
		if failure := lanes[i].Unreachable(b.Op); failure != nil {
			b.countLocked(i, nil, failure)
		}
	}
}

// Failures returns the failures of the nodes.
func (b *Ballot) Failures() []*node.Error {
	var all []*node.Error
	for i := range b.Answers {
		if failure := b.Answers[i].Failure; failure != nil {
			all = append(all, failure)
		}
	}
	return all
}

// IsGrant reports whether a reply means that the operation was done.
func IsGrant(reply *redis.Reply) bool { return reply.Int == 1 }
