package redlock

import (
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
)

// rules are the decisions that safety depends on, one function each. A test can replace one
// to show what happens without it. Nothing else replaces one.
type rules struct {
	node.Rules

	// quorum returns how many of the nodes decide: any two quorums must share a node.
	quorum func(nodes int) int

	// needed returns how many nodes must grant an attempt. Readers need a full quorum, too.
	// Otherwise a writer's quorum might share no node with theirs.
	needed func(quorum int, shared bool) int

	// token returns an attempt's token. No two attempts may share one, or the cleanup
	// release of one would take the lock from the other.
	token func(Holder) string

	// start returns the instant from which validity counts. asked is when the ballot was
	// sent, and won is when it was won. The keys may be as old as the first.
	start func(asked, won time.Duration) time.Duration

	// drift returns how much sooner a lease ends here than on the nodes.
	drift func(ttl time.Duration) time.Duration

	// needsNoWriteBack reports whether so many nodes returned the fencing token that no
	// write-back is needed.
	needsNoWriteBack func(nodes, quorum int) bool

	// admission has the rules that decide which nodes may vote.
	admission admission.Rules

	// inTime reports whether a won ballot has any validity left.
	inTime func(now, deadline time.Duration) bool

	// notAfter returns the instant after which a node must not execute an attempt that
	// began at start. The client has abandoned it by then, and its release may be complete.
	notAfter func(start, nodeTimeout time.Duration) time.Duration

	// lossDue returns when LOST is reported: early enough for the holder to stop.
	lossDue func(deadline, guard time.Duration) time.Duration

	// releaseAt returns when a lease that was lost at now is released. That is not before
	// its deadline, because the holder may still be stopping.
	releaseAt func(now, deadline time.Duration) time.Duration

	// countsForExtension reports whether a node's answer counts for an extension. held is
	// whether the node held the lock. If it did not, it may be repaired, and counts from
	// the next round on.
	countsForExtension func(held bool) bool

	// isAlive reports whether an extension may count for a lease whose [Lease.Err] is err:
	// a lapsed one never comes back.
	isAlive func(err error) bool

	// laterDeadline returns the deadline after an extension, from the old and the new one:
	// no deadline moves back.
	laterDeadline func(old, extended time.Duration) time.Duration

	// adoptedDeadline returns the deadline of an earlier process's lease, from the recorded
	// one: a lapsed lease never comes back.
	adoptedDeadline func(recorded, now, ttl time.Duration) time.Duration

	// Safety does not depend on what follows.

	// reserveAfter is how many other holders a waiter sees before its first reservation.
	reserveAfter int
}

var soundRules = rules{
	Rules:              node.SoundRules,
	quorum:             ballot.QuorumOf,
	needed:             func(quorum int, _ bool) int { return quorum },
	token:              newToken,
	start:              func(asked, _ time.Duration) time.Duration { return asked },
	drift:              drift,
	needsNoWriteBack:   func(nodes, quorum int) bool { return nodes >= quorum },
	admission:          admission.SoundRules,
	inTime:             func(now, deadline time.Duration) bool { return now < deadline },
	notAfter:           func(start, nodeTimeout time.Duration) time.Duration { return start + nodeTimeout },
	lossDue:            func(deadline, guard time.Duration) time.Duration { return deadline - guard },
	releaseAt:          func(_, deadline time.Duration) time.Duration { return deadline },
	countsForExtension: func(held bool) bool { return held },
	isAlive:            func(err error) bool { return err == nil },
	laterDeadline:      func(old, extended time.Duration) time.Duration { return max(old, extended) },
	adoptedDeadline:    func(recorded, _, _ time.Duration) time.Duration { return recorded },
	reserveAfter:       reserveAfter,
}

// reserveAfter is how many other holders a waiter sees before it gets a reservation. Even
// if many hosts contend for one lock, few waiters see that many by chance.
const reserveAfter = 16

// drift returns how much sooner a lease ends here than on the nodes. It allows for clocks
// that run at slightly different rates.
func drift(ttl time.Duration) time.Duration { return admission.DriftAllowance(ttl) }
