package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// recorder records what happened in a world, seen from outside. Instants count from the beginning
// of the world, in the bubble's fake time.
type recorder struct {
	begin time.Time

	mu          sync.Mutex // guards the report and what follows; not held during a call that may block
	report      *Report
	open        []*Grant // grants whose deadlines may still move
	strayTokens map[string]*StrayToken
	tokens      map[string]tokenOwner // by the id of the token
	sampled     time.Duration
	onNodes     exchanges
}

// tokenOwner is the request that a token was granted to, or that got it by a pass, since an
// instant.
type tokenOwner struct {
	request *Request
	since   time.Duration
}

// never means that an event did not happen.
const never time.Duration = -1

// Request is one call of Acquire.
type Request struct {
	N           int
	Lock        string   // one name, or several joined with commas
	Locks       []string // these names
	Kind        string   // "", "shared", or "slots=K"
	By          string   // the client
	TTL         time.Duration
	MinHeld     time.Duration // min=: how long the lock stays taken after the grant; 0: none
	block       int
	Began       time.Duration
	Failed      []time.Duration // when attempts failed
	Ended       time.Duration   // when Acquire returned an error; never: it did not
	Grant       *Grant          // nil if there is none
	DaemonEnded time.Duration   // when its daemon ended, or never
	ClientEnded time.Duration   // when the client ended, or never

	inCrowd       bool // its client is a member of a crowd
	host          *host
	life          int
	record        *recorder
	Lost          time.Duration // when LOST was reported, or never
	Late          bool          // LOST was reported after the deadline
	LostWhileDown bool          // the lease was lost before its daemon was restarted
}

// Grant is a lease as its holder sees it.
type Grant struct {
	*Request
	ID      string
	TokenID string // id of the token on the nodes; after a pass, it differs from ID
	// NewTokenID is the id of the token that replaces it on the nodes; "" if none does.
	NewTokenID string
	Passed     time.Duration // when the lock was passed on to it, or never
	Confirmed  int           // nodes that had executed a confirmation within the window before the pass
	Slot       int           // of a semaphore
	Began      time.Duration // the latest instant at which the granted attempt began
	At         time.Duration
	Expired    bool // it had expired when it was granted
	Fence      uint64
	Claims     []Claim       // the stated deadlines, in order
	Releasing  time.Duration // when the holder began to release it, or never
	Since      time.Duration // the start of min=
	Kept       time.Duration // until when the lock was to stay taken after its holder ended, or never
	Shares     time.Duration // when the holder stopped writing and began to share the lock, or never
	Noted      bool          // its daemon recorded the downgrade, before a node executed it
	GaveUp     time.Duration // since when LOST need not be reported, or never
	Nodes      int           // nodes in total
	Held       int           // nodes that could vote, and had the lock and its token, at the grant
	Lapsed     int           // nodes that restarted or lost their data during the attempt
	Unreported time.Duration // when the deadline had passed without a report, or never

	lease      *redlock.Lease
	longestTTL time.Duration // the longest ttl that it has had
}

// Claim is a stated deadline. It was first seen at At, and was not yet valid at After.
type Claim struct{ After, At, Until time.Duration }

// Until returns the last stated deadline.
func (g *Grant) Until() time.Duration { return g.Claims[len(g.Claims)-1].Until }

func newRecorder(report *Report) *recorder {
	return &recorder{begin: time.Now(), report: report, strayTokens: map[string]*StrayToken{}, tokens: map[string]tokenOwner{}, onNodes: exchanges{map[string]bool{}}}
}

func (r *recorder) now() time.Duration { return time.Since(r.begin) }

// event adds a line to the trace.
func (r *recorder) event(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(e)
}

// add adds a line to the trace. The caller holds mu.
func (r *recorder) add(e Event) {
	e.At = r.now()
	r.report.Trace = append(r.report.Trace, e)
}

// count counts a fault or another event that a simulation must reach.
func (r *recorder) count(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Faults[kind]++
}

