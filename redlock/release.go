package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Release releases the lock. It returns nil once a quorum of nodes has released it. It waits for
// at most the node timeout, or until ctx is done. If no quorum has released the lock by then, the
// error matches ErrNoQuorum, and the cause of ctx's end if ctx ended. The release is then
// repeated in the background until the lock has expired. The error matches ErrLost or ErrReleased
// if there is nothing to release. It also matches ErrLost if too many nodes no longer held the
// lock for a quorum to have had it.
func (l *Lease) Release(ctx context.Context) error {
	release, err := l.BeginRelease()
	if err != nil {
		return err
	}
	return release.Wait(ctx)
}

// PendingRelease is a release in progress.
type PendingRelease struct {
	q       *Quorum
	name    string
	b       *ballot.Ballot
	maybeOn *node.NodeSet // where the token may be
	passed  bool          // the lock was passed on: no node is asked

	mu         sync.Mutex           // guards the fields below; not held while onComplete runs; no other mutex is taken inside it
	completed  bool                 // the lock was passed on, and the next client was granted it
	voted      int                  // nodes that answered or failed
	unanswered int                  // nodes that failed and may have the token
	onComplete func(unanswered int) // called when all nodes have answered or failed; nil: Then was not called
}

// BeginRelease passes the release to the lanes of all nodes and does not wait for the answers. If
// an Acquire of the same Quorum begins later, every node executes it after the release.
// BeginRelease returns the errors of Release that are known without asking a node.
func (l *Lease) BeginRelease() (*PendingRelease, error) {
	k := l.keeper
	now := k.clock()
	if err := l.finish(released, "", now); err != nil {
		return nil, err
	}
	k.forget(l)
	r := l.releasing()
	k.q.call(k.q.releaseCall(&l.target, l.tokens(), l.maybeOn, r, now), now)
	return r, nil
}

func (l *Lease) releasing() *PendingRelease {
	q := l.keeper.q
	return &PendingRelease{q: q, name: l.name(), b: q.newBallot("release", ballot.IsGrant), maybeOn: l.maybeOn}
}

// Wait waits for the nodes as Release does.
func (r *PendingRelease) Wait(ctx context.Context) error {
	if r.passed {
		return nil // this host still has the lock
	}
	r.q.await(ctx, r.b)
	err := r.q.releaseError(r.name, r.b)
	if errors.Is(err, ErrNoQuorum) && ctx.Err() != nil { // the nodes may still answer in time
		return fmt.Errorf("%s: %w has released it yet, and the release goes on: %w", r.name, ErrNoQuorum, context.Cause(ctx))
	}
	return err
}

// Everywhere reports whether every node that may have had the lock has released it by now. Other
// clients can acquire the lock if a quorum has released it, unless nodes of that quorum fail. If
// the lock was passed on, Everywhere reports whether the next client was granted it.
func (r *PendingRelease) Everywhere() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isOverLocked() && r.unanswered == 0
}

// Passed reports whether the lock was passed on ([Lease.HandOver]). If so, Wait returns at once.
func (r *PendingRelease) Passed() bool { return r.passed }

// complete ends the release of a lock that was passed on: the next client was granted it.
func (r *PendingRelease) complete() {
	r.mu.Lock()
	r.completed = true
	onComplete := r.onComplete
	r.mu.Unlock()
	if onComplete != nil {
		onComplete(0)
	}
}

// isOverLocked reports whether all nodes have answered or failed. The caller holds mu.
func (r *PendingRelease) isOverLocked() bool { return r.completed || r.voted == len(r.b.Answers) }

// Then calls the given function once, when each node has answered or failed to answer. The
// argument is the number of nodes that may have the lock and did not answer. On these nodes the
// release is repeated in the background until the lock has expired. That is not reported.
//
// If the lock was passed on, Then calls the function with 0 when the next client is granted the
// lock. If that never happens, it calls the function when the nodes have answered the release.
//
// Then may call the function at once, on the caller's goroutine. The function must not block,
// unless the process is to do nothing more.
func (r *PendingRelease) Then(onComplete func(unanswered int)) {
	r.mu.Lock()
	over, unanswered := r.isOverLocked(), r.unanswered
	if !over {
		r.onComplete = onComplete
	}
	r.mu.Unlock()
	if over {
		onComplete(unanswered)
	}
}

// releaseVotes counts the answers to a release.
type releaseVotes PendingRelease

