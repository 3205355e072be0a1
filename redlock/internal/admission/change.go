package admission

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// change is what a process knows about a change of the nodes: its own part in it, and how far the
// nodes are. See Stage.
//
// A joint host commits a change on the nodes of the old list: they refuse old hosts from then on. A
// node of the new list serves new hosts when this host has evidence that no lock of an old host is
// left: a majority of the old list refused old hosts at one instant, and has kept its data until
// max_ttl later. An epoch's word shows that: it changes when a node may have lost data. (A node's
// uptime would not show that it was flushed.) Every host measures that time with its own clock.
//
// One node after the other is changed, because a new epoch makes the calls in progress fail.
type change struct {
	old, new      string           // digests of this host's lists; equal: its config has no change
	before        quorum.Set       // nodes of the old list, or of the only one
	after         quorum.Set       // nodes of the new list
	majority      quorum.System    // counts nodes of before
	majorityAfter quorum.System    // counts nodes of after
	refusing      *quorum.Refusing // set for the counts of package redlock

	mu       sync.Mutex    // guards what follows; no other mutex is taken inside it
	seen     []sighting    // by node
	number   uint64        // of the old list, or of the only one, as the nodes show it; 0: too few were seen
	joined   uint64        // of the change in this host's config, as a node had it last; 0: none had it
	replaced uint64        // the largest with which a node refused hosts with the old list, or the only one; 0: none did
	asked    Stage         // a change that has begun, which the operator wants this host to commit or, if its config has the old list, to undo
	askedBy  time.Duration // until when
}

// sighting is what the looks at a node have shown about its stage. It is zero if the node has none
// that this host knows.
type sighting struct {
	stage Stage
	word  string        // of the epoch
	since time.Duration // BootTime of the answer that first showed the word and the stage
	last  time.Duration // BootTime of the question whose answer last showed the word and the stage
}

func newChange(o *Options, lists []quorum.System, before, after quorum.Set, names []string) *change {
	digest := func(list quorum.Set) string {
		var of []string
		for i, name := range names {
			if list.Has(i) {
				of = append(of, name)
			}
		}
		return listDigest(of, o.Prefix)
	}
	c := &change{
		old: digest(before), new: digest(after), before: before, after: after,
		majority: lists[0], majorityAfter: lists[len(lists)-1], refusing: o.Refusing, seen: make([]sighting, len(o.Nodes)),
	}
	if c.refusing == nil {
		c.refusing = new(quorum.Refusing)
	}
	return c
}

// isJoint reports whether this host's config has a change of the nodes.
func (c *change) isJoint() bool { return c.old != c.new }

// stage returns the first stage that this host gives a node. Its number is the largest one that is known.
func (c *change) stage() Stage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stageLocked()
}

func (c *change) stageLocked() Stage {
	s := Stage{Number: max(1, c.number), Old: c.old}
	if c.isJoint() {
		s.New, s.Step = c.new, Begun
	}
	return s
}

// serves reports whether a node with this stage grants locks to this host. A joint host can count
// the nodes of its old list as old hosts do, and those of its new list as new hosts do.
func (c *change) serves(node int, s Stage) bool {
	return c.isJoint() && s.isOf(c.old, c.new) || s.serves(c.old) && c.before.Has(node) || s.serves(c.new) && c.after.Has(node)
}

// isDone reports whether a node with this stage serves hosts with the new list of this change. The caller
// holds mu.
func (c *change) isDone(s Stage) bool {
	return c.isJoint() && s.serves(c.new) && s.reached() > c.number
}

// refusesOld reports whether a node with this stage refuses old hosts because of this change. The caller
// holds mu.
func (c *change) refusesOld(s Stage) bool {
	return s.isOf(c.old, c.new) && s.Number == c.number && s.Step >= Committed
}

// note records the stage of a node that may vote. asked and at are when the node was asked and when
// it answered.
func (c *change) note(node int, word string, s Stage, asked, at time.Duration) {
	c.refusing.Note(node, !s.serves(c.old))
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := &c.seen[node]
	if seen.word != word || seen.stage != s {
		*seen = sighting{stage: s, word: word, since: at}
	}
	seen.last = asked
	c.learnLocked()
}

