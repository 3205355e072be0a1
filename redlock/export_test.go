package redlock

import (
	"context"
	"math"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// FixRandomTimes makes a Quorum take its random times from a test. Its lanes do not wait for
// other goroutines to add calls, because that would depend on Go's scheduler.
func FixRandomTimes(o *Options, jitter func(who string, n time.Duration) time.Duration) {
	h := o.ownHooks()
	h.Jitter = jitter
	h.Gather = func() {}
}

// FillWindows lets a lane send as many groups at a time as any connection allows, even if the
// round trip is short.
func FillWindows(o *Options) {
	o.ownHooks().GroupsUnderWay = func(int) int { return node.MaxUnderWay }
}

// CommitUnchecked commits a change of the nodes although hosts with the old list may be at work: as if
// these were stopped for the moment.
func CommitUnchecked(q *Quorum) error {
	if err := q.admission.Commit(q.clock()); err != nil {
		return err
	}
	q.lookAtAll()
	return q.awaitCommit(context.Background())
}

// ExchangeSoon makes the exchange after a pass happen sooner, or never.
func ExchangeSoon(o *Options, soon bool) {
	o.ownHooks().exchangeAfter = time.Hour
	if soon {
		o.ownHooks().exchangeAfter = PassWindow + 10*time.Millisecond
	}
}

// PassDuringForce passes a lease on. FORCE looks for its token between the two steps of the pass:
// when the next lease has the token, but only the earlier one is in the keeper's queue.
func PassDuringForce(l *Lease, r Request) (next *Lease) {
	k := l.keeper
	next = l.succeed(&r, k.clock())
	k.loseForced(l.token)
	k.forget(l)
	k.watch(next, next.extensionDue())
	return next
}

// ForceInBallot makes FORCE look for a token of a lease that is in a ballot. IsForced reports whether
// the Quorum still remembers that, and ForcedFor is for how long it does.
func ForceInBallot(q *Quorum, token string) { q.keeper.forceToken(token) }

func IsForced(q *Quorum, token string) bool { return q.keeper.wasForced(&Lease{token: token}) }

func ForcedFor(q *Quorum) time.Duration { return node.SilenceLimit(q.options.NodeTimeout) }

// BelieveFences makes a Quorum believe every fencing token, until it reads the nodes' clocks again.
func BelieveFences(q *Quorum) {
	for i := range q.lanes {
		q.admission.NoteClock(i, admission.ClockSample{Known: true, Low: math.MaxInt64 - 2*365*24*time.Hour})
	}
}

// ownHooks returns a copy of the hooks that only this Quorum uses, so that it can be changed.
func (o *Options) ownHooks() *hooks {
	own := noHooks
	if o.hooks != nil {
		own = *o.hooks
	}
	o.hooks = &own
	return o.hooks
}

// CounterFieldOf returns the field that holds the fencing counter of a key.
func CounterFieldOf(key string) string {
	field := script.CounterOf(key)
	return string(field[:])
}

// WhenWon makes a Quorum call then before it checks whether an attempt was won in time.
func WhenWon(o *Options, then func()) {
	o.ownHooks().won = then
}

// WhenConfirmed makes a Quorum call then when a quorum of nodes has extended a lease, before the lease
// has its new deadline.
func WhenConfirmed(o *Options, then func()) {
	o.ownHooks().confirmed = then
}

// WhenConfirming makes a Quorum call then before it sends the confirmation of a passed lease.
func WhenConfirming(o *Options, then func()) {
	o.ownHooks().confirming = then
}

// Missed makes the Quorum learn that this host's clock missed a duration.
func (q *Quorum) Missed(d time.Duration) {
	q.admission.AddMissed(d)
	q.keeper.age()
}

// Gate makes all lanes call pass before they take the calls that wait for them.
func Gate(o *Options, pass func()) { o.ownHooks().Gather = pass }

// LaterWord returns a word that is later than the one in the given epoch.
func LaterWord(text string) string { return admission.LaterWord(text) }

// ReleaseError returns the error of a release of x that these nodes refused and that all others
// confirmed, in a change of the nodes from before to after in which the nodes of refusing refuse hosts
// with the old list. Each text has the letters of nodes.
func ReleaseError(before, after, refusing, refused string) error {
	set := func(letters string) (nodes quorum.Set) {
		for _, letter := range letters {
			nodes |= quorum.Of(int(letter - 'a'))
		}
		return nodes
	}
	var r quorum.Refusing
	for _, letter := range refusing {
		r.Note(int(letter-'a'), true)
	}
	all := set(before) | set(after)
	b := ballot.New("release", all.Len(), quorum.Changing(set(before), set(after), &r), ballot.IsGrant)
	b.Refused, b.Granted = set(refused), all&^set(refused)
	return new(Quorum).releaseError("x", b)
}
