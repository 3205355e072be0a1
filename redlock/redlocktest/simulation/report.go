package simulation

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// Report is what happened in a simulation, and the promises that were broken.
type Report struct {
	Plan       Plan
	Trace      []Event
	Violations []Violation
	Faults     map[string]int // by kind: how often the fault happened

	Requests    []*Request
	Grants      []*Grant // in the order in which Acquire returned them
	StrayTokens []*StrayToken
	Stuck       []string                 // locks that a client could not acquire after all faults had ended
	Wakes       []Wake                   // after all faults
	Quiet       []Quiet                  // of a crowd
	Overtaken   []*Grant                 // after all faults: to hosts that waited while another host passed the lock on
	Forced      map[string]time.Duration // by token: when the first node deleted it for FORCE
	// ForceAnswered is when FORCE was answered, by the token that it deleted.
	ForceAnswered map[string]time.Duration
	CounterLosses []time.Duration // when a quorum of nodes lost its counters
	Steps         []Step          // of a traced simulation
}

// Event is one line of a trace.
type Event struct {
	At    time.Duration
	Actor string // a client "h1.2", a node "node b", or a host "h1"
	What  string
	Lock  string
	Lease int           // the number of its request
	Until time.Duration // the stated deadline; 0: none
	Fence uint64
	Note  string

	isCommand bool
}

func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%12s  %-7s %-12s", instant(e.At), e.Actor, e.What)
	if e.Lock != "" {
		fmt.Fprintf(&b, " %s", e.Lock)
	}
	if e.Until != 0 {
		fmt.Fprintf(&b, " lease %d until %s", e.Lease, instant(e.Until))
	}
	if e.Fence != 0 {
		fmt.Fprintf(&b, " fence %d", e.Fence)
	}
	if e.Note != "" {
		fmt.Fprintf(&b, "  %s", e.Note)
	}
	return strings.TrimRight(b.String(), " ")
}

// instant formats the time since the beginning in milliseconds.
func instant(at time.Duration) string { return fmt.Sprintf("%.6f", float64(at)/1e6) }

// Hash returns a number that differs if anything happened differently, or at another nanosecond.
func (r *Report) Hash() uint64 {
	h := fnv.New64a()
	for _, e := range r.Trace {
		if !e.isCommand {
			fmt.Fprintln(h, e.At, e)
		}
	}
	return h.Sum64()
}

// Write writes the whole trace, with each violation where it happened.
func (r *Report) Write(w io.Writer) error {
	_, err := io.WriteString(w, r.text(0))
	return err
}

// Tail returns the last lines of the trace, with the violations.
func (r *Report) Tail(lines int) string { return r.text(max(0, len(r.Trace)-lines)) }

func (r *Report) text(first int) string {
	var b strings.Builder
	b.WriteString(strings.TrimRight(fmt.Sprintf("seed %d, instants in milliseconds", r.Plan.Seed), " ") + "\n")
	violations := slices.Clone(r.Violations)
	for _, e := range r.Trace[first:] {
		for len(violations) > 0 && violations[0].At < e.At {
			fmt.Fprintf(&b, "%v  <<<<<<\n", violations[0])
			violations = violations[1:]
		}
		fmt.Fprintln(&b, e)
	}
	for _, v := range violations {
		fmt.Fprintf(&b, "%v  <<<<<<\n", v)
	}
	return b.String()
}

// Until returns the last lines of the trace before the first violation.
func (r *Report) Until(lines int) string {
	if len(r.Violations) == 0 {
		return r.Tail(lines)
	}
	cut := *r
	end := slices.IndexFunc(r.Trace, func(e Event) bool { return e.At > r.Violations[0].At })
	if end < 0 {
		end = len(r.Trace)
	}
	cut.Trace, cut.Violations = r.Trace[:end], r.Violations[:1]
	return cut.Tail(lines)
}

// Violation is a broken promise.
type Violation struct {
	Check string // "exclusion"
	At    time.Duration
	Text  string
}

func (v Violation) String() string {
	return fmt.Sprintf("%12s  %s: %s", instant(v.At), v.Check, v.Text)
}

func (r *Report) violate(check string, at time.Duration, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{check, at, fmt.Sprintf(format, args...)})
}

