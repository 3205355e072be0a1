package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// Crowd has many hosts that want one lock all the time. Faults make messages late, lose calls
// of waiters, and stop or kill hosts. Between the faults, no lock may be free for longer than
// longestIdle while clients wait for it, and its grants have an order: see Quiet. While the first
// hosts in the queue are dead, or all hosts are replaced, it may be free for whileOthersDie.
var Crowd = &Scene{Name: "a crowd of waiters", hosts: 7, nodes: 5, observed: true, play: (*world).crowd}

const (
	crowdTTL  = simulatedMaxTTL       // if the crowd stops until a ttl ends, checkIdle sees it
	crowdHold = 40 * time.Millisecond // the longest use of the lock
	crowdWait = time.Minute           // longer than the crowd exists
)

// crowd is Crowd.
func (w *world) crowd(ctx context.Context) {
	random := w.plan.stream(streamCrowd)
	for q, _ := w.hosts[len(w.hosts)-1].daemon(); q.Status().Ready < len(w.nodes); {
		time.Sleep(time.Millisecond + 11)
	}
	number := random.IntN(len(kindsOfCrowd))
	work, end := context.WithCancel(ctx)
	w.work = work
	members := len(w.hosts)
	if len(kindsOfCrowd[number]) == manyReaders {
		members *= manyReaders // more than a node calls together
	}
	for i := range members {
		m := &member{w: w, host: w.hosts[i%len(w.hosts)], random: w.plan.stream(streamClient + i), kinds: kindsOfCrowd[number]}
		if i >= len(w.hosts) { // a host has one exclusive request in the queue
			m.kinds = m.kinds[1:]
		}
		w.clients.Go(m.run)
	}
	isOrdered := len(kindsOfCrowd[number]) == 1 && kindsOfCrowd[number][0].Slots == 0
	w.quiet(300*time.Millisecond, isOrdered)
	for range 3 {
		f := pick(random, crowdFaults...)
		w.record.event(Event{Actor: "crowd", What: f.name})
		f.make(w, random)
		w.record.event(Event{Actor: "crowd", What: "recovers"})
		w.record.count(f.name)
		time.Sleep(f.after)
		w.quiet(600*time.Millisecond, false)
	}
	time.Sleep(crowdTTL + clocksKnown)
	w.quiet(500*time.Millisecond, isOrdered)
	end()
	w.clients.Wait()
	time.Sleep(2 * strayAllowance) // lookAtQueues finds entries that stay
}

// clocksKnown is how long after a fault all hosts know the nodes' clocks precisely again: a tick of
// their looks.
const clocksKnown = time.Second + nodeTimeout

// kindsOfCrowd are the requests of the members of a crowd: one of them is picked for each lock.
var kindsOfCrowd = [][]redlock.Request{
	{{Name: "x"}},
	{{Name: "x"}},
	{{Name: "x"}, {Name: "x"}, {Name: "x", Shared: true}},
	{{Name: "x"}, {Name: "x", Slots: 2}, {Name: "x", Slots: 2}},
	{{Name: "x"}, {Name: "y"}, {Names: []string{"x", "y"}}},
	{{Name: "x"}, {Name: "x", Shared: true}, {Name: "x", Shared: true}, {Name: "x", Shared: true}},
}

// manyReaders is how many kinds a crowd of readers has, and how many members each of its hosts.
const manyReaders = 4

// member is a client of a crowd. It waits again as soon as it has released the lock.
type member struct {
	w      *world
	host   *host
	random *rand.Rand
	kinds  []redlock.Request
}

func (m *member) run() {
	for m.w.work.Err() == nil {
		time.Sleep(below(m.random, 3*time.Millisecond))
		q, life := m.host.daemon()
		if q == nil {
			continue
		}
		r := pick(m.random, m.kinds...)
		r.TTL, r.Wait = crowdTTL, crowdWait
		if oneIn(m.random, 10) { // it leaves the queue soon
			r.Wait = below(m.random, 30*time.Millisecond)
		}
		l, g := m.acquire(q, life, r)
		if l == nil {
			continue
		}
		time.Sleep(below(m.random, crowdHold))
		if _, now := m.host.daemon(); now == life && !m.host.isDown() {
			g.releasing()
			_, _ = l.BeginRelease()
		}
	}
}

