package redlock

import (
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// rules are the decisions that safety depends on, one function each. Only tests replace one, to
// show that it is needed.
type rules struct {
	node.Rules

	// quorum returns which of the nodes decide: any two quorums must share a node.
	quorum func(quorum.System) quorum.System

	// needed returns which nodes must grant an attempt. Readers need a full quorum, too.
	// Otherwise a writer's quorum might share no node with theirs.
	needed func(s quorum.System, shared bool) quorum.System

	// token returns an attempt's token. Each attempt needs its own, or the cleanup release of one
	// would release the lock of the other.
	token func(Holder) string

	// start returns the instant from which validity counts. asked is when the ballot was sent,
	// and won is when it was won. The keys may be as old as asked.
	start func(asked, won time.Duration) time.Duration

	// drift returns how much sooner a lease ends here than on the nodes.
	drift func(ttl time.Duration) time.Duration

	// needsNoWriteBack reports whether no write-back is needed, if these nodes returned the
	// fencing token.
	needsNoWriteBack func(nodes quorum.Set, s quorum.System) bool

	// admission has the rules that decide which nodes may vote.
	admission admission.Rules

	// inTime reports whether a won ballot has any validity left.
	inTime func(now, deadline time.Duration) bool

	// notAfter returns the instant after which a node must not execute an attempt that began at
	// start. By then the client has abandoned the attempt, and its release may be complete.
	notAfter func(start, nodeTimeout time.Duration) time.Duration

	// lossDue returns when LOST is reported: early enough for the holder to stop.
	lossDue func(deadline, guard time.Duration) time.Duration

	// releaseAt returns when a lease that was lost at now is released. That is not before its
	// deadline, because the holder may not have stopped yet.
	releaseAt func(now, deadline time.Duration) time.Duration

	// countsForExtension reports whether a node's answer counts for an extension. held is whether
	// the node held the lock. If it did not, it may be repaired, and counts from the next round
	// on.
	countsForExtension func(held bool) bool

	// isExtended reports whether an extension or a downgrade succeeded. granted are the nodes that
	// confirmed it.
	isExtended func(granted quorum.Set, s quorum.System) bool

	// asksToShare reports whether an extension makes the lease shared on the nodes, because a
	// node may have missed the downgrade. downgraded is whether the lease is shared, and first is
	// whether a client requested the extension.
	asksToShare func(downgraded, first bool) bool

	// repairsAsShared reports whether a repair sets a lease as shared that was granted as
	// exclusive.
	repairsAsShared func(downgraded bool) bool

	// isAlive reports whether an extension may count for a lease whose [Lease.Err] is err: an
	// expired lease never becomes valid again.
	isAlive func(err error) bool

	// laterDeadline returns the deadline after an extension, from the old and the new one. No
	// extension moves a deadline back.
	laterDeadline func(old, extended time.Duration) time.Duration

	// adoptedDeadline returns the deadline of an earlier process's lease, from the recorded one.
	// An expired lease never becomes valid again.
	adoptedDeadline func(recorded, now, ttl time.Duration) time.Duration

	// reserve returns the end of a block of fencing tokens that begins at first. block is how
	// many tokens are requested. limit bounds how far the counters may be ahead of the nodes'
	// clocks.
	reserve func(first uint64, block int, limit uint64) uint64

	// writeBack returns the value to which the counters are raised if the nodes do not agree on a
	// fencing token: the end of its block.
	writeBack func(fence, blockEnd uint64) uint64

	// confirmedAt returns the instant from which a confirmation counts. asked is when it was
	// sent, and answered is when a quorum had answered.
	confirmedAt func(asked, answered time.Duration) time.Duration

	// countsForPass reports whether a node that confirmed a token counts for a pass.
	// repaired is whether a repair may have set its key again since the grant.
	countsForPass func(repaired bool) bool

	// isFresh reports whether a lock may be passed on at now, if its last confirmation
	// counts from confirmed.
	isFresh func(now, confirmed time.Duration) bool

	// mayBePassed reports whether a lease whose [Lease.Err] is err may be passed on.
	mayBePassed func(err error) bool

	// stillPasses reports whether a pass may become a grant. fresh is the result of the check
	// right before the grant, and gone is whether the client has ended in the meantime.
	stillPasses func(fresh, gone bool) bool

	// afterLoss returns the fencing token of a grant after the loss of a token that was being
	// passed on. lost is the token that the lost pass would have granted.
	afterLoss func(granted, lost uint64) uint64

	// adoptedBlock returns the last fencing token that grants may use without asking the nodes
	// after an adoption: the adopted lease's own.
	adoptedBlock func(fence uint64) uint64

	// forceWait returns how long FORCE waits after the nodes have recorded a token.
	forceWait func() time.Duration

	// walks returns how many nodes a scan reads. Every lock that a quorum has must be on at least
	// one of them.
	walks func(s quorum.System) int

	// isPossible reports whether a holder can have a token. shown are the nodes that show it, and
	// silent those that did not answer.
	isPossible func(shown, silent quorum.Set, s quorum.System) bool

	// Safety does not depend on the fields below.

	// exchangeAfter is how long after a pass the nodes get a token that names the client.
	exchangeAfter time.Duration
}

var soundRules = rules{
	Rules:              node.SoundRules,
	quorum:             func(s quorum.System) quorum.System { return s },
	needed:             func(s quorum.System, _ bool) quorum.System { return s },
	token:              newToken,
	start:              func(asked, _ time.Duration) time.Duration { return asked },
	drift:              drift,
	needsNoWriteBack:   func(nodes quorum.Set, s quorum.System) bool { return s.Decides(nodes) },
	admission:          admission.SoundRules,
	inTime:             func(now, deadline time.Duration) bool { return now < deadline },
	notAfter:           func(start, nodeTimeout time.Duration) time.Duration { return start + nodeTimeout },
	lossDue:            func(deadline, guard time.Duration) time.Duration { return deadline - guard },
	releaseAt:          func(_, deadline time.Duration) time.Duration { return deadline },
	countsForExtension: func(held bool) bool { return held },
	isExtended:         func(granted quorum.Set, s quorum.System) bool { return s.Decides(granted) },
	asksToShare:        func(downgraded, _ bool) bool { return downgraded },
	repairsAsShared:    func(downgraded bool) bool { return downgraded },
	isAlive:            func(err error) bool { return err == nil },
	laterDeadline:      func(old, extended time.Duration) time.Duration { return max(old, extended) },
	adoptedDeadline:    func(recorded, _, _ time.Duration) time.Duration { return recorded },
	reserve:            reserve,
	writeBack:          func(_, blockEnd uint64) uint64 { return blockEnd },
	confirmedAt:        func(asked, _ time.Duration) time.Duration { return asked },
	countsForPass:      func(repaired bool) bool { return !repaired },
	isFresh:            func(now, confirmed time.Duration) bool { return now-confirmed <= PassWindow },
	mayBePassed:        func(err error) bool { return err == nil },
	stillPasses:        func(fresh, gone bool) bool { return fresh && !gone },
	afterLoss:          func(granted, _ uint64) uint64 { return granted },
	adoptedBlock:       func(fence uint64) uint64 { return fence },
	forceWait:          func() time.Duration { return PassWindow + drift(PassWindow) },
	walks:              quorum.System.Blocking,
	isPossible:         func(shown, silent quorum.Set, s quorum.System) bool { return s.Decides(shown | silent) },
	exchangeAfter:      exchangeAfter,
}

// PassWindow is how long a lock may be passed on after its last confirmation began
// ([Lease.HandOver]). Force waits for it.
const PassWindow = 50 * time.Millisecond

// exchangeAfter is how long after a pass the nodes get a token that names its client.
const exchangeAfter = time.Second / 2

// drift returns how much sooner a lease ends here than on the nodes. It allows for clocks that
// run at slightly different rates.
func drift(ttl time.Duration) time.Duration { return admission.DriftAllowance(ttl) }

// reserve returns the end of a block of fencing tokens that begins at first. The end is at most
// limit, so that the counters do not get ahead of the nodes' clocks.
func reserve(first uint64, block int, limit uint64) uint64 {
	return max(first, min(first+uint64(max(block, 1))-1, limit))
}
