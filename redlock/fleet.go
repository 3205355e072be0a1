package redlock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// fleet is the lanes of a Quorum, and what they know together: what makes one
// node's admission depend on the others.
type fleet struct {
	options *Options
	digest  string // of the node list and the prefix
	quorum  int
	lanes   []*lane
	counts  counts
	jumps   jumps
	horizon horizon
	bells   bells
	words   *register
	timers  sync.Pool // of *time.Timer, stopped: each ballot needs one, for a moment
	aged    func()    // all leases of this host are older than it knew: see jumps.missed

	// maxTTL is the longest lease that anyone may have on these nodes: ours, or
	// a larger one that other hosts recorded there. It never sinks.
	maxTTL    atomic.Int64
	announced atomic.Bool // the loss of a quorum's counters was told
}

// newFleet makes the lanes; none of them runs yet.
func newFleet(o *Options) *fleet {
	f := &fleet{options: o, digest: listDigest(o.Nodes, o.Prefix), quorum: o.rules.quorum(len(o.Nodes))}
	f.maxTTL.Store(int64(o.MaxTTL))
	f.jumps.nodes = make([]nodeClock, len(o.Nodes))
	f.horizon = newHorizon(len(o.Nodes))
	f.words = newRegister(o.Nodes, f.quorum)
	for i, node := range o.Nodes {
		f.lanes = append(f.lanes, newLane(node, i, f))
	}
	return f
}

// newBallot is a ballot of all the nodes.
func (f *fleet) newBallot(op string, yes func(*Reply) bool) *ballot {
	return newBallot(op, len(f.lanes), f.quorum, yes)
}

// call hands the same script call over to every node.
func (f *fleet) call(c call, now time.Duration) {
	for _, l := range f.lanes {
		l.do(c, now)
	}
}

// await waits until the ballot is decided, for the node timeout at most, or until ctx
// is done.
func (f *fleet) await(ctx context.Context, b *ballot) {
	timeout := f.options.NodeTimeout
	timer, _ := f.timers.Get().(*time.Timer)
	if timer == nil {
		timer = time.NewTimer(timeout)
	} else {
		timer.Reset(timeout)
	}
	b.wait(ctx, timer.C, timeout, f.lanes)
	timer.Stop() // nothing is in its channel after that
	f.timers.Put(timer)
}

// noteMaxTTL takes a larger max_ttl over.
func (f *fleet) noteMaxTTL(ttl time.Duration) {
	for {
		known := f.maxTTL.Load()
		if int64(ttl) <= known || f.maxTTL.CompareAndSwap(known, int64(ttl)) {
			return
		}
	}
}

func (f *fleet) longestTTL() time.Duration { return time.Duration(f.maxTTL.Load()) }

// copySources is how many other nodes counters are copied from: so many meet
// every quorum that the node was ever part of, in a node other than itself.
func (f *fleet) copySources() int { return len(f.lanes) - f.quorum + 1 }

// copyCounters asks the other nodes for their fencing counters and returns the
// largest of each. Nodes that have no vote themselves are not counted: their
// counters may be as lost. Nor is one with a counter that is not to be believed
// (horizon). It waits for them at most for the node timeout.
func (f *fleet) copyCounters(ctx context.Context, clock func() time.Duration) (counters *[maxCounters]uint64, sources int) {
	counters = new([maxCounters]uint64)
	b := f.newBallot("counters", func(reply *Reply) bool { return len(reply.Array) > 0 })
	b.all = true
	f.call(call{op: b.op, ops: b.ask(operation{letter: opCounters, key: nodeKey}), voter: b}, clock())
	f.await(ctx, b)
	for i := range b.answers {
		if b.answers[i].verdict == granted {
			sources++
			raiseCounters(counters, b.answers[i].shown.Array)
		}
	}
	return counters, sources
}

