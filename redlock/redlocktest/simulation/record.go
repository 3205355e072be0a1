package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// chronicle is what happened in a world, seen from outside. Instants count from the
// world's beginning, in the time of the bubble.
type chronicle struct {
	begin time.Time

	mu      sync.Mutex // guards the report and what follows; not held during a call that may wait
	report  *Report
	open    []*Grant // their deadlines may still move
	stays   map[string]*Stay
	sampled time.Duration
}

// never is the instant of an event that did not happen.
const never time.Duration = -1

// Request is one Acquire.
type Request struct {
	N      int
	Lock   string   // one name, or several with commas between them
	Locks  []string // the same names
	Kind   string   // "", "shared", or "slots=K"
	By     string   // the client
	TTL    time.Duration
	Began  time.Duration
	Failed []time.Duration // when attempts failed
	Ended  time.Duration   // without a lease; never: it has one, or continues
	Grant  *Grant          // nil: none
	Gone   time.Duration   // when its daemon ended; never: it did not

	host   *host
	life   int
	record *chronicle
	Lost   time.Duration // when LOST was reported; never: it was not
	Late   bool          // LOST was not reported before the deadline
	Away   bool          // the instant of LOST was past when its daemon was started again
}

// Grant is a lease as its holder sees it.
type Grant struct {
	*Request
	ID        string
	Slot      int           // of a semaphore
	Began     time.Duration // of the attempt that was granted, at the latest
	At        time.Duration
	Expired   bool // it had expired when it was granted
	Fence     uint64
	Claims    []Claim       // the stated deadlines, in order
	Releasing time.Duration // when the holder stopped; never: it did not say
	GaveUp    time.Duration // from when LOST need not be reported; never: it must be
	Nodes     int           // nodes in total
	Held      int           // nodes that could vote, and had the lock and the token when it was granted
	Lapsed    int           // nodes that were restarted or lost their data during the attempt
	Untold    time.Duration // when the deadline was past and nothing was reported; never: something was

	lease *redlock.Lease
}

// Claim is a stated deadline, first seen at At and not yet seen at After.
type Claim struct{ After, At, Until time.Duration }

// Until returns the last stated deadline.
func (g *Grant) Until() time.Duration { return g.Claims[len(g.Claims)-1].Until }

func newChronicle(report *Report) *chronicle {
	return &chronicle{begin: time.Now(), report: report, stays: map[string]*Stay{}}
}

func (r *chronicle) now() time.Duration { return time.Since(r.begin) }

// event adds a line to the trace.
func (r *chronicle) event(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(e)
}

// add adds a line to the trace. The caller holds mu.
func (r *chronicle) add(e Event) {
	e.At = r.now()
	r.report.Trace = append(r.report.Trace, e)
}

// count counts a fault that happened as planned.
func (r *chronicle) count(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Faults[kind]++
}

// countNode records what the network of a node really did.
func (r *chronicle) countNode(c redlocktest.Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Faults["request lost"] += c.Lost
	r.report.Faults["reply lost"] += c.Unheard
	r.report.Faults["connection killed"] += c.Killed
	r.report.Faults["dial refused"] += c.RefusedDials
}

func (r *chronicle) command(node string, c redlock.Command) {
	words := strings.Join(c, " ")
	if c[0] == "SCRIPT" {
		words = "SCRIPT LOAD"
	}
	r.event(Event{Actor: "node " + node, What: "executes", Note: words, isCommand: true})
}

// request records that a client is about to call Acquire.
func (r *chronicle) request(h *host, life int, by string, wish *redlock.Request) *Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &Request{
		N: len(r.report.Requests), Locks: locksOf(wish), Kind: kindOf(wish), By: by, TTL: wish.TTL, Began: r.now(),
		Ended: never, Lost: never, Gone: never, host: h, life: life, record: r,
	}
	q.Lock = strings.Join(q.Locks, ",")
	r.report.Requests = append(r.report.Requests, q)
	return q
}

func locksOf(wish *redlock.Request) []string {
	if len(wish.Names) > 0 {
		return wish.Names
	}
	return []string{wish.Name}
}