// Vote counts all answers, also those after the deciding one. A node that is down and never had
// the token has nothing to release.
func (v *releaseVotes) Vote(node int, replies []Reply, failure *NodeError) {
	r := (*PendingRelease)(v)
	r.b.Vote(node, replies, failure)
	r.mu.Lock()
	if r.voted++; failure != nil && r.maybeOn.Has(node) {
		r.unanswered++
	}
	over, onComplete, unanswered := r.isOverLocked(), r.onComplete, r.unanswered
	r.mu.Unlock()
	if over && onComplete != nil {
		onComplete(unanswered)
	}
}

// releaseError returns the result of a release. A node that did not hold the token has nothing to
// release. But if too many nodes did not hold it for a quorum to have had it, the lock was lost
// earlier. (In a change of the nodes, a majority of the old list had it if it was granted before the
// commit.)
func (q *Quorum) releaseError(name string, b *ballot.Ballot) error {
	switch {
	case b.Quorum.CannotRecover(b.Refused):
		return fmt.Errorf("%w: %d of %d nodes did not hold it any more", &LostError{Name: name, Reason: LostQuorum}, b.Refused.Len(), len(b.Answers))
	case b.LacksQuorum():
		return q.noQuorumError(name, b)
	}
	return nil
}

// abandon releases tokens on all nodes without waiting for them: the lanes repeat releases that
// are not answered. So it takes no context.
func (q *Quorum) abandon(t *target, token tokens, placed *node.NodeSet) {
	now := q.clock()
	q.call(q.releaseCall(t, token, placed, nil, now), now)
}

// Flush waits until the nodes have executed all earlier calls, such as the releases of failed
// attempts. Then they skip the waiters of this process: their turns would pass unused. Flush waits for
// at most the node timeout, or until ctx is done. It is for processes that end without Close.
func (q *Quorum) Flush(ctx context.Context) {
	b := q.newBallot("flush", ballot.IsGrant)
	b.WaitsForAll = true
	alive := script.Operation{Op: script.Release, Key: q.waiters.Quit(), Token: node.HostAlive}
	q.call(node.Call{Op: b.Op, Ops: append(b.Ask(1), alive), Placed: &node.NodeSet{}, Voter: b}, q.clock()) // each lane sends it after all earlier calls
	q.await(ctx, b)
}

// releaseCall returns the call that releases a lease's tokens. The lanes repeat it for max_ttl: a
// key that was set or extended before does not last longer.
func (q *Quorum) releaseCall(t *target, token tokens, placed *node.NodeSet, r *PendingRelease, now time.Duration) node.Call {
	q.slots.Free(t.key, t.slot)
	c := node.Call{
		Op:     "release",
		Until:  now + q.options.MaxTTL + drift(q.options.MaxTTL),
		Placed: placed,
	}
	if r == nil {
		c.Ops = token.releasing(make([]script.Operation, 0, t.width()), t)
		return c
	}
	c.Ops, c.Voter = token.releasing(r.b.Ask(t.width()), t), (*releaseVotes)(r)
	if token.former != "" {
		c.Voter = eitherToken{c.Voter, t.width()}
	}
	return c
}

// releasing appends the operations that release the tokens. For all keys, the former token comes
// first.
func (t tokens) releasing(ops []script.Operation, lock *target) []script.Operation {
	if t.former != "" {
		ops = lock.appendForKeys(ops, script.Operation{Op: script.Release, Token: t.former})
	}
	return lock.appendForKeys(ops, script.Operation{Op: script.Release, Token: t.current})
}

// eitherToken counts the answers to the release of two tokens as one answer for each key: a node
// has at most one of them.
type eitherToken struct {
	votes node.Voter
	width int // keys
}

// Vote counts a node's answer.
func (v eitherToken) Vote(node int, replies []Reply, failure *NodeError) {
	if failure == nil {
		for i := range v.width {
			if former := replies[i]; former.Err == nil && former.Int == 1 {
				replies[v.width+i] = former
			}
		}
		replies = replies[v.width:]
	}
	v.votes.Vote(node, replies, failure)
}

// ReleaseLost releases at once what the nodes still hold of a lost lease. Call it when the holder
// has stopped or exited. Otherwise the lease is released at its stated deadline. ReleaseLost
// does nothing to a lease that is not lost, and does not wait for the nodes.
func (l *Lease) ReleaseLost() {
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == lost && now < l.releaseAt {
		l.releaseAt = now
		l.timer.Reset(0) // onTimer releases it
	}
}

// TimeToRelease returns the time until a lost lease is released: until then the nodes may still hold
// its keys. It returns 0 if the lease is not lost, or no keys are left.
func (l *Lease) TimeToRelease() time.Duration {
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != lost || l.reason == LostForced && l.width() == 1 {
		return 0
	}
	return max(l.releaseAt-now, 0)
}