// raiseCounters takes the larger values out of a node's hash.
func raiseCounters(counters *[maxCounters]uint64, fields []Reply) {
	for i := 0; i+1 < len(fields); i += 2 {
		index, ok := counterIndex(fields[i].Str)
		if !ok {
			continue
		}
		if value, ok := parseFence(fields[i+1].Str); ok {
			counters[index] = max(counters[index], value)
		}
	}
}

// noteTotalLoss finds out whether a quorum of nodes were without counters that can
// be trusted at one and the same instant, and remembers it of each of them: what
// they counted before is lost, wherever it is looked for, and each may begin
// anew. (No grant since then had a node that was not admitted yet.) Nodes that
// lost theirs one after the other do not add up: another daemon may have admitted
// the first, with the counters of the others, before the last lost its own. Nor
// does one that cannot be reached: it may have kept them.
func (f *fleet) noteTotalLoss() {
	spans := make([]lossSpan, len(f.lanes))
	for i, l := range f.lanes {
		spans[i] = l.lossSpan()
	}
	for _, span := range spans {
		if span.lost && countAt(spans, span.first) >= f.quorum {
			for i, l := range f.lanes {
				if spans[i].holds(span.first) {
					l.noteTotalLoss(spans[i].first)
				}
			}
		}
	}
}

// lossSpan is when a node was certainly without counters, in turns (jumps.next):
// from the answer that showed its marker first to the question of the one that
// showed it last. (An answer says nothing of what was later than the question.)
type lossSpan struct {
	lost        bool
	first, last uint64
	total       bool // a quorum was so at one instant of it
}

func (s *lossSpan) holds(at uint64) bool { return s.lost && s.first <= at && at <= s.last }

func countAt(spans []lossSpan, at uint64) (n int) {
	for i := range spans {
		if spans[i].holds(at) {
			n++
		}
	}
	return n
}

// isAnew tells whether a quorum was without counters together with a node, and whoever votes
// by now was so as well since the node was first.
func (f *fleet) isAnew(l *lane) bool {
	span := l.lossSpan()
	for i, other := range f.lanes {
		if i != l.index && f.words.votes(i) && other.lastLost() < span.first {
			return false
		}
	}
	return span.total
}

// countersLost is how many nodes have no counters that can be trusted.
func (f *fleet) countersLost() (n int) {
	for _, l := range f.lanes {
		if l.lossSpan().lost {
			n++
		}
	}
	return n
}

// forgetLoss: all have counters now, and the next loss is another one.
func (f *fleet) forgetLoss() {
	if f.announced.Load() && f.countersLost() == 0 {
		f.announced.Store(false)
	}
}

// announceLoss tells, once, that a node was admitted without counters of others.
func (f *fleet) announceLoss() {
	if f.announced.Swap(true) {
		return
	}
	f.counts.counterLosses.Add(1)
	f.tell(Notice{Kind: CountersLost, Text: fmt.Sprintf("a quorum of the %d nodes had no fencing counters, so these began anew from the nodes' clocks: "+
		"as it should be where the nodes are new; where they are not, a fencing token of before may be larger than the next ones", len(f.lanes))})
}

func (f *fleet) tell(n Notice) {
	if f.options.Notice != nil {
		f.options.Notice(n)
	}
}

// warnings are what could be better about the fleet as a whole.
func (f *fleet) warnings() []string {
	var all []string
	if n := len(f.lanes); n%2 == 0 {
		all = append(all, fmt.Sprintf("%d nodes bear no more failures than %d would: use an odd number", n, n-1))
	}
	if longest := f.longestTTL(); longest > f.options.MaxTTL {
		all = append(all, fmt.Sprintf("max_ttl is %v here and %v on other hosts, or was so once: the nodes remember it, and quarantines last as long; use the same everywhere, and to go back, stop all daemons, wait that long, HDEL %s epoch on every node", f.options.MaxTTL, longest, nodeKey))
	}
	return all
}