// noteRefused records the stage of a node that does not serve this host, or that was restarted since. It returns what
// follows: the first stage of a node that joins, whose number shows that no host gets a vote with the list that it has;
// whether it is behind; why it does not serve this host.
func (c *change) noteRefused(node int, s Stage) (joins, isBehind bool, to Stage, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[node] = sighting{stage: s}
	c.learnLocked()
	return c.joinsLocked(node, s), c.isBehindLocked(node, s), c.stageLocked(), c.refusal(node, s)
}

// learnLocked finds out the numbers that nodes show. The caller holds mu.
//
// A majority of each list refused hosts with the list before, so of two numbers of the old list, the larger
// one is right. It is known when a majority of that list was seen, of which each node may have missed one step; or a
// majority of the new list, if the old nodes are gone. One node could have the state of others.
func (c *change) learnLocked() {
	most, mostAfter := c.mostLocked(), quorum.AtLeast(c.majorityAfter, c.reachedLocked)
	if most != 0 && c.replaced > most+1 {
		c.replaced = 0 // one node said so
	}
	for node, seen := range c.seen {
		s := seen.stage
		isOwn, n := c.isJoint() && s.isOf(c.old, c.new), c.numberOf(s)
		if most != 0 && c.before.Has(node) && n <= most+1 || most == 0 && isOwn && n <= mostAfter {
			c.number = max(c.number, n)
		}
		if isOwn && n <= c.number {
			c.joined = max(c.joined, n)
		}
		if refuses := s.Old == c.old && s.Step >= Committed || s.New == c.old && s.Step < Done; refuses && !c.isJoint() && (most == 0 || s.Number <= most+1) {
			c.replaced = max(c.replaced, s.Number)
		}
	}
}

// numberOf returns the number of the old list that a stage shows; 0: none.
func (c *change) numberOf(s Stage) uint64 {
	switch {
	case s.Old == c.old:
		return s.Number
	case s.serves(c.old):
		return s.reached()
	}
	return 0
}

// mostLocked returns the number that a majority of the old list has reached at least; 0: fewer were seen.
// The caller holds mu.
func (c *change) mostLocked() uint64 {
	return quorum.AtLeast(c.majority, c.reachedLocked)
}

func (c *change) reachedLocked(node int) uint64 { return c.seen[node].stage.reached() }

// isAlien reports whether a node has a number that these nodes cannot have reached: then it has the state of
// others.
func (c *change) isAlien(s Stage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.mostLocked()
	return most != 0 && s.reached() > most+1
}

// isReplaced reports whether hosts with this host's list get no vote. It takes no node for a new one then: a
// quorum of nodes could have forgotten that they refuse it.
func (c *change) isReplaced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replaced != 0 && c.replaced >= c.number
}

// showsListLocked reports whether a stage shows that the old list, or the only one, is in use. The caller holds mu.
func (c *change) showsListLocked(s Stage) bool {
	return s.serves(c.old) && c.numberOf(s) == c.number
}

// isBehindLocked reports whether a node has missed steps of earlier changes, and another one shows that the old list, or
// the only one, is in use. The caller holds mu.
func (c *change) isBehindLocked(node int, s Stage) bool {
	return c.before.Has(node) && s.reached() < c.number && slices.ContainsFunc(c.seen, func(seen sighting) bool { return c.showsListLocked(seen.stage) })
}

// isOverLocked reports whether the nodes were changed back since they had the change in this host's config. Then
// this host does not begin it again. The caller holds mu.
func (c *change) isOverLocked() bool { return c.joined != 0 && c.joined < c.number }

// joinsLocked reports whether a node with this stage joins: it had one of our lists. A node with other lists could be in
// use. The caller holds mu.
func (c *change) joinsLocked(node int, s Stage) bool {
	isOurs := func(list string) bool { return list == c.old || list == c.new }
	return c.after.Has(node) && !c.before.Has(node) && c.number != 0 && !c.isOverLocked() &&
		s.isBefore(c.stageLocked()) && (isOurs(s.Old) || isOurs(s.New))
}

