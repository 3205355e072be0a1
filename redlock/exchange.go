package redlock

import (
	"math"
	"sync/atomic"
	"time"
)

// exchangeAfter is how long after a pass the nodes get a token that names its client.
const exchangeAfter = time.Second / 2

// exchange replaces the token of a lease that a pass made: the nodes get a token that names the
// client. See [Options.TokenChanges].
//
// A node may miss the exchange. So each later extension sends both tokens, and a node that still
// has the former one replaces it then. The lease is not passed on after the exchange has begun,
// so it never has more than two tokens.
type exchange struct {
	holder   Holder
	newToken atomic.Pointer[string] // the token that the nodes get; nil: the exchange has not begun

	// The lease's mu guards what follows.
	dueAt     time.Duration // BootTime at which the exchange is due; 0: it is not due
	recording chan struct{} // closed when the caller has recorded the new token; nil: the caller is not recording one
}

// tokens are the tokens that nodes may have for a lease: the current one, and the former one,
// which an exchange replaces; former is "" if there is none.
type tokens struct{ current, former string }

func (t tokens) has(token string) bool { return t.current == token || t.former == token }

// tokens returns the tokens that nodes may have for the lease.
func (l *Lease) tokens() tokens {
	if l.extra != nil {
		if to := l.extra.newToken.Load(); to != nil {
			return tokens{current: *to, former: l.token}
		}
	}
	return tokens{current: l.token}
}

// exchangeAt returns when the exchange is due for a grant that a pass made at now; 0: never.
func (l *Lease) exchangeAt(now time.Duration) time.Duration {
	if !l.extra.holder.Known() {
		return 0
	}
	return now + l.keeper.q.hooks.exchangeAfter
}

// isExchangingLocked reports whether an exchange has begun, or is being recorded. The caller holds mu.
func (l *Lease) isExchangingLocked() bool {
	return l.extra != nil && (l.extra.recording != nil || l.extra.newToken.Load() != nil)
}

// exchangeDue returns when the exchange is due; never: it is not due, or the lease's state
// excludes it.
func (l *Lease) exchangeDue() time.Duration {
	if l.extra == nil {
		return never
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.extra.dueAt == 0 || l.downgraded || l.state != held {
		return never
	}
	return l.extra.dueAt
}

const never time.Duration = math.MaxInt64

// exchangeTokens begins the exchanges that are due. The next extension of these leases sends them
// to the nodes.
func (k *keeper) exchangeTokens(leases []*Lease, now time.Duration) {
	for _, l := range leases {
		if l.exchangeDue() > now+earlyBy || !l.beginExchange(now) {
			continue
		}
		to := l.Record()
		holder := l.extra.holder
		holder.Since = k.q.options.Wall().Add(l.since - now)
		to.Token, to.Former = tokenOf([]byte(l.extra.id), holder), l.token
		record := k.q.options.TokenChanges
		l.endExchange(to.Token, record == nil || record(l, to), now)
	}
}

// beginExchange reports whether the caller must record and exchange the token. If so, the lease
// is not passed on until endExchange, and not after that if the exchange has begun.
func (l *Lease) beginExchange(now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.extra.pending {
		l.extra.dueAt = l.exchangeAt(now) // granted sets it again
		return false
	}
	if l.extra.newToken.Load() != nil { // retryExchange made it due: the token is recorded already
		l.extra.dueAt = 0
		return false
	}
	if l.downgraded || l.errAtLocked(now) != nil {
		return false
	}
	l.extra.dueAt, l.extra.recording = 0, make(chan struct{})
	return true
}

// endExchange makes the next extension send the new token, if it was recorded and the lease has
// not ended. If it was not recorded, the exchange is due again later.
func (l *Lease) endExchange(to string, recorded bool, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.extra.recording)
	l.extra.recording = nil
	switch {
	case !recorded:
		l.extra.dueAt = l.exchangeAt(now)
	case l.state == held:
		l.extra.newToken.Store(&to)
	}
}

// retryExchange makes an exchange that has begun due again. Otherwise a lease that Request.Max
// excludes from extensions would not send it again.
func (l *Lease) retryExchange(due time.Duration) {
	if l.extra == nil || l.extra.newToken.Load() == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.extra.dueAt = due
}

// awaitExchange waits while the caller records a new token.
func (l *Lease) awaitExchange() {
	if l.extra == nil {
		return
	}
	l.mu.Lock()
	recording := l.extra.recording
	l.mu.Unlock()
	if recording != nil {
		<-recording
	}
}
