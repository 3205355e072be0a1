package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
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
	r := o.ownRules()
	r.Jitter = jitter
	r.Gather = func() {}
}

// FillWindows lets a lane send as many groups at a time as any connection allows, even if the
// round trip is short.
func FillWindows(o *Options) {
	o.ownRules().GroupsUnderWay = func(int) int { return node.MaxUnderWay }
}

// CommitUnchecked commits a change of the nodes although hosts with the old list may be at work: as if
// these were stopped for the moment.
func CommitUnchecked(q *Quorum) error {
	if err := q.admission.Commit(q.clock()); err != nil {
		return err
	}
	q.lookAtAll()
	return nil
}

// ExchangeSoon makes the exchange after a pass happen sooner, or never.
func ExchangeSoon(o *Options, soon bool) {
	o.ownRules().exchangeAfter = time.Hour
	if soon {
		o.ownRules().exchangeAfter = PassWindow + 10*time.Millisecond
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

// ownRules returns a copy of the rules that only this Quorum uses, so that it can be changed.
func (o *Options) ownRules() *rules {
	own := soundRules
	if o.rules != nil {
		own = *o.rules
	}
	o.rules = &own
	return o.rules
}

// Without makes a Quorum break one of the rules that safety depends on.
func Without(o *Options, rule string) {
	spoil, ok := spoiled[rule]
	if !ok {
		panic("no such rule: " + rule)
	}
	spoil(o.ownRules())
}

// spoiled breaks each rule as a mistaken change of the code would.
var spoiled = map[string]func(*rules){
	"quorum of half the nodes": func(r *rules) {
		r.quorum = quorum.System.Weakened
	},
	"one token for all attempts": func(r *rules) {
		tokens := map[int]string{}
		r.token = func(h Holder) string { // each Acquire in a simulation has its own pid
			if tokens[h.PID] == "" {
				tokens[h.PID] = newToken(h)
			}
			return tokens[h.PID]
		}
	},
	"start read after the answers": func(r *rules) { r.start = func(_, won time.Duration) time.Duration { return won } },
	"drift left out":               func(r *rules) { r.drift = func(time.Duration) time.Duration { return 0 } },
	"no check of elapsed time":     func(r *rules) { r.inTime = func(_, _ time.Duration) bool { return true } },
	"acquire without not-after":    func(r *rules) { r.notAfter = func(start, _ time.Duration) time.Duration { return start + time.Hour } },
	"LOST at the deadline":         func(r *rules) { r.lossDue = func(deadline, _ time.Duration) time.Duration { return deadline } },
	"release at LOST":              func(r *rules) { r.releaseAt = func(now, _ time.Duration) time.Duration { return now } },
	"expired lease extended":       func(r *rules) { r.isAlive = func(error) bool { return true } },
	"extension that shortens":      func(r *rules) { r.laterDeadline = func(_, extended time.Duration) time.Duration { return extended } },
	"pass window from the answer":  func(r *rules) { r.confirmedAt = func(_, answered time.Duration) time.Duration { return answered } },
	"pass window not read again":   func(r *rules) { r.stillPasses = func(_, gone bool) bool { return !gone } },
	"pass to a client that is gone": func(r *rules) {
		r.stillPasses = func(fresh, _ bool) bool { return fresh }
	},
	"lost lease passed on":                 func(r *rules) { r.mayBePassed = func(error) bool { return true } },
	"write-back to the start of the block": func(r *rules) { r.writeBack = func(fence, _ uint64) uint64 { return fence } },
	"block used after a loss": func(r *rules) {
		r.afterLoss = func(granted, lost uint64) uint64 { return cmp.Or(lost, granted) }
	},
	"FORCE that does not wait":      func(r *rules) { r.forceWait = func() time.Duration { return 0 } },
	"block handed out again":        func(r *rules) { r.adoptedBlock = func(fence uint64) uint64 { return fence + MaxBlock } },
	"repaired node confirms a pass": func(r *rules) { r.countsForPass = func(bool) bool { return true } },
	"expired lease adopted": func(r *rules) {
		r.adoptedDeadline = func(_, now, ttl time.Duration) time.Duration { return now + ttl - drift(ttl) }
	},
	"release overtakes acquire": func(r *rules) { r.Order = releasesFirst },
	"old connection not killed": func(r *rules) { r.Predecessor = func(int64) int64 { return node.NoConnection } },
	"releases not repeated":     func(r *rules) { r.Repeats = func(bool) bool { return false } },
	"reader admitted by a minority": func(r *rules) {
		r.needed = func(s quorum.System, shared bool) quorum.System {
			if shared {
				return s.Weakened()
			}
			return s
		}
		r.needsNoWriteBack = func(quorum.Set, quorum.System) bool { return true }
	},
	"token from a minority": func(r *rules) {
		r.needsNoWriteBack = func(quorum.Set, quorum.System) bool { return true }
	},
	"every fencing token believed": func(r *rules) { r.admission.BelievesFence = func(_, _ uint64) bool { return true } },
	"vote of a quarantined node": func(r *rules) {
		r.Votes = func(state NodeState) bool { return state == NodeReady || state == NodeQuarantined }
	},
	"counters not copied": func(r *rules) {
		r.CopyCounters = func(_ context.Context, nodes node.Peers, _ *admission.Member) *admission.Sources {
			n := len(nodes.(*fleet).lanes)
			return &admission.Sources{Nodes: quorum.First(n), Counters: new(admission.Counters), Epochs: make([]string, n)}
		}
	},
	"counters copied too early": copyEarly,
	"former node believed": func(r *rules) {
		r.admission.Supersedes = func() bool { return false }
	},
	"later groups counted as not sent": func(r *rules) {
		r.InDoubt = func(underWay int) int { return min(underWay, 1) }
	},
	"downgrade by a minority": func(r *rules) {
		r.isExtended = func(granted quorum.Set, _ quorum.System) bool { return granted != 0 }
	},
	"downgrade asked for once": func(r *rules) { r.asksToShare = func(downgraded, first bool) bool { return downgraded && first } },
	"repaired as exclusive":    func(r *rules) { r.repairsAsShared = func(bool) bool { return false } },
	"list of a node too few":   func(r *rules) { r.walks = func(s quorum.System) int { return s.Blocking() - 1 } },
	"minority taken for a holder": func(r *rules) {
		r.isPossible = func(shown, _ quorum.Set, _ quorum.System) bool { return shown != 0 }
	},
	"repair counts at once": func(r *rules) { r.countsForExtension = func(bool) bool { return true } },
	"new without the wait": func(r *rules) {
		r.admission.OldLocksLast = func(time.Duration) time.Duration { return 0 }
	},
	"evidence from a node that lost its data": func(r *rules) {
		r.admission.KeptData = func(string, string) bool { return true }
	},
	"stage not copied":         func(r *rules) { r.admission.TakesStage = func() bool { return false } },
	"new without the counters": func(r *rules) { r.admission.CopiesCounters = func() bool { return false } },
	"quarantine by uptime": func(r *rules) {
		r.admission.QuarantineEnd = func(_, maxTTL, started time.Duration) time.Duration { return started + maxTTL }
	},
}

// copyEarly copies counters when a quarantine begins, and uses them when it ends.
func copyEarly(r *rules) {
	var copies sync.Map // by the marker's word and the node
	key := func(m *admission.Member) any { return fmt.Sprintf("%s %p", m.MarkerWord(), m) }
	r.Meanwhile = func(ctx context.Context, nodes node.Peers, m *admission.Member) {
		if _, ok := copies.Load(key(m)); ok {
			return
		}
		if sources := nodes.CopyCounters(ctx, m.Index()); nodes.(*fleet).admission.AreEnough(sources.Nodes) {
			copies.Store(key(m), sources)
		}
	}
	r.CopyCounters = func(ctx context.Context, nodes node.Peers, m *admission.Member) *admission.Sources {
		if early, ok := copies.Load(key(m)); ok {
			return early.(*admission.Sources)
		}
		return nodes.CopyCounters(ctx, m.Index())
	}
}

func releasesFirst(waiting []node.Call) []node.Call {
	slices.SortStableFunc(waiting, func(a, b node.Call) int {
		switch {
		case a.IsRelease() == b.IsRelease():
			return 0
		case a.IsRelease():
			return -1
		}
		return 1
	})
	return waiting
}

// CounterFieldOf returns the field that holds the fencing counter of a key.
func CounterFieldOf(key string) string {
	field := script.CounterOf(key)
	return string(field[:])
}

// WhenWon makes a Quorum call then before it checks whether an attempt was won in time.
func WhenWon(o *Options, then func()) {
	o.ownRules().inTime = func(now, deadline time.Duration) bool {
		then()
		return soundRules.inTime(now, deadline)
	}
}

// WhenConfirmed makes a Quorum call then when a quorum of nodes has granted or extended a
// lease, before the lease has its new deadline.
func WhenConfirmed(o *Options, then func()) {
	o.ownRules().start = func(start, won time.Duration) time.Duration {
		then()
		return soundRules.start(start, won)
	}
}

// WhenConfirming makes a Quorum call then before it sends the confirmation of a passed lease. (It
// also calls then before it writes fencing tokens back.)
func WhenConfirming(o *Options, then func()) {
	o.ownRules().writeBack = func(fence, blockEnd uint64) uint64 {
		then()
		return soundRules.writeBack(fence, blockEnd)
	}
}

// Missed makes the Quorum learn that this host's clock missed a duration.
func (q *Quorum) Missed(d time.Duration) {
	q.admission.AddMissed(d)
	q.keeper.age()
}

// Gate makes all lanes call pass before they take the calls that wait for them.
func Gate(o *Options, pass func()) { o.ownRules().Gather = pass }

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