func (m *member) acquire(q *redlock.Quorum, life int, r redlock.Request) (*redlock.Lease, *Grant) {
	record := m.w.record.request(m.host, life, m.host.name+".1", &r)
	record.inCrowd = true
	r.Holder, r.Failed = record.holder(), record.failed
	l, err := q.Acquire(m.w.work, r)
	if err != nil {
		record.ended(err)
		return nil, nil
	}
	g := record.granted(l)
	m.w.lookAtGrant(g)
	return l, g
}

// crowdFault is something that a crowd must survive. after is how long it has consequences: a dead host
// holds the lock until its ttl ends, and waiters that may have missed a call ask within missedWithin.
type crowdFault struct {
	name  string
	after time.Duration
	make  func(*world, *rand.Rand)
}

var crowdFaults = []crowdFault{
	{"overload", 0, (*world).overload},
	{"overload of a host", 0, (*world).overloadHost},
	{"lost calls", 0, (*world).loseCalls},
	{"listeners cut", missedWithin, (*world).cutAll},
	{"waiter stopped", crowdTTL + missedWithin, (*world).stopWaiter},
	{"waiter killed", crowdTTL, (*world).killWaiter},
	{"head killed", crowdTTL, (*world).killHead},
	{"all replaced", crowdTTL, (*world).replaceAll},
}

// missedWithin is how soon waiters ask again after they may have missed a call: see
// internal/node.
const missedWithin = 2 * time.Second

// overload delays all messages, for longer than a turn and than node_timeout.
func (w *world) overload(random *rand.Rand) {
	for _, n := range w.nodes {
		n.latency.set(between(random, nodeTimeout, 4*nodeTimeout))
	}
	time.Sleep(between(random, 200*time.Millisecond, 1500*time.Millisecond))
	for _, n := range w.nodes {
		n.latency.set(n.latency.usual)
	}
	time.Sleep(2 * 4 * nodeTimeout) // until the last of them has arrived
}

// overloadHost delays the messages of some hosts.
func (w *world) overloadHost(random *rand.Rand) {
	for range 1 + random.IntN(len(w.hosts)-1) {
		for _, l := range pick(random, w.hosts...).links {
			l.slower.Store(int64(between(random, nodeTimeout/2, 3*nodeTimeout)))
		}
	}
	time.Sleep(between(random, 200*time.Millisecond, 1500*time.Millisecond))
	for _, h := range w.hosts {
		for _, l := range h.links {
			l.slower.Store(0)
		}
	}
	time.Sleep(2 * 3 * nodeTimeout)
}

// loseCalls loses the calls to one host.
func (w *world) loseCalls(random *rand.Rand) {
	h := pick(random, w.hosts...)
	for _, l := range h.links {
		l.losesCalls.Store(true)
	}
	time.Sleep(between(random, 50*time.Millisecond, 400*time.Millisecond))
	for _, l := range h.links {
		l.losesCalls.Store(false)
	}
}

// cutAll breaks all connections to some nodes.
func (w *world) cutAll(random *rand.Rand) {
	for _, n := range w.nodes {
		if oneIn(random, 2) {
			n.Cut()
		}
	}
}

// stopWaiter makes a host reach no node for a while.
func (w *world) stopWaiter(random *rand.Rand) {
	h := pick(random, w.hosts...)
	end := w.faults.cutLinks(h, w.nodes, 0).end
	time.Sleep(between(random, 50*time.Millisecond, 5*time.Second))
	end()
}

// killWaiter ends a daemon, and starts it again later.
func (w *world) killWaiter(random *rand.Rand) {
	h := pick(random, w.hosts...)
	h.crash()
	time.Sleep(between(random, 50*time.Millisecond, time.Second))
	h.start()
}

// killHead ends two or three daemons at once: those of the last holder and of the clients that have
// waited longest. They are dead for longer than the nodes take them for alive. The others must have the
// lock soon.
func (w *world) killHead(random *rand.Rand) {
	from, dead := w.record.now(), w.record.head(2+random.IntN(2))
	for _, h := range dead {
		h.crash()
	}
	time.Sleep(crowdTTL + hostTTL)
	w.bound(Quiet{From: from, To: w.record.now(), mostIdle: whileOthersDie})
	for _, h := range dead {
		h.start()
	}
}

// replaceAll replaces each daemon by a new one, one after the other, as a rolling reload does.
func (w *world) replaceAll(random *rand.Rand) {
	from := w.record.now()
	for _, i := range random.Perm(len(w.hosts)) {
		h := w.hosts[i]
		q, _ := h.daemon()
		q.Flush(w.work)
		h.crash()
		time.Sleep(between(random, 50*time.Millisecond, 300*time.Millisecond))
		h.start()
		time.Sleep(between(random, 200*time.Millisecond, 500*time.Millisecond))
	}
	w.bound(Quiet{From: from, To: w.record.now(), mostIdle: whileOthersDie})
}