// check runs all checks of the whole record.
func (r *Report) check() {
	if !r.Plan.Steps {
		r.checkExclusion()
		r.checkLeftovers()
		r.checkQuorums()
		r.checkMins()
	}
	r.checkFences()
	r.checkPasses()
	r.checkForcedLeases()
	r.checkGrants()
	r.checkLosses()
	r.checkStrayTokens()
	r.checkCounterLosses()
	r.checkWakes()
	r.checkPassedOver()
	r.checkCrowd()
	for _, stuck := range r.Stuck {
		r.violate("liveness", r.last(), "%s", stuck)
	}
	slices.SortStableFunc(r.Violations, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
}

// last returns the instant of the last line.
func (r *Report) last() time.Duration {
	if len(r.Trace) == 0 {
		return 0
	}
	return r.Trace[len(r.Trace)-1].At
}

// checkExclusion checks that a lock never has two holders before their stated deadlines. A client
// is a holder until it begins to release the lock, or until FORCE. LOST does not end that, because
// the client may still be stopping.
func (r *Report) checkExclusion() {
	for i, later := range r.Grants {
		for _, earlier := range r.Grants[:i] {
			if !earlier.excludes(later) {
				continue
			}
			if at, both := r.overlap(earlier, later); both {
				r.violate("exclusion", at, "%s is held by %s (lease %d, until %s) and by %s (lease %d, until %s)",
					later.Lock, earlier.By, earlier.N, instant(earlier.Until()), later.By, later.N, instant(later.Until()))
			}
		}
	}
}

// excludes reports whether the two leases must not be held at the same time. Readers may hold a
// lock together, and so may clients in different slots of a semaphore.
func (g *Grant) excludes(other *Grant) bool {
	common := slices.ContainsFunc(g.Locks, func(lock string) bool { return slices.Contains(other.Locks, lock) })
	if !common || g.Kind != other.Kind || g.Kind == "" {
		return common
	}
	return g.Slot == other.Slot && g.Slot > 0
}

// isOrdered reports whether the fencing tokens of the two leases must be in the order of their
// grants. Tokens of readers are ordered only against writers. Tokens of a slot are ordered among
// themselves.
func (g *Grant) isOrdered(other *Grant) bool {
	return g.excludes(other) && g.Slot == other.Slot
}

// overlap returns an instant at which both clients hold the lock.
func (r *Report) overlap(a, b *Grant) (at time.Duration, both bool) {
	if a.Until() <= b.At || a.Releasing != never && a.Releasing <= b.At {
		return 0, false // the usual case
	}
	for i := range a.Claims {
		for j := range b.Claims {
			from := max(a.Claims[i].At, b.Claims[j].At)
			if from < min(r.holdsUntil(a, i), a.excludesUntil(b)) && from < min(r.holdsUntil(b, j), b.excludesUntil(a)) {
				return from, true
			}
		}
	}
	return 0, false
}

// excludesUntil returns when the holder was downgraded to a reader that other, a reader, may join.
func (g *Grant) excludesUntil(other *Grant) time.Duration {
	if g.Shares == never || other.Kind != "shared" {
		return math.MaxInt64
	}
	return g.Shares
}

// holdsUntil returns when a claim ends: at its deadline, when the holder stops, or when a node
// executes FORCE.
func (r *Report) holdsUntil(g *Grant, claim int) time.Duration {
	until := g.Claims[claim].Until
	if g.Releasing != never {
		until = min(until, g.Releasing)
	}
	return min(until, r.forcedAt(g))
}

// forcedAt returns when the first node deleted a token of the grant for FORCE.
func (r *Report) forcedAt(g *Grant) time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, token := range []string{g.TokenID, g.NewTokenID} {
		if at, forced := r.Forced[token]; forced {
			first = min(first, at)
		}
	}
	return first
}

// checkQuorums checks that at each grant a quorum of nodes has the lock, and a counter not below
// its token. It does not count nodes that lost these meanwhile.
func (r *Report) checkQuorums() {
	for _, g := range r.Grants {
		if at, forced := r.Forced[g.TokenID]; forced && at <= g.At {
			continue
		}
		if quorum := g.Nodes/2 + 1; g.Held+g.Lapsed < quorum {
			r.violate("quorum", g.At, "lease %d of %s was granted although only %d of %d nodes had it and its token %d", g.N, g.Lock, g.Held, g.Nodes, g.Fence)
		}
	}
}

// checkFences checks the order of fencing tokens, whatever the clocks do. If an attempt began after
// another grant was returned, its grant has the larger token. No two tokens are equal.
func (r *Report) checkFences() {
	for i, later := range r.Grants {
		for _, earlier := range r.Grants[:i] {
			if earlier.isOrdered(later) && earlier.Fence != 0 && later.Fence != 0 && !r.countersLost(earlier, later) {
				r.checkFencePair(earlier, later)
			}
		}
	}
}

