package admission

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// judgePending judges a quarantined node. Every daemon measures the quarantine with its own
// clock, from when it first saw the marker. It never uses the node's uptime, which does not show
// when the node was flushed.
func (j *judgement) judgePending(e Epoch) Verdict {
	m, s, fleet := j.member, j.snapshot, j.member.fleet
	if m.marker.Word != e.Word || m.marker.RunID != e.RunID {
		m.countJump(s.At, e)
		m.markedAt, m.markedTurn = s.At, s.Turn
	}
	m.marker = e
	fleet.raiseMaxTTL(e.MaxTTL)
	if longest := fleet.LongestTTL(); e.MaxTTL < longest {
		e.MaxTTL = longest
		return Verdict{Write: &e}
	}
	fleet.noteCounterLoss(m.index, !e.HasCounters, m.markedTurn, s.SentTurn)
	fleet.noteTotalLoss()
	waiting := j.waiting(e)
	switch {
	case s.At < waiting.Until:
		return waiting
	case e.HasCounters:
		return admitted(e, e.Stage, nil)
	case fleet.options.NoQuarantine:
		return admitted(e, fleet.change.stage().String(), new(Counters))
	}
	waiting.NeedsCounters = true
	return waiting
}

// wrongRate is how many jumps in a row show that a clock runs at a wrong rate. A clock that is off by 2 %
// exceeds the drift allowance within seconds after each quarantine.
const wrongRate = 3

// countJump counts a quarantine because of the clock. One that begins later than max_ttl after the last
// one ended begins the count again.
func (m *Member) countJump(now time.Duration, e Epoch) {
	switch {
	case !e.HasCounters:
		m.jumps = 0
	case m.jumps > 0 && now < m.quarantineEnd()+m.fleet.LongestTTL():
		m.jumps++
	default:
		m.jumps = 1
	}
}

// waiting returns the status of a quarantined node.
func (j *judgement) waiting(e Epoch) Verdict {
	return Verdict{VoteStatus: VoteStatus{State: Quarantined, Epoch: j.snapshot.Epoch, Reason: j.member.whyPending(j.snapshot.At, e), Until: j.member.quarantineEnd()}}
}

// admitted returns the verdict that ends a quarantine: the epoch and the counters to write.
func admitted(e Epoch, stage string, counters *Counters) Verdict {
	e.Pending, e.Stage = false, stage
	return Verdict{Write: &e, Counters: counters}
}

// quarantineEnd returns when the quarantine ends. That is max_ttl after the marker was first
// seen: then every lease has expired that the node may have voted for and lost. It is also
// max_ttl and maxStaleness after the other nodes know of the quarantine. Until then, other hosts
// may hold leases with votes of another Redis under the node's name, unless they lack the other
// votes for that.
func (m *Member) quarantineEnd() time.Duration {
	if m.fleet.options.NoQuarantine || m.endNow {
		return m.markedAt
	}
	from := m.markedAt // from then on, no vote of another Redis under this name counts
	for list := range m.fleet.lists {
		if known := m.fleet.register.knownSince(list, m.index); known != 0 && !m.marker.HasCounters && !m.fleet.areAllNew(m.index) {
			from = max(from, known+maxStaleness)
		}
	}
	return from + m.fleet.LongestTTL() // the uptime does not show when it was flushed
}

func (m *Member) whyPending(now time.Duration, e Epoch) error {
	switch {
	case m.supersededAt != 0 && now-m.supersededAt < e.MaxTTL:
		return ErrSuperseded
	case e.HasCounters && m.jumps >= wrongRate:
		return fmt.Errorf("its clock jumped %d times, each time soon after its quarantine, so it runs at a wrong rate, or is stepped repeatedly: correct it (chronyc tracking; maxslewrate 5000; on a virtual machine, its clock source): until then, the node has no vote", m.jumps)
	case e.HasCounters:
		return errors.New("its clock jumped, so it may have released locks that are still held")
	}
	return errors.New("it is new, or was restarted, flushed or resynchronised, so it may have forgotten locks that are still held")
}

