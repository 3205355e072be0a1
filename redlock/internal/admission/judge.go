package admission

import (
	"errors"
	"fmt"
	"time"
)

// State is whether a node may vote, in one word.
type State string

const (
	Ready       State = "ready"
	Quarantined State = "quarantined" // it may have lost votes
	Refused     State = "refused"     // the operator must fix something first
)

// VoteStatus is whether a node may vote.
type VoteStatus struct {
	State  State
	Epoch  string        // the epoch that was seen: only votes under it count
	Reason error         // why it is refused, or what a quarantine waits for
	Until  time.Duration // BootTime at which a quarantine ends; 0: that does not depend on time
	// NeedsNodes: Until has passed, but the quarantine lasts until more of the other nodes vote
	// or know of it.
	NeedsNodes bool
}

// Verdict is what follows from a snapshot: either a vote status, or what to write to the node
// before the next snapshot is taken and judged.
type Verdict struct {
	VoteStatus

	// Write is the epoch to write to the node; nil: nothing is to be written. Counters are the
	// fencing counters to write with it; nil: they stay unchanged.
	Write    *Epoch
	Counters *Counters

	// NeedsCounters: the time of the quarantine has passed. The caller copies the other nodes'
	// fencing counters and calls Member.EndQuarantine.
	NeedsCounters bool

	// Completes: the node can serve hosts with the new list of a change of the nodes, or missed an earlier change. The
	// caller copies the other nodes' fencing counters and calls Member.Complete.
	Completes bool

	QuarantineBegun bool     // Write is the marker of a new quarantine
	LookAt          []int    // nodes of which a snapshot must be taken now
	Notices         []Notice // for the operator
	HostMissed      bool     // this host's clock missed time: see Fleet.TotalMissed
}

// MaxCounters is the number of a node's fencing counters, whatever the number of locks: names are
// hashed onto them.
const MaxCounters = 1024

// Counters are the fencing counters of a node.
type Counters [MaxCounters]uint64

// Notice is something that the operator must know.
type Notice struct {
	Kind NoticeKind
	Text string
}

// NoticeKind is one word for a notice.
type NoticeKind string

const (
	ClockJumped     NoticeKind = "clock-jump"      // a node's clock was stepped
	HostClockJumped NoticeKind = "host-clock-jump" // this host's clock stood still
	Withdrawn       NoticeKind = "withdrawn"       // a node's admission was withdrawn for another reason
	CountersLost    NoticeKind = "counters-lost"   // a quorum of nodes lost its fencing counters
	FleetIsNew      NoticeKind = "new-fleet"       // all nodes are new: their fencing counters start
)

// Member is one node of a Fleet: what this process remembers about it over all connections. Only
// the goroutine of the node's lane calls its methods, unless they say otherwise.
type Member struct {
	fleet   *Fleet
	index   int
	name    string
	durable bool // the operator declares that no restart loses a write

	marker     Epoch         // the last pending epoch that was seen
	markedAt   time.Duration // BootTime when it was first seen
	markedTurn uint64        // and the turn
	endNow     bool          // ADMIT: the quarantine ends now
	jumps      int           // quarantines in a row because of its clock: see countJump
	durability durability

	supersededAt time.Duration // BootTime when a later incarnation was last known; 0: never
	countersGone bool          // the node reported that its fencing counters are gone

	// word is the word of the last admitted epoch. The fields below were seen under that epoch,
	// since the Redis process with runID started.
	word       string
	runID      string
	replID     string
	uptime     int64
	evicted    int64
	clock      clockWatch
	beforeJump uint64 // the turn of the last sample before the jump that clock shows

	noVoteHereUntil time.Duration // until then, only this host does not trust the node: see judgeJump
}

// NoteCountersGone records that the node reported that its fencing counters are gone.
func (m *Member) NoteCountersGone() { m.countersGone = true }

// EndNow makes the quarantine end with the next snapshot, or not (ADMIT).
func (m *Member) EndNow(end bool) { m.endNow = end }

// IsSuperseded reports whether a later incarnation of the node is known than the one that was
// seen: no vote of that one counts. It may be called on any goroutine.
func (m *Member) IsSuperseded() bool { return m.fleet.register.superseded[m.index].Load() }

// Reports returns what to write to the node about the other nodes' incarnations; "": the node has
// all of it.
func (m *Member) Reports() string { return m.fleet.register.reportsFor(m.index) }

// NoteReports records what the node reports about the other nodes' incarnations. It returns the
// nodes to look at now, because later incarnations of them became known.
func (m *Member) NoteReports(reports string, at time.Duration) (lookAt []int) {
	return m.fleet.register.noteReports(m.index, reports, at)
}

// NoteFile records what the node reports about its append-only file, and returns warnings for the
// operator.
func (m *Member) NoteFile(f *AppendOnlyFile) (warnings []string) {
	m.durability.noteFile(f)
	return m.durability.warnings(f, m.durable)
}

