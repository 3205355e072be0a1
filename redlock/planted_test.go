package redlock_test

import "github.com/redlockd/redlockd/redlock/redlocktest/planted"

// mistakes are changes of the source on which safety depends. TestSearchFindsPlantedBugs finds them.
var mistakes = []planted.Mistake{
	planted.New("quorum of half the nodes",
		planted.Replace("quorum.go", `	f.system = o.system(&refusing)
`, `	if f.system = o.system(&refusing); WRONG {
		f.system = f.system.Weakened()
	}
`),
		planted.Add("internal/quorum/weakened.go", `package quorum

// Weakened returns a System of which a quorum has one node fewer of each group, but at least one.
// Quorums may then share no node: it is for tests that show what follows.
func (s System) Weakened() (weak System) {
	for _, g := range s.groups {
		weak.groups = append(weak.groups, group{g.nodes, max(1, g.needed-1)})
	}
	if s.refusing != nil {
		weak.before, weak.refusing = weak.groups[0], s.refusing
	}
	return weak
}
`),
	),
	planted.New("one token for all attempts",
		planted.Replace("attempt.go", "newToken(r.Holder)", "plantedPick(WRONG, plantedToken(r.Holder), newToken(r.Holder))"),
		planted.Add("planted_token.go", `package redlock

import "sync"

var plantedTokens sync.Map // each Acquire in a simulation has its own pid

func plantedToken(h Holder) string {
	token, _ := plantedTokens.LoadOrStore(h.PID, newToken(h))
	return token.(string)
}
`),
	),
	planted.New("start read after the answers",
		planted.Replace("attempt.go", "min(a.start+a.r.TTL-", "min(plantedPick(WRONG, now, a.start)+a.r.TTL-"),
		planted.Replace("keeper.go", "min(start+ttl-", "min(plantedPick(WRONG, now, start)+ttl-"),
	),
	planted.New("drift left out",
		planted.Replace("attempt.go", "drift(a.r.TTL), q.adm", "plantedPick(WRONG, 0, drift(a.r.TTL)), q.adm"),
		planted.Replace("keeper.go", "drift(ttl), latest)", "plantedPick(WRONG, 0, drift(ttl)), latest)"),
	),
	planted.New("waiter for several keeps nothing", planted.Replace("acquire.go", "moves && wasPatient {", "moves && wasPatient && !WRONG {")),
	planted.New("waiter for several keeps everything", planted.Replace("acquire.go", "	case wasPatient:\n		keeps = nil", "	case wasPatient:\n		keeps = plantedPick(WRONG, slices.DeleteFunc(a.target.keys(), func(key string) bool { return key == blocked }), nil)")),
	planted.New("waiter for several keeps for ever", planted.Replace("acquire.go", "now-a.keptSince > reserved:", "now-a.keptSince > plantedPick(WRONG, time.Hour, reserved):"),
		planted.Replace("acquire.go", "turn := reserved\n", "turn := plantedPick(WRONG, time.Hour, reserved)\n")),
	planted.New("waiter for several asks for the last", planted.Replace("internal/ballot/ballot.go", "for n, i := range slices.Backward(b.Order) {", "for n, i := range plantedPick(WRONG, slices.All(b.Order), slices.Backward(b.Order)) {"),
		planted.Replace("internal/ballot/ballot.go", "	for n, nodes := range b.blocked {\n		if b.Quorum.Blocks", "	for n, nodes := range plantedPick(WRONG, slices.Backward(b.blocked), slices.All(b.blocked)) {\n		if b.Quorum.Blocks")),
	planted.New("position of the first nodes that answer", planted.Replace("acquire.go", "held != nil && position > 0 {", "held != nil && position > 0 && !WRONG {")),
	planted.New("no check of elapsed time", planted.Replace("attempt.go", "now < a.deadline &&", "(WRONG || now < a.deadline) &&")),
	planted.New("acquire without not-after", planted.Replace("attempt.go", "a.start + a.q.options.NodeTimeout //", "a.start + plantedPick(WRONG, time.Hour, a.q.options.NodeTimeout) //")),
	planted.New("LOST at the deadline", planted.Replace("lease.go", "return l.deadline - guard", "return l.deadline - plantedPick(WRONG, 0, guard)")),
	planted.New("release at LOST",
		planted.Replace("lease.go", "l.releaseAt = l.deadline //", "l.releaseAt = plantedPick(WRONG, now, l.deadline) //"),
		planted.Replace("adopt.go", "l.releaseAt = l.deadline", "l.releaseAt = plantedPick(WRONG, now, l.deadline)"),
	),
	planted.New("expired lease extended", planted.Replace("lease.go", `	if l.errAtLocked(now) != nil {
		return false
`, `	if !WRONG && l.errAtLocked(now) != nil {
		return false
`)),
	planted.New("extension that shortens", planted.Replace("lease.go", "max(l.deadline, l.capDeadline(deadline))", "max(plantedPick(WRONG, 0, l.deadline), l.capDeadline(deadline))")),
	planted.New("pass window from the answer",
		planted.Replace("lease.go", "g.blockEnd, start, now)", "g.blockEnd, plantedPick(WRONG, now, start), now)"),
		planted.Replace("pass.go", "c.host.confirm(e.start,", "c.host.confirm(plantedPick(WRONG, e.k.clock(), e.start),"),
	),
	planted.New("pass window not read again", planted.Replace("pass.go", "!l.mayPassLocked(l.ttl, l.fence, now)", "!WRONG && !l.mayPassLocked(l.ttl, l.fence, now)")),
	planted.New("pass to a client that is gone", planted.Replace("pass.go", "if isClientGone ||", "if !WRONG && isClientGone ||")),
	planted.New("lost lease passed on", planted.Replace("pass.go", "l.errAtLocked(now) == nil && ttl <= l.ttl", "(WRONG || l.errAtLocked(now) == nil) && ttl <= l.ttl")),
	planted.New("write-back to the start of the block",
		planted.Replace("attempt.go", "Fence: a.b.RaiseTo}", "Fence: plantedPick(WRONG, a.fence, a.b.RaiseTo)}"),
		planted.Replace("attempt.go", "Fence: a.blockEnd}", "Fence: plantedPick(WRONG, fence, a.blockEnd)}"),
		planted.Replace("extension.go", "script.Confirm, e.passed[i].raiseTo", "script.Confirm, plantedPick(WRONG, l.fence, e.passed[i].raiseTo)"),
	),
	planted.New("block used after a loss",
		planted.Replace("attempt.go", `type attempt struct {
`, `type attempt struct {
	lostFence uint64
`),
		planted.Replace("attempt.go", `		return q.keeper.grant(a.r,`, `		if WRONG && a.lostFence != 0 {
			a.fence = a.lostFence
		}
		return q.keeper.grant(a.r,`),
		planted.Replace("pass.go", `	p.end()
	now := a.q.clock()
	*a = *a.q.newAttempt(a.r, &a.target, now)
`, `	p.successor.mu.Lock()
	wasLost := p.successor.state == lost
	p.successor.mu.Unlock()
	p.end()
	now := a.q.clock()
	if *a = *a.q.newAttempt(a.r, &a.target, now); WRONG && wasLost {
		a.lostFence = p.successor.fence
	}
`),
	),
	planted.New("FORCE that does not wait", planted.Replace("force.go", "q.clock() + PassWindow + drift(PassWindow)", "q.clock() + plantedPick(WRONG, 0, PassWindow+drift(PassWindow))")),
	planted.New("block handed out again", planted.Replace("adopt.go", `	l.downgraded = t.kind`, `	if WRONG {
		l.extra.host = newHostLease(l, MaxBlock, r.Fence+MaxBlock, now, now)
	}
	l.downgraded = t.kind`)),
	planted.New("repaired node confirms a pass", planted.Replace("pass.go", "|| c.host.wasRepaired(node)", "|| !WRONG && c.host.wasRepaired(node)")),
	planted.New("expired lease adopted", planted.Replace("adopt.go", `      r.Deadline,
`, `      plantedPick(WRONG, now+r.TTL-drift(r.TTL), r.Deadline),
`)),
	planted.New("release overtakes acquire",
		planted.Replace("internal/node/group.go", `		l.noteSent(now)
	}
	return group
`, `		l.noteSent(now)
	}
	if WRONG {
		releasesFirst(group)
	}
	return group
`),
		planted.Add("internal/node/releases_first.go", `package node

import "slices"

func releasesFirst(group []Call) {
	slices.SortStableFunc(group, func(a, b Call) int {
		switch {
		case a.IsRelease() == b.IsRelease():
			return 0
		case a.IsRelease():
			return -1
		}
		return 1
	})
}
`),
	),
	planted.New("old connection not killed", planted.Replace("internal/node/connect.go", "old = l.session.clientID", "old = plantedPick(WRONG, noConnection, l.session.clientID)")),
	planted.New("releases not repeated",
		planted.Replace("internal/node/lane.go", "c.Voter == nil && !c.Placed.Has(l.index)", "c.Voter == nil && (WRONG || !c.Placed.Has(l.index))"),
		planted.Replace("internal/node/lane.go", "if c.IsRelease() && c.Placed.Has(l.index)", "if !WRONG && c.IsRelease() && c.Placed.Has(l.index)"),
	),
	planted.New("reader admitted by a minority",
		planted.Replace("attempt.go", `	if r.Slots > 1 {
		t.slot`, `	if WRONG && r.Shared {
		a.b.Quorum = q.system.Weakened()
	}
	if r.Slots > 1 {
		t.slot`),
		planted.Replace("attempt.go", "if q.system.Decides(nodes)", "if WRONG || q.system.Decides(nodes)"),
	),
	planted.New("token from a minority", planted.Replace("attempt.go", `q.system.Decides(nodes) {
		a.blockEnd`, `q.system.Decides(nodes) || WRONG {
		a.blockEnd`)),
	planted.New("vote of a quarantined node",
		planted.Replace("internal/node/look.go", "if state == Ready {", "if state == Ready || WRONG && state == Quarantined {"),
		planted.Replace("internal/node/lane.go", "case l.state != Ready:", "case l.state != Ready && !(WRONG && l.state == Quarantined):"),
	),
	planted.New("counters not copied", planted.Replace("quorum.go", `func (f *fleet) CopyCounters(ctx context.Context, to int) *admission.Sources {
`, `func (f *fleet) CopyCounters(ctx context.Context, to int) *admission.Sources {
	if n := len(f.lanes); WRONG {
		return &admission.Sources{Nodes: quorum.First(n), Counters: new(admission.Counters), Epochs: make([]string, n)}
	}
`)),
	planted.New("counters copied too early",
		planted.Replace("internal/node/look.go", `	if !v.NeedsCounters && !v.Completes {
`, `	if !v.NeedsCounters && !v.Completes {
		if WRONG && v.State == admission.Quarantined {
			l.copyEarly(ctx)
		}
`),
		planted.Replace("internal/node/look.go", "l.fleet.CopyCounters(ctx, l.index) //", "plantedPick(WRONG, l.copied, l.fleet.CopyCounters)(ctx, l.index) //"),
		planted.Add("internal/node/copied.go", `package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/redlockd/redlockd/redlock/internal/admission"
)

var copies sync.Map // by the marker's word and the node

func (l *Lane) copyKey() string { return fmt.Sprintf("%s %p", l.member.MarkerWord(), l.member) }

// copyEarly copies counters when a quarantine begins. copied returns them when it ends.
func (l *Lane) copyEarly(ctx context.Context) {
	if _, ok := copies.Load(l.copyKey()); ok {
		return
	}
	if sources := l.fleet.CopyCounters(ctx, l.index); l.admission.AreEnough(sources.Nodes) {
		copies.Store(l.copyKey(), sources)
	}
}

func (l *Lane) copied(ctx context.Context, to int) *admission.Sources {
	if early, ok := copies.Load(l.copyKey()); ok {
		return early.(*admission.Sources)
	}
	return l.fleet.CopyCounters(ctx, to)
}
`),
		planted.Add("internal/admission/marker_word.go", `package admission

import (
	"slices"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// MarkerWord returns the word of the last quarantine that was seen.
func (m *Member) MarkerWord() string { return m.marker.Word }

// AreEnough reports whether the sources include another member of each quorum that the node was part of.
func (f *Fleet) AreEnough(sources quorum.Set) bool {
	return !slices.ContainsFunc(f.lists, func(list quorum.System) bool { return !list.Blocks(sources) })
}
`),
	),
	planted.New("former node believed",
		planted.Replace("internal/admission/incarnation_register.go", `		return false, ErrSuperseded
	}
	if isNew`, `		if WRONG {
			return false, nil
		}
		return false, ErrSuperseded
	}
	if isNew`),
		planted.Replace("internal/admission/incarnation_register.go", "is := isLater(r.latest[node], seen)", "is := isLater(r.latest[node], seen) && !WRONG"),
	),
	planted.New("later groups counted as not sent", planted.Replace("internal/node/window.go", `	for _, trip := range w.underWay { // the node may have executed each of them
`, `	for i, trip := range w.underWay {
		for j := range trip.calls {
			if WRONG && i > 0 {
				trip.calls[j].markNotSent(l.index)
			}
		}
`)),
	planted.New("downgrade by a minority", planted.Replace("extend.go", "return e.k.q.system.Decides(e.granted[i])", "return WRONG && e.granted[i] != 0 || e.k.q.system.Decides(e.granted[i])")),
	planted.New("downgrade asked for once", planted.Replace("extension.go", "case l.isDowngraded(): //", "case l.isDowngraded() && (!WRONG || e.byClient): //")),
	planted.New("repaired as exclusive", planted.Replace("extension.go", "if !l.downgraded {", "if WRONG || !l.downgraded {")),
	planted.New("list of a node too few", planted.Replace("scan.go", "return q.system.Blocking() }", "return q.system.Blocking() - plantedPick(WRONG, 1, 0) }")),
	planted.New("minority taken for a holder", planted.Replace("who.go", "!q.system.Decides(h.nodes|b.Failed)", "!(WRONG && h.nodes != 0) && !q.system.Decides(h.nodes|b.Failed)")),
	planted.New("repair counts at once", planted.Replace("extension.go", "case e.noteHeldLocked(i, node, &replies[i]):", "case e.noteHeldLocked(i, node, &replies[i]) || WRONG:")),
	planted.New("new without the wait", planted.Replace("internal/admission/change.go", "candidate.since+maxTTL {", "candidate.since+plantedPick(WRONG, 0, maxTTL) {")),
	planted.New("new without the counters", planted.Replace("internal/admission/judge.go", `	return Verdict{Write: &e, Counters: sources.Counters}`, `	if WRONG {
		return Verdict{Write: &e}
	}
	return Verdict{Write: &e, Counters: sources.Counters}`)),
	planted.New("replaced list taken for new", planted.Replace("internal/admission/quarantine.go", "case !enough && fleet.change.isReplaced():", "case !WRONG && !enough && fleet.change.isReplaced():")),
	planted.New("stage of a restarted node forgotten", planted.Replace("internal/admission/judge.go", "err == nil && e.Name == m.name {", "!WRONG && err == nil && e.Name == m.name {")),
	planted.New("unheard node not awaited", planted.Replace("internal/admission/fleet.go", "if f.heard != 0 &&", "if !WRONG && f.heard != 0 &&")),
	planted.New("change that is over begins again", planted.Replace("internal/admission/change.go", "c.joined < c.number }", "!WRONG && c.joined < c.number }")),
	planted.New("quarantine by uptime",
		planted.Replace("internal/admission/quarantine.go", "j.member.quarantineEnd()}}", "plantedPick(WRONG, j.endByUptime(), j.member.quarantineEnd())}}"),
		planted.Replace("internal/admission/quarantine.go", "j.snapshot.At >= m.quarantineEnd()", "j.snapshot.At >= plantedPick(WRONG, j.endByUptime(), m.quarantineEnd())"),
		planted.Add("internal/admission/end_by_uptime.go", `package admission

import "time"

func (j *judgement) endByUptime() time.Duration {
	if j.member.fleet.options.NoQuarantine || j.member.endNow {
		return j.member.markedAt
	}
	return j.snapshot.At - time.Duration(j.snapshot.Info.Uptime)*time.Second + j.member.fleet.LongestTTL()
}
`),
	),
}
