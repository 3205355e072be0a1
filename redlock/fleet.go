package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// fleet is the lanes of a Quorum, and what they share.
type fleet struct {
	options   *Options
	quorum    int
	lanes     []*node.Lane
	counts    counts
	admission *admission.Fleet
	bells     node.Bells
	timers    sync.Pool // of *time.Timer, stopped: each ballot needs one, for a moment
	aged      func()    // all leases of this host are older than it knew: see admission.Verdict
}

// newFleet makes the lanes; none of them runs yet.
func newFleet(o *Options) *fleet {
	f := &fleet{options: o, quorum: o.rules.quorum(len(o.Nodes))}
	f.admission = admission.NewFleet(o.admission(f.quorum))
	for i, master := range o.Nodes {
		f.lanes = append(f.lanes, node.NewLane(node.LaneOptions{
			Node: master, Index: i, Prefix: o.Prefix, NodeTimeout: o.NodeTimeout, NoQuarantine: o.NoQuarantine,
			Admission: f.admission, Fleet: f, Waiters: &f.bells, Rules: &o.rules.LaneRules,
			Clock: o.Clock, Observe: o.Observe, RoundTrip: o.RoundTrip,
		}))
	}
	return f
}

// admission returns what decides which nodes may vote.
func (o *Options) admission(quorum int) admission.Options {
	all := admission.Options{Prefix: o.Prefix, Quorum: quorum, MaxTTL: o.MaxTTL, NoQuarantine: o.NoQuarantine, Rules: o.rules.admission}
	for _, node := range o.Nodes {
		all.Nodes = append(all.Nodes, admission.NodeOptions{Name: node.Name, Durable: node.Durable})
	}
	return all
}

// newBallot is a ballot of all the nodes.
func (f *fleet) newBallot(op string, yes func(*Reply) bool) *ballot.Ballot {
	return ballot.New(op, len(f.lanes), f.quorum, yes)
}

// call hands the same script call over to every node.
func (f *fleet) call(c node.Call, now time.Duration) {
	for _, l := range f.lanes {
		l.Do(c, now)
	}
}

// await waits until the ballot is decided, for the node timeout at most, or until ctx
// is done.
func (f *fleet) await(ctx context.Context, b *ballot.Ballot) {
	timeout := f.options.NodeTimeout
	timer, _ := f.timers.Get().(*time.Timer)
	if timer == nil {
		timer = time.NewTimer(timeout)
	} else {
		timer.Reset(timeout)
	}
	b.Wait(ctx, timer.C, timeout, f.lanes)
	timer.Stop() // nothing is in its channel after that
	f.timers.Put(timer)
}

// CopyCounters asks the other nodes for their fencing counters and returns the largest of
// each. It does not count nodes that have no vote themselves: their counters may be lost,
// too. Nor one with a counter that is not believed (admission.Fleet.CheckToken). It waits
// for them at most for the node timeout.
func (f *fleet) CopyCounters(ctx context.Context) (counters *admission.Counters, sources int) {
	counters = new(admission.Counters)
	b := f.newBallot("counters", func(reply *Reply) bool { return len(reply.Array) > 0 })
	b.All = true
	f.call(node.Call{Op: b.Op, Ops: append(b.Ask(1), script.Operation{Op: script.ReadCounters, Key: script.NodeKey}), Voter: b}, f.options.Clock())
	f.await(ctx, b)
	for i := range b.Answers {
		if b.Answers[i].Verdict == ballot.Granted {
			sources++
			raiseCounters(counters, b.Answers[i].Shown.Array)
		}
	}
	return counters, sources
}

// raiseCounters takes the larger values out of a node's hash.
func raiseCounters(counters *admission.Counters, fields []Reply) {
	for i := 0; i+1 < len(fields); i += 2 {
		index, ok := script.CounterIndex(fields[i].Str)
		if !ok {
			continue
		}
		if value, ok := script.ParseFence(fields[i+1].Str); ok {
			counters[index] = max(counters[index], value)
		}
	}
}

// Judged does what follows from a verdict for other nodes, the operator and the leases.
func (f *fleet) Judged(node string, v *admission.Verdict) {
	f.LookAt(v.LookAt)
	if v.QuarantineBegun {
		f.counts.quarantines.Add(1)
	}
	for _, n := range v.Notices {
		f.notice(node, n)
	}
	if v.HostMissed {
		f.aged()
	}
}

// notice counts a notice and passes it on.
func (f *fleet) notice(node string, n admission.Notice) {
	switch n.Kind {
	case admission.ClockJumped:
		f.counts.clockJumps.Add(1)
		f.counts.withdrawals.Add(1)
	case admission.Withdrawn:
		f.counts.withdrawals.Add(1)
	case admission.HostClockJumped:
		f.counts.clockJumps.Add(1)
		node = ""
	case admission.CountersLost:
		f.counts.counterLosses.Add(1)
		node = ""
	}
	if f.options.Notice != nil {
		f.options.Notice(Notice{Kind: NoticeKind(n.Kind), Node: node, Text: n.Text})
	}
}

// LookAt has some nodes looked at now.
func (f *fleet) LookAt(nodes []int) {
	for _, i := range nodes {
		f.lanes[i].LookSoon()
	}
}

// freshness returns how recent the knowledge of the nodes is that a ballot relies on.
func (f *fleet) freshness(now time.Duration) admission.Freshness {
	fresh, lookAt := f.admission.Freshness(now)
	f.LookAt(lookAt)
	return fresh
}