// countNode adds what the network of a node really did.
func (r *recorder) countNode(c redlocktest.Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Faults["request lost"] += c.Lost
	r.report.Faults["reply lost"] += c.Unanswered
	r.report.Faults["connection killed"] += c.Killed
	r.report.Faults["dial refused"] += c.RefusedDials
}

func (r *recorder) command(node string, c redlock.Command) {
	words := strings.Join(c, " ")
	if c[0] == "SCRIPT" {
		words = "SCRIPT LOAD"
	}
	r.event(Event{Actor: "node " + node, What: "executes", Note: words, isCommand: true})
}

// request records that a client is about to call Acquire.
func (r *recorder) request(h *host, life int, by string, wanted *redlock.Request) *Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &Request{
		N: len(r.report.Requests), Locks: locksOf(wanted), Kind: kindOf(wanted), By: by, TTL: wanted.TTL, block: wanted.Block, Began: r.now(),
		Ended: never, Lost: never, DaemonEnded: never, ClientEnded: never, host: h, life: life, record: r,
	}
	q.Lock = strings.Join(q.Locks, ",")
	r.report.Requests = append(r.report.Requests, q)
	return q
}

func locksOf(r *redlock.Request) []string {
	if len(r.Names) > 0 {
		return r.Names
	}
	return []string{r.Name}
}

func kindOf(r *redlock.Request) string {
	switch {
	case r.Shared:
		return "shared"
	case r.Slots > 1:
		return fmt.Sprintf("slots=%d", r.Slots)
	}
	return ""
}

// holder returns a holder that identifies the request in its tokens: its pid is the request's
// number.
func (q *Request) holder() redlock.Holder {
	return redlock.Holder{Host: q.host.name, PID: q.N, User: "sim"}
}

// failed records a failed attempt. Acquire calls it.
func (q *Request) failed(error) {
	q.record.mu.Lock()
	defer q.record.mu.Unlock()
	q.Failed = append(q.Failed, q.record.now())
}

// ended records that Acquire returned an error.
func (q *Request) ended(err error) {
	r := q.record
	r.mu.Lock()
	defer r.mu.Unlock()
	q.Ended = r.now()
	r.add(Event{Actor: q.By, What: "not granted", Lock: q.Lock, Note: err.Error()})
}

// granted records that Acquire returned a lease.
func (q *Request) granted(l *redlock.Lease) *Grant {
	r := q.record
	r.mu.Lock()
	defer r.mu.Unlock()
	deadline := l.Deadline()
	g := &Grant{
		Request: q, ID: l.ID(), TokenID: l.TokenID(), Slot: l.Slot(), Began: q.Began, At: r.now(), Fence: l.Fence(), lease: l,
		Expired: q.host.clock() >= deadline, Passed: never, Releasing: never, Kept: never, Shares: never, GaveUp: never, Unreported: never,
	}
	g.Since = q.host.instant(l.Since())
	r.tokens[g.TokenID] = tokenOwner{q, g.At}
	if l.Passed() {
		g.Passed = q.host.instant(l.Since())
		r.report.Faults["pass"]++
	}
	if n := len(q.Failed); n > 0 {
		g.Began = q.Failed[n-1]
	}
	q.Grant = g
	g.Claims = []Claim{{g.Began, g.At, q.host.instant(deadline)}}
	r.sampleLocked()
	r.open = append(r.open, g)
	r.report.Grants = append(r.report.Grants, g)
	r.add(g.line("granted", fmt.Sprintf("ttl %v, requested at %v", q.TTL, g.Began)+g.how()))
	return g
}

// how describes a grant that is not an ordinary exclusive one.
func (g *Grant) how() string {
	if g.Passed != never {
		return ", passed on at " + instant(g.Passed)
	}
	if g.Slot > 0 {
		return fmt.Sprintf(", %s, slot %d", g.Kind, g.Slot)
	}
	return strings.TrimSuffix(", "+g.Kind, ", ")
}

