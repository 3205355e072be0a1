package redlock

import (
	"math"
	"sync/atomic"
	"time"
)

// exchange is what a lease needs whose token is exchanged for one that names its client: see
// [Options.TokenChanges].
//
// From then on each extension asks each node to exchange the former token if it has that still,
// and the lease is not passed on any more: so it has two tokens at most.
type exchange struct {
	holder   Holder
	newToken atomic.Pointer[string] // what the nodes get instead of the lease's token; nil: nothing

	// The lease's mu guards what follows.
	at     time.Duration // BootTime at which it is due; 0: it is not
	noting chan struct{} // closed when the new token is noted; nil: it is not being noted
}

// tokens are the token that the nodes have for a lease, and the one that some of them may still
// have instead; "": none.
type tokens struct{ now, former string }

func (has tokens) has(token string) bool { return has.now == token || has.former == token }

// tokens returns the tokens that nodes may have for the lease.
func (l *Lease) tokens() tokens {
	if l.more != nil {
		if to := l.more.newToken.Load(); to != nil {
			return tokens{*to, l.token}
		}
	}
	return tokens{now: l.token}
}

// exchangeAt returns when the token of a grant is to be exchanged that was passed on at now.
func (l *Lease) exchangeAt(now time.Duration) time.Duration {
	if !l.more.holder.Known() {
		return 0
	}
	return now + l.keeper.rules.exchangeAfter
}

// isExchanging reports whether the token is being exchanged, or was. The caller holds mu.
func (l *Lease) isExchanging() bool {
	return l.more != nil && (l.more.noting != nil || l.more.newToken.Load() != nil)
}

// exchangeDue returns when the token is to be exchanged; never: not at all, or not as things are.
func (l *Lease) exchangeDue() time.Duration {
	if l.more == nil {
		return never
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.more.host; l.more.at == 0 || l.downgraded || l.state != held || h != nil && h.isRetained() {
		return never
	}
	return l.more.at
}

const never time.Duration = math.MaxInt64

// exchangeTokens exchanges the tokens of the leases for which that is due: their next extension
// asks the nodes.
func (k *keeper) exchangeTokens(leases []*Lease, now time.Duration) {
	for _, l := range leases {
		if l.exchangeDue() > now+earlyBy || !l.beginExchange(now) {
			continue
		}
		to := l.Record()
		holder := l.more.holder
		holder.Since = k.q.options.Wall().Add(l.since - now)
		to.Token, to.Former = tokenOf([]byte(l.more.id), holder), l.token
		note := k.q.options.TokenChanges
		l.endExchange(to.Token, note == nil || note(l, to), now)
	}
}

// beginExchange reports whether the token is to be exchanged. From then on the lease is not
// passed on.
func (l *Lease) beginExchange(now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more.pending {
		l.more.at = l.exchangeAt(now) // granted sets it again
		return false
	}
	if l.more.newToken.Load() != nil { // the nodes are asked again
		l.more.at = 0
		return false
	}
	if l.downgraded || l.errAt(now) != nil {
		return false
	}
	l.more.at, l.more.noting = 0, make(chan struct{})
	return true
}

// endExchange has the nodes get the new token, if it was noted and the lease has not ended.
func (l *Lease) endExchange(to string, noted bool, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.more.noting)
	l.more.noting = nil
	switch {
	case !noted:
		l.more.at = l.exchangeAt(now)
	case l.state == held:
		l.more.newToken.Store(&to)
	}
}

// retryExchange makes the nodes be asked for the exchange again at due, if it has begun. A lease
// that Request.Max keeps from being extended would not ask them otherwise.
func (l *Lease) retryExchange(due time.Duration) {
	if l.more == nil || l.more.newToken.Load() == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.more.at = due
}

// awaitExchange waits until the new token is noted, if it is being noted.
func (l *Lease) awaitExchange() {
	if l.more == nil {
		return
	}
	l.mu.Lock()
	noting := l.more.noting
	l.mu.Unlock()
	if noting != nil {
		<-noting
	}
}

// adoptExchange continues the exchange that the record tells of. If there was none, and a pass
// made the grant, the token is exchanged soon.
func (l *Lease) adoptExchange(r *Record, now time.Duration) {
	switch l.more.holder = r.Holder; {
	case r.Former != "":
		l.more.newToken.Store(&r.Token)
	case r.Grant != "":
		l.more.at = l.exchangeAt(now)
	}
}
