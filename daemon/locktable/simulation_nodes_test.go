package locktable

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// simToken is what the nodes have of a lease.
type simToken struct {
	id    string
	names []string
	kind  Kind
	until time.Duration // 0: it is extended
}

func (s *tableSim) drop(token *simToken) {
	s.tokens = slices.DeleteFunc(s.tokens, func(other *simToken) bool { return other == token })
}

// free reports whether the nodes would grant a lock.
func (s *tableSim) free(l *simLease) bool {
	s.tokens = slices.DeleteFunc(s.tokens, func(token *simToken) bool { return token.until != 0 && token.until <= s.now })
	full := map[string]int{}
	for _, token := range s.tokens {
		for _, name := range token.names {
			if !slices.Contains(l.Waiter.Names, name) {
				continue
			}
			if full[name]++; token.kind != l.Waiter.Kind || token.kind.Exclusive() || token.kind.Slots > 0 && full[name] >= int(token.kind.Slots) {
				return false
			}
		}
	}
	return true
}

// simGrant is a redlock.Lease.
type simGrant struct {
	s      *tableSim
	id     string
	token  *simToken
	passed bool
	since  time.Duration
	err    error
	forced bool
	until  time.Duration // its deadline once nobody extends it
}

func (g *simGrant) ID() string           { return g.id }
func (g *simGrant) TokenID() string      { return g.token.id }
func (g *simGrant) Passed() bool         { return g.passed }
func (g *simGrant) Err() error           { return g.err }
func (g *simGrant) Since() time.Duration { return g.since }
func (g *simGrant) Validity() time.Duration {
	if g.until == 0 {
		return simTTL
	}
	return g.until - g.s.now
}

const (
	simTTL   = 50 * time.Millisecond
	simGuard = 10 * time.Millisecond
)

var (
	errSimLost      = errors.New("lost")
	errSimReleased  = errors.New("released")
	errSimHeld      = errors.New("held")
	errSimCancelled = errors.New("cancelled")
	errSimAlready   = errors.New("already")
)

// newGrant grants a lock on the nodes, or passes a token on. The attempt is in the state file before.
func (s *tableSim) newGrant(l *simLease, token *simToken) *simGrant {
	s.numbers++
	g := &simGrant{s: s, id: fmt.Sprint("grant ", s.numbers), token: token, passed: true, since: s.now}
	if token == nil {
		token = &simToken{id: fmt.Sprint("token ", s.numbers), names: l.Waiter.Names, kind: l.Waiter.Kind}
		s.tokens = append(s.tokens, token)
		g = &simGrant{s: s, id: token.id, token: token, since: s.now}
	}
	token.until = 0
	s.records[l.number] = &simRecord{l: l, grant: g, Recorded: Recorded{Token: token.id}}
	return g
}

// simLease is the heldLease of the simulation.
type simLease struct {
	Lease
	number  int
	grant   *simGrant
	min     time.Duration
	lingers bool
	ttl     bool // hold=ttl

	isDone   bool // its LOCK has ended
	refused  bool // its release could not begin, because it was lost
	failure  error
	cutUntil time.Duration // until when the client works after the daemon cut its connection; 0: it did not

	oks, losts, releases, leaves, heldTimes int      // how often each was told or done
	believed                                bool     // a client works with it
	view                                    *simConn // the connection that has it, as its client knows; nil: that changes
}

func (l *simLease) Request() redlock.Request { return redlock.Request{} }
func (l *simLease) Undelivered()             {}
func (l *simLease) Grant() Grant             { return l.grant }
func (l *simLease) EndsByItself() bool       { return l.ttl || l.grant.err != nil }

// inOrder returns leases in the order of their numbers, so that a seed always does the same.
func inOrder(all []*Lease) (sorted []*simLease) {
	for _, l := range all {
		sorted = append(sorted, simOf(l))
	}
	slices.SortFunc(sorted, func(a, b *simLease) int { return a.number - b.number })
	return sorted
}

func simOf(l *Lease) *simLease { return l.Backing().(*simLease) }

func (l *simLease) minLeft(now time.Duration) time.Duration {
	if l.min == 0 {
		return 0
	}
	return max(l.min-(now-l.grant.since), 0)
}