// line returns a line of the trace about a lease.
func (g *Grant) line(what, note string) Event {
	return Event{Actor: g.By, What: what, Lock: g.Lock, Lease: g.N, Until: g.Until(), Fence: g.Fence, Note: note}
}

// event adds a line about a lease to the trace.
func (g *Grant) event(what, note string) {
	g.record.mu.Lock()
	defer g.record.mu.Unlock()
	g.record.add(g.line(what, note))
}

// passed records that the lock was passed on to the request, which has not been granted it yet.
// Request.BeforeAttempt calls it.
func (q *Request) passed(token redlock.Record) {
	r := q.record
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens[idOf(token.Token)] = tokenOwner{q, r.now()}
	r.add(Event{Actor: q.By, What: "passed on", Lock: q.Lock, Fence: token.Fence, Note: fmt.Sprintf("to request %d", q.N)})
}

// clientEnded records that the client has ended.
func (q *Request) clientEnded() {
	q.record.mu.Lock()
	defer q.record.mu.Unlock()
	q.ClientEnded = q.record.now()
}

// lost records that the daemon reports LOST. Acquire may not have returned the lease yet.
func (q *Request) lost(l *redlock.Lease) {
	r := q.record
	r.mu.Lock()
	defer r.mu.Unlock()
	q.Lost = r.now()
	deadline := l.Deadline()
	q.Late = q.host.clock() >= deadline
	r.add(Event{Actor: q.By, What: "LOST", Lock: q.Lock, Lease: q.N, Until: q.host.instant(deadline), Note: string(l.Reason())})
}

// releasing records that the holder has stopped, and is about to release the lock.
func (g *Grant) releasing() {
	r := g.record
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampleLocked()
	g.Releasing = r.now()
	r.add(g.line("releases", ""))
}

// shares records that the holder has stopped writing, and is about to share the lock.
func (g *Grant) shares() {
	r := g.record
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.Shares == never {
		g.Shares = r.now()
	}
	r.report.Faults["downgrade"]++
	r.add(g.line("downgrades", ""))
}

// noted records that the daemon has recorded that the lease is shared.
func (g *Grant) noted() {
	g.record.mu.Lock()
	defer g.record.mu.Unlock()
	g.Noted = true
}

// downgraded checks, after a downgrade has succeeded, that a quorum of nodes has the lock as
// shared.
func (r *recorder) downgraded(g *Grant, shared, lapsed, nodes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.report.isForced(g) && shared+lapsed < nodes/2+1 {
		r.report.violate("downgrade", r.now(), "lease %d of %s was reported as shared although only %d of %d nodes had it as shared", g.N, g.Lock, shared, nodes)
	}
}

// noteExclusive checks a call that extends or repairs a lease as exclusive. The lease must not have
// become shared long before. The call may have been on its way at that time, and may come from a
// daemon that was killed.
func (r *recorder) noteExclusive(n *simNode, id, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner, known := r.tokens[id]
	if !known || owner.request.Grant == nil {
		return
	}
	g := owner.request.Grant
	onItsWay := time.Duration(exclusiveFor)
	if what == "extend" { // it has no not-after: the connection on which it waits may be silent for so long
		onItsWay += silenceLimit
	}
	if g.Shares == never || g.isOfKilledDaemon() || r.now() < g.Shares+onItsWay {
		return
	}
	r.report.violate("downgrade", r.now(), "node %s was asked to %s lease %d of %s as exclusive, although it was downgraded at %s",
		n.Name(), what, g.N, g.Lock, instant(g.Shares))
}

// exclusiveFor is how long after a downgrade such a call may come. A node does not execute a repair
// after its not-after.
const exclusiveFor = 2 * nodeTimeout

// silenceLimit is how long a connection may be silent before it is replaced: timing.silence of
// internal/node.
const silenceLimit = 400 * time.Millisecond

func (g *Grant) gaveUp() {
	r := g.record
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampleLocked()
	g.GaveUp = r.now()
}

