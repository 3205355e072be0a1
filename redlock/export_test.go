package redlock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Repeatable has a Quorum take its random times from a test, and leave nothing
// to the scheduler of Go.
func Repeatable(o *Options, jitter func(who string, n time.Duration) time.Duration) {
	r := o.ownRules()
	r.Jitter = jitter
	r.Gather = func() {}
}

// TokenOf is a token of a holder's, or the mark of one who waits.
func TokenOf(h Holder) string { return newToken(h) }

// KeepSoon has the nodes keep a lock for who was refused once.
func KeepSoon(o *Options) { o.ownRules().reserveAfter = 1 }

// ownRules are rules that may be changed for this Quorum alone.
func (o *Options) ownRules() *rules {
	own := soundRules
	if o.rules != nil {
		own = *o.rules
	}
	o.rules = &own
	return o.rules
}

// Without has a Quorum do without one of the rules that safety rests on.
func Without(o *Options, rule string) {
	spoil, ok := spoiled[rule]
	if !ok {
		panic("no such rule: " + rule)
	}
	spoil(o.ownRules())
}

// spoiled are the rules as somebody might get them wrong.
var spoiled = map[string]func(*rules){
	"quorum of half the nodes": func(r *rules) { r.quorum = func(nodes int) int { return max(1, nodes/2) } },
	"one token for all attempts": func(r *rules) {
		tokens := map[int]string{}
		r.token = func(h Holder) string { // an Acquire in a simulation has a pid of its own
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
	"lapsed lease extended":        func(r *rules) { r.isAlive = func(error) bool { return true } },
	"extension that shortens":      func(r *rules) { r.laterDeadline = func(_, extended time.Duration) time.Duration { return extended } },
	"lapsed lease adopted": func(r *rules) {
		r.adoptedDeadline = func(_, now, ttl time.Duration) time.Duration { return now + ttl - drift(ttl) }
	},
	"release overtakes acquire": func(r *rules) { r.Order = releasesFirst },
	"old connection not killed": func(r *rules) { r.Predecessor = func(int64) int64 { return node.NoConnection } },
	"releases not repeated":     func(r *rules) { r.Repeats = func(bool) bool { return false } },
	"reader admitted by a minority": func(r *rules) {
		r.needed = func(quorum int, shared bool) int {
			if shared {
				return max(1, quorum-1)
			}
			return quorum
		}
		r.needsNoWriteBack = func(_, _ int) bool { return true }
	},
	"token from a minority":        func(r *rules) { r.needsNoWriteBack = func(_, _ int) bool { return true } },
	"bell missing is no news":      func(r *rules) { r.WasReleased = func([]Reply) bool { return false } },
	"every fencing token believed": func(r *rules) { r.admission.BelievesToken = func(_, _ uint64) bool { return true } },
	"vote of a quarantined node": func(r *rules) {
		r.Votes = func(state NodeState) bool { return state == NodeReady || state == NodeQuarantined }
	},
	"counters not copied": func(r *rules) {
		r.CopyCounters = func(_ context.Context, nodes node.Peers, _ *admission.Member) (*admission.Counters, int) {
			return new(admission.Counters), len(nodes.(*fleet).lanes)
		}
	},
	"counters copied too early": copyEarly,
	"former node believed": func(r *rules) {
		r.admission.Supersedes = func() bool { return false }
	},
	"repair counts at once": func(r *rules) { r.countsForExtension = func(bool) bool { return true } },
	"quarantine by uptime": func(r *rules) {
		r.admission.QuarantineEnd = func(_, maxTTL, started time.Duration) time.Duration { return started + maxTTL }
	},
}

// copyEarly copies counters as soon as a quarantine has begun, and uses them
// when it is over.
func copyEarly(r *rules) {
	type copied struct {
		counters *admission.Counters
		sources  int
	}
	var copies sync.Map // by the marker's word and the node
	key := func(m *admission.Member) any { return fmt.Sprintf("%s %p", m.MarkerWord(), m) }
	r.Meanwhile = func(ctx context.Context, nodes node.Peers, m *admission.Member) {
		if _, ok := copies.Load(key(m)); ok {
			return
		}
		if counters, sources := nodes.CopyCounters(ctx); sources >= nodes.(*fleet).admission.CopySources() {
			copies.Store(key(m), copied{counters, sources})
		}
	}
	r.CopyCounters = func(ctx context.Context, nodes node.Peers, m *admission.Member) (*admission.Counters, int) {
		if early, ok := copies.Load(key(m)); ok {
			return early.(copied).counters, early.(copied).sources
		}
		return nodes.CopyCounters(ctx)
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

// CounterFieldOf is the field of the fencing counter that a key has.
func CounterFieldOf(key string) string {
	field := script.CounterOf(key)
	return string(field[:])
}

// WhenWon has then be called before each look at whether an attempt was won in time.
func WhenWon(o *Options, then func()) {
	o.ownRules().inTime = func(now, deadline time.Duration) bool {
		then()
		return soundRules.inTime(now, deadline)
	}
}

// WhenConfirmed has then be called when a quorum has extended a lease that does not know
// it yet, and when one has granted it.
func WhenConfirmed(o *Options, then func()) {
	o.ownRules().start = func(start, won time.Duration) time.Duration {
		then()
		return soundRules.start(start, won)
	}
}

// Missed has it come out that this host's clock missed so much.
func (q *Quorum) Missed(d time.Duration) {
	q.admission.AddMissed(d)
	q.keeper.age()
}

// Gate has all lanes wait in pass before they take what was handed over.
func Gate(o *Options, pass func()) { o.ownRules().Gather = pass }

// LaterWord is that of an epoch after the one that says so.
func LaterWord(text string) string { return admission.LaterWord(text) }