// next returns the stage that the node must have now, and whether that needs the stages and counters of others:
// see complete. votes tells which nodes may vote.
func (c *change) next(node int, s Stage, now, maxTTL time.Duration, votes func(int) bool) (next Stage, needsOthers bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := s
	switch {
	case c.isBehindLocked(node, s):
		return s, true
	case !c.isJoint():
		if s == c.asked && now < c.askedBy {
			to = Stage{Number: s.Number, Old: s.Old}
		}
	case c.isOverLocked():
	case c.joinsLocked(node, s):
		to = c.stageLocked()
	case !s.isOf(c.old, c.new):
		if s.serves(c.old) && s.Step != Begun && c.numberOf(s) == c.number { // otherwise this change is done, or another is in progress
			to = c.stageLocked()
		}
	case s.Step < Done && c.after.Has(node) && c.mayBeDoneLocked(maxTTL):
		to.Step, needsOthers = Done, true
	case s.Step == Begun && c.before.Has(node) && c.isCommittingLocked(now):
		to.Step = Committed
	}
	if to != s && !c.isTurnOfLocked(node, to, now, votes) {
		return s, false
	}
	return to, needsOthers
}

// mayBeDoneLocked reports whether a node can serve new hosts: another one does, or there is evidence. The caller
// holds mu.
func (c *change) mayBeDoneLocked(maxTTL time.Duration) bool {
	return c.evidenceLocked(maxTTL) != 0 || slices.ContainsFunc(c.seen, func(seen sighting) bool { return c.isDone(seen.stage) })
}

// stepInterval is how long a node has a new stage before the next node gets it. By then all hosts
// that reach the first one know its new epoch, and their calls succeed there again.
const stepInterval = 2 * LookInterval

// isTurnOfLocked reports whether no other node gets the stage first, or has just got it. The caller holds mu.
func (c *change) isTurnOfLocked(node int, to Stage, now time.Duration, votes func(int) bool) bool {
	for other := range c.seen {
		seen := &c.seen[other]
		switch {
		case other == node || !votes(other):
		case seen.stage == to || seen.stage.isOf(to.Old, to.New) && seen.stage.Number == to.Number && seen.stage.Step > to.Step:
			if now-seen.since < stepInterval {
				return false
			}
		case other < node && c.getsStageLocked(other, to):
			return false
		}
	}
	return true
}

// getsStageLocked reports whether a node must get a stage at some time. The caller holds mu.
func (c *change) getsStageLocked(node int, to Stage) bool {
	switch to.Step {
	case Done:
		return c.after.Has(node) && !c.isDone(c.seen[node].stage)
	case Settled:
		return c.seen[node].stage == c.asked
	}
	return c.before.Has(node) && !c.isDone(c.seen[node].stage) && (to.Step != Committed || c.seen[node].stage.isOf(c.old, c.new))
}

// isCommittingLocked reports whether this host commits the change: the operator wants it, or a host has begun to. The
// caller holds mu.
func (c *change) isCommittingLocked(now time.Duration) bool {
	return c.isJoint() && c.asked == c.stageLocked() && now < c.askedBy || slices.ContainsFunc(c.seen, func(seen sighting) bool { return c.refusesOld(seen.stage) })
}

// evidenceLocked returns the nodes that show that every lock of an old host has expired; none if there are
// too few. Then a majority of the old list refused old hosts at an instant, and has kept its data
// until max_ttl later. A node that was not seen in between refused them all the time: its number and its word
// would not come again. The caller holds mu.
func (c *change) evidenceLocked(maxTTL time.Duration) (nodes quorum.Set) {
	for _, candidate := range c.seen {
		if !c.refusesOld(candidate.stage) {
			continue
		}
		nodes = 0
		for node, seen := range c.seen {
			if c.refusesOld(seen.stage) && seen.since <= candidate.since && seen.last >= candidate.since+maxTTL {
				nodes |= quorum.Of(node)
			}
		}
		if c.majority.Decides(nodes) {
			return nodes & c.before
		}
	}
	return 0
}

// Sources are nodes whose hashes were read, and what they say.
type Sources struct {
	Nodes    quorum.Set
	Counters *Counters // the largest of each
	Epochs   []string  // by node
}

// stageOf returns the word and the stage in the epoch that was read from a node.
func (s *Sources) stageOf(node int) (word string, stage Stage) {
	if !s.Nodes.Has(node) {
		return "", Stage{}
	}
	e, err := ParseEpoch(s.Epochs[node])
	if err != nil || e.Pending {
		return "", Stage{}
	}
	stage, err = parseStage(e.Stage)
	if err != nil {
		return "", Stage{}
	}
	return e.Word, stage
}