func (r *Report) checkFencePair(earlier, later *Grant) {
	switch {
	case later.Fence == earlier.Fence:
		r.violate("fence", later.At, "leases %d and %d of %s have the same token %d", earlier.N, later.N, later.Lock, later.Fence)
	case later.began(r.Plan.Steps) > earlier.At && later.Fence < earlier.Fence:
		r.violate("fence", later.At, "lease %d of %s was requested at %s, after lease %d was granted (%s), but has a smaller token: %d after %d",
			later.N, later.Lock, instant(later.Began), earlier.N, instant(earlier.At), later.Fence, earlier.Fence)
	}
}

// began returns the latest instant at which the attempt of a grant began. If clocks are stepped,
// another host may get a lock that is being passed on. Then the order counts from the confirmation
// that the pass relies on.
func (g *Grant) began(steps bool) time.Duration {
	if steps && g.Passed != never {
		return min(g.Began, g.Passed-window)
	}
	return g.Began
}

// checkPasses checks the conditions of a pass: a quorum confirmed the token within the window, by
// the true clock; FORCE was not answered before; the lease was not lost; the client has not ended.
func (r *Report) checkPasses() {
	for _, g := range r.Grants {
		if g.Passed == never {
			continue
		}
		if quorum := g.Nodes/2 + 1; g.Confirmed < quorum && !r.Plan.Steps {
			r.violate("window", g.Passed, "%s was passed on (lease %d) although only %d of %d nodes had confirmed it within %v", g.Lock, g.N, g.Confirmed, g.Nodes, window)
		}
		if at, forced := r.ForceAnswered[g.TokenID]; forced && at < g.Passed {
			r.violate("force", g.Passed, "%s was passed on (lease %d) after FORCE was answered (%s)", g.Lock, g.N, instant(at))
		}
		if previous := r.previousOwner(g); previous != nil && previous.Lost != never && previous.Lost < g.Passed {
			r.violate("lost", g.Passed, "%s was passed on (lease %d) although lease %d had been lost (%s)", g.Lock, g.N, previous.N, instant(previous.Lost))
		}
		if g.ClientEnded != never && g.ClientEnded < g.Passed {
			r.violate("gone", g.Passed, "%s was passed on (lease %d) to a client that had ended (%s)", g.Lock, g.N, instant(g.ClientEnded))
		}
	}
}

// previousOwner returns the earlier grant with the token of a passed grant, or nil.
func (r *Report) previousOwner(g *Grant) *Grant {
	for _, earlier := range slices.Backward(r.Grants[:slices.Index(r.Grants, g)]) {
		if earlier.TokenID == g.TokenID {
			return earlier
		}
	}
	return nil
}

// window is how long a confirmation counts at most, by the true clock.
const window = redlock.PassWindow + redlock.PassWindow/250

// countersLost reports whether a quorum of nodes lost its counters between two grants. Then the
// order of their tokens is lost as well, and a daemon reported that.
func (r *Report) countersLost(earlier, later *Grant) bool {
	return slices.ContainsFunc(r.CounterLosses, func(at time.Duration) bool { return at >= earlier.Began && at <= later.At })
}

// checkCounterLosses checks that counters restart only if a quorum of nodes lost them.
func (r *Report) checkCounterLosses() {
	for _, at := range r.CounterLosses {
		if !r.Plan.losesQuorums() && !(r.Plan.Fresh && at < 2*simulatedMaxTTL) {
			r.violate("counter-loss", at, "fencing counters restarted although a quorum of nodes has them")
		}
	}
}

// countersLostSince reports whether a quorum of nodes lost its counters at since or later.
func (r *Report) countersLostSince(since time.Duration) bool {
	return slices.ContainsFunc(r.CounterLosses, func(at time.Duration) bool { return at >= since })
}

// checkGrants checks that a lease is granted before its deadline, and that an expired or lost lease
// is never extended.
func (r *Report) checkGrants() {
	for _, g := range r.Grants {
		if g.Expired {
			r.violate("validity", g.At, "lease %d of %s was granted after its deadline, %s", g.N, g.Lock, instant(g.Until()))
		}
		for i, claim := range g.Claims[1:] {
			before := g.Claims[i].Until
			switch {
			case claim.After >= before || g.Lost != never && claim.After >= g.Lost:
				r.violate("finality", claim.At, "lease %d of %s was extended after its end: until %s, then until %s", g.N, g.Lock, instant(before), instant(claim.Until))
			case claim.Until < before && !r.Plan.Steps: // if a host's clock stopped, its leases are older than it knew
				r.violate("shortening", claim.At, "the deadline of lease %d of %s moved back: from %s to %s", g.N, g.Lock, instant(before), instant(claim.Until))
			}
		}
	}
}