// Judge decides what follows from a snapshot.
func (m *Member) Judge(s *Snapshot) Verdict {
	m.fleet.noteHeard(m.index, s.At)
	j := judgement{member: m, snapshot: s}
	return j.withFindings(j.decide())
}

// EndQuarantine decides about a node whose quarantine has passed, after the other nodes' fencing
// counters were copied.
func (m *Member) EndQuarantine(s *Snapshot, sources *Sources) Verdict {
	j := judgement{member: m, snapshot: s}
	return j.withFindings(j.endQuarantine(sources))
}

// Complete decides whether a node serves a list that it did not serve, after the other nodes' fencing
// counters were copied. without is the verdict if it does not.
func (m *Member) Complete(s *Snapshot, sources *Sources, without Verdict) Verdict {
	e, _ := ParseEpoch(s.Epoch) // Judge has read it, and the stage
	stage, _ := parseStage(e.Stage)
	to, ok := m.fleet.change.complete(m.index, stage, e.Word, m.fleet.LongestTTL(), sources)
	if !ok {
		without.Completes = false
		return without
	}
	e.Stage = to.String()
	return Verdict{Write: &e, Counters: sources.Counters}
}

// judgement is a snapshot that is being judged.
type judgement struct {
	member   *Member
	snapshot *Snapshot

	stage      Stage // in an admitted epoch
	lookAt     []int
	notices    []Notice
	hostMissed bool
}

func (j *judgement) withFindings(v Verdict) Verdict {
	v.LookAt, v.Notices, v.HostMissed = j.lookAt, j.notices, j.hostMissed
	return v
}

func (j *judgement) decide() Verdict {
	m, s := j.member, j.snapshot
	if err := s.Info.Refusal(); err != nil {
		return refusedVerdict(err)
	}
	if other := m.fleet.onServerOf(m.index, s.Info.RunID); other != "" {
		return refusedVerdict(fmt.Errorf("it is a database of the server (run_id %.8s…) that is node %q already: they would fail together, with two votes: use a server of its own", s.Info.RunID, other))
	}
	if s.Epoch == "" {
		return j.beginQuarantine(false)
	}
	e, err := ParseEpoch(s.Epoch)
	switch {
	case err != nil:
		return refusedVerdict(err)
	case e.RunID != s.Info.RunID:
		return j.judgeRestarted(e)
	case e.Name != m.name:
		return refusedVerdict(fmt.Errorf("this Redis (run_id %.8s…) is node %q already: one server with two names would have two votes: correct the address of one of them, or the names, which must be the same on every host", e.RunID, e.Name))
	}
	if !e.Pending || e.HasCounters {
		if j.stage, err = parseStage(e.Stage); err != nil {
			return refusedVerdict(err)
		}
		switch c := m.fleet.change; {
		case !c.serves(m.index, j.stage):
			return j.judgeUnserved(e)
		case c.isAlien(j.stage):
			c.noteRefused(m.index, j.stage)
			return refusedVerdict(errAlien(j.stage))
		}
	}
	switch err := j.compareIncarnations(e); {
	case err == errMaybeSuperseded:
		return Verdict{VoteStatus: VoteStatus{State: Quarantined, Epoch: s.Epoch, Reason: ErrSuperseded, Until: s.At + settleTime}}
	case err != nil:
		if !e.Pending {
			j.noticeWithdrawal(err, false)
		}
		return j.beginQuarantine(false)
	}
	if e.Pending {
		return j.judgePending(e)
	}
	return j.judgeAdmitted(e)
}

func refusedVerdict(err error) Verdict {
	return Verdict{VoteStatus: VoteStatus{State: Refused, Reason: err}}
}

// judgeUnserved judges a node that does not serve this host: it has another list of nodes. A node that
// missed the end of a change to this host's list can still get it, and a node that left can join again.
func (j *judgement) judgeUnserved(e Epoch) Verdict {
	m, c := j.member, j.member.fleet.change
	joins, isBehind, to, why := c.noteRefused(m.index, j.stage)
	if joins && !e.Pending {
		e.Stage = to.String()
		return Verdict{Write: &e}
	}
	m.fleet.noteElsewhere(m.index)
	v := refusedVerdict(why)
	v.Completes = isBehind && !e.Pending
	return v
}

// errAlien refuses a node that has the state of other nodes.
func errAlien(s Stage) error {
	return fmt.Errorf("its list of nodes has the number %d, which the other nodes of this list have not reached: it was restored from a copy, or other hosts use it with other nodes: correct its address; "+
		"or, if only these hosts use it: FLUSHALL on this node alone, then it waits max_ttl like a new node", s.reached())
}

// ChangeForAll says how to change what all hosts must have in common: the node list, the
// prefix.
const ChangeForAll = "stop all daemons, wait max_ttl, HDEL " + NodeKey + " epoch on every node, start them with the new one"