// complete returns the stage with which a node serves a list that it did not serve: the new list of this host's
// change or, if it missed steps of earlier changes, the list of this host. It gets the counters of the sources.
//
// A node with that list and the right number shows that the list is in use. It has counters that are not
// below any fencing token of hosts with the list before.
//
// The first node that serves new hosts needs evidence. Tokens of old hosts are on a majority of the old list. So
// the counters come from such a majority, and were read after it had begun to refuse old hosts: from the nodes
// that are the evidence.
func (c *change) complete(node int, s Stage, word string, maxTTL time.Duration, sources *Sources) (to Stage, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isBehindLocked(node, s) {
		return sources.latest(s, c.showsListLocked)
	}
	to = s
	to.Step = Done
	if !c.isJoint() || !s.isOf(c.old, c.new) || s.Number != c.number {
		return to, false
	}
	if _, ok := sources.latest(s, func(stage Stage) bool { return c.isDone(stage) && stage.reached() == c.number+1 }); ok {
		return to, true
	}
	evidence, read := c.evidenceLocked(maxTTL), quorum.Set(0)
	for other := range c.seen {
		otherWord, stage := sources.stageOf(other)
		if other == node {
			otherWord, stage = word, s // its counters stay, if they are larger
		}
		if evidence.Has(other) && otherWord == c.seen[other].word && c.refusesOld(stage) {
			read |= quorum.Of(other)
		}
	}
	return to, c.majority.Decides(read)
}

// latest returns the latest of a stage and those stages of the sources that count, and whether there is one of these.
func (s *Sources) latest(latest Stage, counts func(Stage) bool) (_ Stage, ok bool) {
	for node := range s.Epochs {
		if _, stage := s.stageOf(node); stage.Number != 0 && counts(stage) {
			ok = true
			if latest.isBefore(stage) {
				latest = stage
			}
		}
	}
	return latest, ok
}

// admits returns the stage for a node whose quarantine ends: the latest of the sources.
func (c *change) admits(sources *Sources) Stage {
	latest, _ := sources.latest(c.stage(), func(Stage) bool { return true })
	return latest
}

// isSeen reports whether this host has seen a change of the nodes: its own, or on a node.
func (c *change) isSeen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isJoint() || slices.ContainsFunc(c.seen, func(s sighting) bool { return s.stage.Step != Settled })
}

// refusal returns why a node with this stage does not serve this host, and what to do. The caller holds mu.
func (c *change) refusal(node int, s Stage) error {
	switch {
	case s.Step == Settled && listOf(s.Old) == listOf(c.old) && !c.isJoint():
		return fmt.Errorf("it was admitted with another key_prefix (%s, here %s): with two prefixes two hosts could hold one lock; use the same one everywhere; or, to change it: %s", s.Old, c.old, ChangeForAll)
	case c.isJoint() && s.serves(c.new):
		return errors.New("the change of the nodes is complete there: remove the leaving nodes and the word joining from this host's config, and reload redlockd here")
	case s.Step >= Committed && s.Old == c.old:
		return errors.New("the nodes were changed, and this host's config has the old list: it gets no vote until it has the new one (the config of the other hosts) and redlockd was reloaded here")
	case s.Step != Settled && s.New == c.old && !c.isJoint():
		return errors.New("the nodes are being changed to this host's list, and that is not complete on this node (redlock nodes on a host with both lists says what it waits for): until then this host needs the config with joining and leaving nodes")
	case c.isJoint() && s.Step >= Committed && s.New == c.old && !c.before.Has(node):
		return fmt.Errorf("it left these nodes in an earlier change (%s), and does not join before a majority of the old list may vote", s)
	case s.Step == Begun || s.Step == Committed:
		return fmt.Errorf("another change of the nodes is in progress (%s, here %s): use the same config everywhere, or undo that change before its commit (redlock nodes undo); or, if it is a joining node that was used with other nodes, and no host uses it now: FLUSHALL on this node alone, then it waits max_ttl like a new node", s, c.stageLocked())
	case c.isJoint():
		return fmt.Errorf("it was admitted with another node list (%s, here %s): the nodes that are not joining must be the list of the other hosts; if it is a joining node that was used before, and no host uses it now: FLUSHALL on this node alone, then it waits max_ttl like a new node", s, c.stageLocked())
	}
	return fmt.Errorf("it was admitted with another node list (%s, here %s): with two lists two quorums could hold one lock; use the same names everywhere; to change the list while locks are held, first mark nodes as joining or leaving on all hosts (NODES.md, Changing the nodes); or %s", s, c.stageLocked(), ChangeForAll)
}