// crashed records that a daemon is about to end, with all of its leases.
func (r *recorder) crashed(h *host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.report.Requests {
		if q.host == h && q.DaemonEnded == never {
			q.DaemonEnded = r.now()
		}
	}
}

// notice records what a daemon reports to the operator.
func (r *recorder) notice(h *host, n redlock.Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.Kind == redlock.CountersLost || n.Kind == redlock.NewFleet {
		r.report.CounterLosses = append(r.report.CounterLosses, r.now())
	}
	r.add(Event{Actor: h.name, What: string(n.Kind), Note: strings.TrimSpace(n.Node + " " + n.Text)})
}

// noteCounterLoss records that a quorum of nodes has lost its counters.
func (r *recorder) noteCounterLoss(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.CounterLosses = append(r.report.CounterLosses, at)
}

// forceAnswered records that FORCE was answered, and deleted a token.
func (r *recorder) forceAnswered(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.ForceAnswered[id] = r.now()
}

// forced records that a node executed FORCE for a token.
func (r *recorder) forced(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.report.Forced[id]; !known {
		r.report.Forced[id] = r.now()
	}
}

// stuck records that a client could not acquire a lock that was free.
func (r *recorder) stuck(q *Request, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Stuck = append(r.report.Stuck, fmt.Sprintf("%s on %s after %v: %v", q.Lock, q.host.name, r.now()-q.Began, err))
}

// sample reads the deadlines of all leases.
func (r *recorder) sample() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampleLocked()
}

func (r *recorder) sampleLocked() {
	now, kept := r.now(), r.open[:0]
	for _, g := range r.open {
		g.sample(now, r.sampled)
		if now < g.Until()+afterlife {
			kept = append(kept, g)
		}
	}
	clear(r.open[len(kept):])
	r.open, r.sampled = kept, now
}

// afterlife is how long a lease is observed after its deadline.
const afterlife = 300 * time.Millisecond

// sample reads the deadline of a lease. before is the instant of the previous sample. The caller
// holds the record's mu.
func (g *Grant) sample(now, before time.Duration) {
	deadline := g.lease.Deadline()
	if until := g.host.instant(deadline); until != g.Until() {
		g.Claims = append(g.Claims, Claim{before, now, until})
		g.longestTTL = max(g.longestTTL, g.lease.TTL())
		g.record.add(g.line("extended", ""))
	}
	reported := g.LostWhileDown || g.host.isDown() || g.Lost != never || g.Releasing != never || g.GaveUp != never || g.DaemonEnded != never
	if !reported && g.Unreported == never && g.host.clock() >= deadline {
		g.Unreported = now
		g.record.add(g.line("no LOST", ""))
	}
}

// exchanges holds the new tokens that nodes got for leases after a pass.
type exchanges struct {
	done map[string]bool // by the id of the new token: whether a node has it
}

// exchanges records that the nodes are about to get a new token for a lease. It returns false if
// the client has not got the lease yet.
func (r *recorder) exchanges(l *redlock.Lease, to redlock.Record) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.open {
		if g.ID == l.ID() {
			g.NewTokenID = idOf(to.Token)
			r.tokens[g.NewTokenID] = tokenOwner{g.Request, r.now()}
			r.report.Faults["exchange"]++
			r.add(g.line("exchanges", ""))
			return true
		}
	}
	return false
}

// exchanged records that a node has the new token of a lease.
func (r *recorder) exchanged(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onNodes.done[id] = true
}

// has reports whether the nodes may have this token for the grant.
func (g *Grant) has(id string) bool { return id == g.TokenID || id == g.NewTokenID }

// misnamed records that a host sees the wrong holder of a lock that was passed on.
func (r *recorder) misnamed(g *Grant, shown []redlock.Holding, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.violate("holder", r.now(), "lease %d of %s was passed on, and another host sees %+v (%v)", g.N, g.Lock, shown, err)
}