// compareIncarnations returns an error if a later incarnation of the node is known, and
// records what the node knows of the other nodes.
func (j *judgement) compareIncarnations(e Epoch) error {
	m, s := j.member, j.snapshot
	if m.fleet.options.NoQuarantine {
		return nil
	}
	j.lookAt = append(j.lookAt, m.fleet.register.noteLook(m.index, s.Incarnations, !e.Pending, s.Sent, s.At)...)
	isNew, err := m.fleet.register.noteSeen(m.index, e.Word, s.At)
	if err == ErrSuperseded {
		m.supersededAt = s.At
	}
	if isNew {
		j.lookAtOthers() // each look writes it to that node
	}
	return err
}

// lookAtOthers makes all other nodes be looked at.
func (j *judgement) lookAtOthers() {
	for i := range j.member.fleet.options.Nodes {
		if i != j.member.index {
			j.lookAt = append(j.lookAt, i)
		}
	}
}

// beginQuarantine returns the marker to write.
func (j *judgement) beginQuarantine(hasCounters bool) Verdict {
	m, s := j.member, j.snapshot
	return Verdict{QuarantineBegun: !m.fleet.options.NoQuarantine, Write: &Epoch{
		Pending:     true,
		RunID:       s.Info.RunID,
		Word:        newWord(s.Clock.milliseconds(), m.fleet.register.newest(m.index)),
		MaxTTL:      m.fleet.LongestTTL(),
		HasCounters: hasCounters,
		Stage:       j.stage.String(),
		Name:        m.name,
	}}
}

// judgeRestarted judges an epoch that was written to another Redis process. It is still valid
// only if a durable node wrote it to its own file. If it has another list, the node can be a new one here
// after a quarantine, but not if it refuses hosts because of a change: it would forget that.
func (j *judgement) judgeRestarted(e Epoch) Verdict {
	m, s := j.member, j.snapshot
	if stage, err := parseStage(e.Stage); err == nil && e.Name == m.name {
		m.fleet.change.noteRefused(m.index, stage)
	}
	own := e.Name == m.name && (m.word == "" || e.Word == m.word || e.Word == m.marker.Word)
	if !m.durable || !s.Info.File.hasEachVote() || s.At < m.durability.from || !own || e.Pending {
		return j.beginQuarantine(false)
	}
	stage, err := parseStage(e.Stage)
	if err != nil || stage.Step == Settled && !m.fleet.change.serves(m.index, stage) {
		return j.beginQuarantine(false)
	}
	e.RunID = s.Info.RunID
	return Verdict{Write: &e}
}

// judgeAdmitted judges an admitted epoch of this Redis process. What the epoch cannot show is
// compared with earlier snapshots.
func (j *judgement) judgeAdmitted(e Epoch) Verdict {
	m, s, fleet := j.member, j.snapshot, j.member.fleet
	fleet.raiseMaxTTL(e.MaxTTL)
	why := m.withdrawal(s, e)
	fleet.jumps.keep(m.index, &m.clock)
	jump, jumped := why.(clockJump)
	switch {
	case jumped && fleet.options.NoQuarantine:
		m.clock, why = clockWatch{}, nil
	case jumped:
		return j.judgeJump(jump, m.beforeJump)
	}
	if why != nil {
		hasCounters := errors.Is(why, errUptime)
		j.noticeWithdrawal(why, hasCounters)
		return j.beginQuarantine(hasCounters)
	}
	m.durability.noteTime(s.At, fleet.LongestTTL())
	if s.At < m.noVoteHereUntil {
		return j.quarantineHere()
	}
	if longest := fleet.LongestTTL(); e.MaxTTL < longest {
		e.MaxTTL = longest // written to the nodes first, then used
		return Verdict{Write: &e}
	}
	fleet.forgetAnnouncedLoss()
	return j.advance(e, Verdict{VoteStatus: VoteStatus{State: Ready, Epoch: s.Epoch}})
}

// advance returns what a change of the nodes requires of a node that is ready.
func (j *judgement) advance(e Epoch, ready Verdict) Verdict {
	m, s, fleet := j.member, j.snapshot, j.member.fleet
	fleet.change.note(m.index, e.Word, j.stage, s.Sent, s.At)
	next, needsOthers := fleet.change.next(m.index, j.stage, s.At, fleet.LongestTTL(), fleet.register.votes)
	switch {
	case needsOthers:
		ready.Completes = true
	case next != j.stage:
		e.Stage = next.String()
		return Verdict{Write: &e}
	}
	return ready
}

// noticeWithdrawal reports to the operator that the node's admission is withdrawn.
func (j *judgement) noticeWithdrawal(why error, hasCounters bool) {
	kind := Withdrawn
	if hasCounters {
		kind = ClockJumped
	}
	j.addNotice(kind, why.Error())
}

func (j *judgement) addNotice(kind NoticeKind, text string) {
	j.notices = append(j.notices, Notice{kind, text})
}