// checkLosses checks that LOST is reported before the deadline, by the daemon's clock, and that a
// lease without LOST has not expired.
func (r *Report) checkLosses() {
	if r.Plan.Steps {
		return // if a host's clock stopped, its leases are older than it knew
	}
	for _, g := range r.Grants {
		switch {
		case g.LostWhileDown: // no daemon ran that could report it
		case g.Lost != never && g.Late:
			r.violate("loss", g.Lost, "LOST of lease %d of %s was reported after its deadline, %s", g.N, g.Lock, instant(g.Until()))
		case g.Unreported != never:
			r.violate("loss", g.Unreported, "lease %d of %s expired without LOST (%s)", g.N, g.Lock, instant(g.Until()))
		}
	}
}

// checkLeftovers checks that a token of a failed attempt does not outlive its ttl.
func (r *Report) checkLeftovers() {
	for _, stray := range r.StrayTokens {
		q := stray.Request
		if g := q.Grant; stray.Copied || g != nil && g.has(stray.Token) {
			continue
		}
		if stray.Last > stray.latest() {
			r.violate("leftover", stray.Last, "node %s still holds a token of an attempt by %s for %s that began at %s with a ttl of %v",
				stray.Node, q.By, q.Lock, instant(stray.Attempt), q.TTL)
		}
	}
}

// latest returns until when a node may hold the token, by the true clock.
func (s *StrayToken) latest() time.Duration {
	return s.Attempt + nodeTimeout + s.Request.TTL + s.Request.TTL/100 + leftoverSlack
}

// leftoverSlack covers the error of what a daemon knows about a node's clock. A heartbeat measures
// that clock once a second.
const leftoverSlack = 20 * time.Millisecond

// checkMins checks that no other client gets a lock before its min= has passed, less the drift
// allowance, by the true clock. LOST, FORCE and the end of a daemon without a table end min= early.
func (r *Report) checkMins() {
	for _, g := range r.Grants {
		if g.MinHeld == 0 || g.Releasing == never {
			continue
		}
		until := r.takenUntil(g)
		i := slices.IndexFunc(r.Grants, func(other *Grant) bool {
			gets := other.At > g.Releasing && other.At < min(until, g.excludesUntil(other), r.holdsUntil(other, 0))
			return gets && g.excludes(other)
		})
		if i >= 0 {
			other := r.Grants[i]
			r.violate("min", other.At, "%s had to stay taken until %s (lease %d, min %v), but was granted to %s (lease %d)",
				g.Lock, instant(until), g.N, g.MinHeld, other.By, other.N)
		}
	}
}

// takenUntil returns until when a lock with min= must stay taken.
func (r *Report) takenUntil(g *Grant) time.Duration {
	until := g.Since + g.MinHeld - g.MinHeld/100
	if g.Lost != never || g.LostWhileDown {
		until = min(until, g.Until())
	}
	for _, end := range []time.Duration{g.Lost, g.DaemonEnded, g.GaveUp} {
		if end != never {
			until = min(until, end)
		}
	}
	return min(until, r.forcedAt(g))
}

// checkStrayTokens checks that a released token is gone soon after the daemon can reach the node.
func (r *Report) checkStrayTokens() {
	for _, stray := range r.StrayTokens {
		if q := stray.Request; stray.HealthyFor > strayAllowance {
			r.violate("debris", stray.Last, "node %s, without faults for %v, still holds a token that %s (lease %d of %s) has not used since %s",
				stray.Node, stray.HealthyFor, q.By, q.N, q.Lock, instant(stray.UnusedSince))
		}
	}
}

// checkForcedLeases checks that no extension that began after FORCE was answered extends the forced
// lease.
func (r *Report) checkForcedLeases() {
	if r.Plan.Steps {
		return // deadlines may move back
	}
	for _, g := range r.Grants {
		at, forced := r.ForceAnswered[g.TokenID]
		if newAt, also := r.ForceAnswered[g.NewTokenID]; also && g.NewTokenID != "" && (!forced || newAt < at) {
			at, forced = newAt, true
		}
		if !forced || at < g.At {
			continue
		}
		for _, claim := range g.Claims[1:] {
			// A lease that was passed on may get an extension of the lease before it, whose ttl is longer.
			// So what was extended before the answer is no violation.
			if asked := claim.Until - max(g.TTL, g.longestTTL); asked > at+ratesDiffer && claim.At > at {
				r.violate("force", claim.At, "lease %d of %s was extended at %s or later, after FORCE was answered (%s)", g.N, g.Lock, instant(asked), instant(at))
				return
			}
		}
	}
}

// ratesDiffer is the largest difference between a ttl on a host's clock and the true one.
const ratesDiffer = simulatedMaxTTL / 200

// isForced reports whether a node deleted a token of the grant for FORCE.
func (r *Report) isForced(g *Grant) bool {
	_, first := r.Forced[g.TokenID]
	_, second := r.Forced[g.NewTokenID]
	return first || second && g.NewTokenID != ""
}
