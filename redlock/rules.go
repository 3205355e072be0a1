package redlock

import (
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
)

// rules are the decisions that safety rests on, one function each, so that a
// test can show what happens without it. Nothing but a test replaces one.
type rules struct {
	node.Rules

	// quorum is how many of so many nodes decide: any two quorums must have a
	// node in common.
	quorum func(nodes int) int

	// needed is how many of a quorum's size must grant an attempt: readers no fewer
	// than others, or a writer's quorum need have no node in common with theirs.
	needed func(quorum int, shared bool) int

	// token names an attempt: no two attempts may share one, or the release that
	// cleans up after one takes the lock from the other.
	token func(Holder) string

	// start is the instant that validity is counted from, of the two at which a
	// ballot was put to the nodes and won: the keys may be as old as the first.
	start func(asked, won time.Duration) time.Duration

	// drift is how much sooner a lease ends here than on the nodes.
	drift func(ttl time.Duration) time.Duration

	// agreed tells whether so many nodes that gave the fencing token make a
	// write-back needless.
	needsNoWriteBack func(nodes, quorum int) bool

	// admission are those by which a node may vote.
	admission admission.Rules

	// inTime tells whether a ballot that was won has any validity left.
	inTime func(now, deadline time.Duration) bool

	// notAfter is when a node must not act on an attempt any more that began at
	// start: it was given up by then, and its release may be past.
	notAfter func(start, nodeTimeout time.Duration) time.Duration

	// lossDue is when LOST is said: early enough for the holder to stop.
	lossDue func(deadline, guard time.Duration) time.Duration

	// giveBack is when a lease that was lost at now is released: not before its
	// deadline, for its holder may still be stopping.
	releaseAt func(now, deadline time.Duration) time.Duration

	// confirms tells whether a node's answer counts for an extension, of whether it
	// held the lock: where it did not it may be repaired, and counts from the next
	// round on.
	countsForExtension func(held bool) bool

	// alive tells whether an extension may count for a lease of which err is
	// what [Lease.Err] says: a lapsed one never comes back.
	isAlive func(err error) bool

	// later is the deadline after an extension, of the old and the new one: none
	// is ever moved back.
	laterDeadline func(old, extended time.Duration) time.Duration

	// adopted is the deadline of a lease that an earlier process had, of the one that was
	// recorded: a lapsed one never comes back.
	adoptedDeadline func(recorded, now, ttl time.Duration) time.Duration

	// Safety does not rest on what follows.

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

// reserveAfter is how many other holders a waiter sees before it gets a reservation. With
// as many contenders as a fleet has hosts that want one lock, few waiters see so many by
// chance.
const reserveAfter = 16

// drift is how much sooner a lease ends here than on the nodes, for clocks that do not run
// at quite the same rate.
func drift(ttl time.Duration) time.Duration { return admission.DriftAllowance(ttl) }