// whileOthersDie is how long a lock may be free after the end of a lease while hosts at the head of the
// queue die or are replaced.
const whileOthersDie = time.Second

// head returns n hosts: that of the last grant, and those whose clients have waited longest.
func (r *recorder) head(n int) (hosts []*host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.report.Grants) - 1; last >= 0 {
		hosts = append(hosts, r.report.Grants[last].Request.host)
	}
	for _, q := range r.report.Requests { // in the order in which they began
		if len(hosts) < n && q.inCrowd && q.waitEnded() == never && !slices.Contains(hosts, q.host) {
			hosts = append(hosts, q.host)
		}
	}
	return hosts
}

// Quiet is a time of a crowd in which faults have no consequences any more, or bounded ones.
type Quiet struct {
	From, To  time.Duration
	mostIdle  time.Duration // how long the lock may be free while clients wait
	isOrdered bool          // its clients want one exclusive lock, and its hosts know the nodes' clocks
}

// quiet lets the crowd run without faults.
func (w *world) quiet(lasts time.Duration, isOrdered bool) {
	from := w.record.now()
	time.Sleep(lasts)
	w.bound(Quiet{from, w.record.now(), longestIdle, isOrdered})
}

// bound records a time for checkCrowd.
func (w *world) bound(quiet Quiet) {
	w.record.mu.Lock()
	defer w.record.mu.Unlock()
	w.record.report.Quiet = append(w.record.report.Quiet, quiet)
}

// longestIdle is how long a lock may be free while clients wait for it, and no fault has consequences.
// If only some nodes have called a waiter, it asks after three node timeouts. Then it may have to wait
// for the end of another waiter's turn, and its attempt takes up to a node timeout.
const longestIdle = 3*nodeTimeout + turn + nodeTimeout

// checkCrowd checks the quiet times of a crowd.
func (r *Report) checkCrowd() {
	for _, quiet := range r.Quiet {
		r.checkIdle(quiet)
		if quiet.isOrdered {
			r.checkOrder(quiet)
		}
	}
}

// checkIdle checks that while clients wait and none of them has a lock, one of them soon gets it.
func (r *Report) checkIdle(quiet Quiet) {
	free := quiet.From // since when no client has had a lock
	for _, g := range r.Grants {
		if g.At >= quiet.To {
			break
		}
		r.checkFree(free, g.At, quiet.mostIdle)
		free = max(free, g.ends())
	}
	r.checkFree(free, quiet.To, quiet.mostIdle)
}

// checkFree checks a time in which no client had a lock.
func (r *Report) checkFree(from, to, mostIdle time.Duration) {
	since := to // when a client that still waits at the end began to wait
	for _, q := range r.Requests {
		if ended := q.waitEnded(); q.inCrowd && (ended == never || ended >= to) {
			since = min(since, q.Began)
		}
	}
	if idle := to - max(from, since); idle > mostIdle {
		r.violate("idle", to, "no client was granted a lock for %v although clients waited and none had one", idle)
	}
}

// ends returns when the grant certainly has ended.
func (g *Grant) ends() time.Duration {
	if g.Releasing != never {
		return g.Releasing
	}
	return g.Until()
}

// mostOvertakers is how many clients that asked later are granted the lock before a waiter at most: one
// may ask when the waiter is in too few queues yet.
const mostOvertakers = 1

// checkOrder checks that a client that waits in the queues is granted the lock before those that ask
// later.
func (r *Report) checkOrder(quiet Quiet) {
	for _, q := range r.Requests {
		if !q.inCrowd || q.Began < quiet.From || len(q.Failed) == 0 {
			continue
		}
		overtakers := 0
		for _, g := range r.Grants {
			ended := q.waitEnded()
			if g.inCrowd && g.Request.Began > q.Failed[0] && g.At < quiet.To && (ended == never || g.At < ended) {
				overtakers++
			}
		}
		if overtakers > mostOvertakers {
			r.violate("overtaken", q.Began, "request %d of %s waited while %d clients that asked later were granted the lock", q.N, q.Lock, overtakers)
		}
	}
}

// CrowdFaults returns the names of the faults of Crowd.
func CrowdFaults() (names []string) {
	for _, f := range crowdFaults {
		names = append(names, f.name)
	}
	return names
}