// endQuarantine admits the node with counters that no earlier fencing token exceeds, or returns
// what is missing for that. It takes the node's stage from the same sources: a node that refused
// old hosts still does.
func (j *judgement) endQuarantine(sources *Sources) Verdict {
	m, fleet := j.member, j.member.fleet
	waiting := j.waiting(m.marker)
	for list, system := range fleet.lists {
		enough, isTotal := system.Blocks(sources.Nodes), fleet.CounterLoss(m.index).totalOf.Has(list)
		switch {
		case !enough && !m.endNow && !isTotal:
			waiting.Reason, waiting.NeedsNodes = errTooFewSources(system.Blocking(), system.Count(sources.Nodes)), true
			return waiting
		case !enough && !isTotal && fleet.change.isSeen():
			waiting.Reason, waiting.NeedsNodes = errStageUnknown, true
			return waiting
		case !enough && fleet.change.isReplaced():
			waiting.Reason, waiting.NeedsNodes = errReplaced, true
			return waiting
		case !enough && !m.endNow && fleet.unheardNames() != nil:
			waiting.Reason, waiting.NeedsNodes = errUnheard(fleet.unheardNames()), true
			return waiting
		case !enough && fleet.elsewhereNames() != nil:
			waiting.Reason, waiting.NeedsNodes = errOtherList(fleet.elsewhereNames()), true
			return waiting
		case !m.endNow && !j.isKnownLongEnough(list) && (!isTotal || fleet.register.isCutOff(m.index)):
			waiting.Reason, waiting.NeedsNodes = errUnknown, true
			return waiting
		}
	}
	if !fleet.lists[0].Blocks(sources.Nodes) {
		j.noticeNewCounters()
	}
	return admitted(m.marker, fleet.change.admits(sources).String(), sources.Counters)
}

// noticeNewCounters reports to the operator, once, that fencing counters restart.
func (j *judgement) noticeNewCounters() {
	fleet := j.member.fleet
	switch {
	case !fleet.announceLoss():
	case fleet.IsNew():
		j.addNotice(FleetIsNew, fmt.Sprintf("none of the %d nodes had an epoch or fencing counters, so fencing tokens begin at the nodes' clocks", len(fleet.options.Nodes)))
	default:
		j.addNotice(CountersLost, fmt.Sprintf("a quorum of the %d nodes had no fencing counters, so they started again from the nodes' clocks: "+
			"unless these nodes are new, an earlier fencing token may be larger than the next ones", len(fleet.options.Nodes)))
	}
}

// isKnownLongEnough reports whether the other nodes of a list have reported for long enough that
// this quarantine is the node's last. By then, every host that reaches another Redis under the
// node's name has begun a later quarantine there, and this host would know it.
func (j *judgement) isKnownLongEnough(list int) bool {
	m := j.member
	return m.fleet.register.knownSince(list, m.index) != 0 && j.snapshot.At >= m.quarantineEnd()
}

// errStageUnknown refuses an ADMIT. Otherwise a host with the old list could get a vote again.
var errStageUnknown = errors.New("the nodes are being changed, and too few other nodes may vote to know how far that is: bring those up; if a node is refused because it missed the end of a change, give the hosts both lists again")

var errUnknown = errors.New("its quarantine has passed, but too few other nodes know of it, or not for long enough: other hosts could reach another Redis under its name")

// errReplaced refuses to take nodes for new ones, also after an ADMIT.
var errReplaced = errors.New("its quarantine has passed, but nodes refused this host, because its list of nodes was replaced: hosts with the new list may hold locks: give this host their config, and reload redlockd")

// errUnheard refuses to take nodes for new ones after this process was stopped, or cut off.
func errUnheard(names []string) error {
	return fmt.Errorf("its quarantine has passed, but this host heard of no node for longer than max_ttl, and %s did not answer since: meanwhile the nodes may have been changed, and these refuse this host: bring them up, or ADMIT this one (redlock admit and its name) if its list is in use", strings.Join(names, ", "))
}

// errOtherList refuses to take nodes for new ones, also after an ADMIT.
func errOtherList(names []string) error {
	return fmt.Errorf("its quarantine has passed, but another list of nodes is in use on %s: hosts with that list may hold locks, and the nodes that are new here could give them away: use the same list on every host; or, to change it: %s", strings.Join(names, ", "), ChangeForAll)
}

func errTooFewSources(needed, sources int) error {
	return fmt.Errorf("its quarantine has passed, but its fencing counters are to be copied from %d other nodes that may vote, and there are %d: bring those up, or ADMIT it (redlock admit and its name) if fencing tokens may start again", needed, sources)
}