func kindOf(wish *redlock.Request) string {
	switch {
	case wish.Shared:
		return "shared"
	case wish.Slots > 1:
		return fmt.Sprintf("slots=%d", wish.Slots)
	}
	return ""
}

// holder returns a holder that identifies the request in its tokens: its number is their
// pid.
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
		Request: q, ID: l.ID(), Slot: l.Slot(), Began: q.Began, At: r.now(), Fence: l.Fence(), lease: l,
		Expired: q.host.clock() >= deadline, Releasing: never, GaveUp: never, Untold: never,
	}
	if n := len(q.Failed); n > 0 {
		g.Began = q.Failed[n-1]
	}
	q.Grant = g
	g.Claims = []Claim{{g.Began, g.At, q.host.instant(deadline)}}
	r.sampleLocked()
	r.open = append(r.open, g)
	r.report.Grants = append(r.report.Grants, g)
	r.add(g.line("granted", fmt.Sprintf("ttl %v, asked at %v", q.TTL, g.Began)+g.how()))
	return g
}

// how describes the kind of a grant that is not an ordinary one.
func (g *Grant) how() string {
	if g.Slot > 0 {
		return fmt.Sprintf(", %s, place %d", g.Kind, g.Slot)
	}
	return strings.TrimSuffix(", "+g.Kind, ", ")
}

// line returns a line of the trace.
func (g *Grant) line(what, note string) Event {
	return Event{Actor: g.By, What: what, Lock: g.Lock, Lease: g.N, Until: g.Until(), Fence: g.Fence, Note: note}
}

// event adds a line about a lease to the trace.
func (g *Grant) event(what, note string) {
	g.record.mu.Lock()
	defer g.record.mu.Unlock()
	g.record.add(g.line(what, note))
}

// lost records that the library reports LOST. Acquire may not have returned the lease yet.
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

func (g *Grant) gaveUp() {
	r := g.record
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampleLocked()
	g.GaveUp = r.now()
}

// crashed records that a daemon is about to end, with all of its leases.
func (r *chronicle) crashed(h *host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.report.Requests {
		if q.host == h && q.Gone == never {
			q.Gone = r.now()
		}
	}
}

// notice records what a daemon reports to the operator of the nodes.
func (r *chronicle) notice(h *host, n redlock.Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.Kind == redlock.CountersLost || n.Kind == redlock.NewFleet {
		r.report.Blackouts = append(r.report.Blackouts, r.now())
	}
	r.add(Event{Actor: h.name, What: string(n.Kind), Note: strings.TrimSpace(n.Node + " " + n.Text)})
}

// blackout records that a quorum of nodes is without counters.
func (r *chronicle) blackout(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Blackouts = append(r.report.Blackouts, at)
}

// forced records that a node executed FORCE for a token.
func (r *chronicle) forced(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.report.Forced[id]; !known {
		r.report.Forced[id] = r.now()
	}
}

// stuck records that a client could not acquire a lock although nothing blocked it.
func (r *chronicle) stuck(q *Request, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Stuck = append(r.report.Stuck, fmt.Sprintf("%s on %s after %v: %v", q.Lock, q.host.name, r.now()-q.Began, err))
}

// sample reads the deadlines of all leases.
func (r *chronicle) sample() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampleLocked()
}

func (r *chronicle) sampleLocked() {
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

// sample reads the deadline of a lease. before is the instant of the previous sample. The
// caller holds the record's mu.
func (g *Grant) sample(now, before time.Duration) {
	deadline := g.lease.Deadline()
	if until := g.host.instant(deadline); until != g.Until() {
		g.Claims = append(g.Claims, Claim{before, now, until})
		g.record.add(g.line("extended", ""))
	}
	told := g.Away || g.host.isDown() || g.Lost != never || g.Releasing != never || g.GaveUp != never || g.Gone != never
	if !told && g.Untold == never && g.host.clock() >= deadline {
		g.Untold = now
		g.record.add(g.line("not told", ""))
	}
}
