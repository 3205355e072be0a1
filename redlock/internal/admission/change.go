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
	old, new string           // digests of this host's lists; equal: its config has no change
	before   quorum.Set       // nodes of the old list, or of the only one
	after    quorum.Set       // nodes of the new list
	majority quorum.System    // counts nodes of before
	newMajor quorum.System    // counts nodes of after
	refusing *quorum.Refusing // set for the counts of package redlock

	mu       sync.Mutex    // guards what follows; no other mutex is taken inside it
	seen     []sighting    // by node
	commits  bool          // the operator wants this host to commit the change
	undoes   Stage         // a change that has only begun, which the operator wants this host to undo
	undoneBy time.Duration // until when
}

// sighting is what the looks at a node have shown about its stage. It is zero if the node has none
// that this host knows.
type sighting struct {
	stage Stage
	since time.Duration // BootTime of the answer that first showed this stage
	word  string        // of the epoch
	first time.Duration // BootTime of the answer that first showed that the node, with this word, refuses old hosts; or as since
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
		majority: lists[0], newMajor: lists[len(lists)-1], refusing: o.Refusing, seen: make([]sighting, len(o.Nodes)),
	}
	if c.refusing == nil {
		c.refusing = new(quorum.Refusing)
	}
	return c
}

// isJoint reports whether this host's config has a change of the nodes.
func (c *change) isJoint() bool { return c.old != c.new }

// stage returns the first stage that this host gives a node.
func (c *change) stage() Stage {
	if c.isJoint() {
		return Stage{Old: c.old, New: c.new, Step: Begun}
	}
	return Stage{Old: c.old}
}

// serves reports whether a node with this stage grants locks to this host. A joint host can count
// the nodes of its old list as old hosts do, and those of its new list as new hosts do.
func (c *change) serves(node int, s Stage) bool {
	return c.isJoint() && s.isOf(c.old, c.new) || s.serves(c.old) && c.before.Has(node) || s.serves(c.new) && c.after.Has(node)
}

// isDone reports whether a node with this stage serves hosts with the new list of this change.
func (c *change) isDone(s Stage) bool { return c.isJoint() && s.serves(c.new) }

// isRecent reports whether a sighting still counts at a time. The nodes cannot change back and again since
// then, with the same words: each change takes three looks before its commit, and max_ttl after it.
func (s *sighting) isRecent(at, maxTTL time.Duration) bool {
	return at <= s.last+max(maxTTL, 2*LookInterval)
}

// note records the stage of a node that may vote. asked and at are when the node was asked and when
// it answered. If it was not seen recently, because this host was stopped or cut off, it counts from now on.
func (c *change) note(node int, word string, s Stage, asked, at, maxTTL time.Duration) {
	c.refusing.Note(node, !s.serves(c.old))
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := &c.seen[node]
	if isRecent := seen.isRecent(asked, maxTTL); !isRecent || seen.word != word || seen.stage != s {
		first := at
		if isRecent && word == seen.word && c.refusesOld(seen.stage) && c.refusesOld(s) {
			first = seen.first // a later step of the same change
		}
		*seen = sighting{stage: s, since: at, word: word, first: first}
	}
	seen.last = asked
}

// refusesOld reports whether a node with this stage refuses old hosts because of this change.
func (c *change) refusesOld(s Stage) bool { return s.isOf(c.old, c.new) && s.Step >= Committed }

// next returns the stage that the node must have now, and whether that needs evidence and counters:
// see complete. votes tells which nodes may vote.
func (c *change) next(node int, s Stage, now, maxTTL time.Duration, votes func(int) bool) (next Stage, isDone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := s
	switch {
	case !c.isJoint():
		if s == c.undoes && now < c.undoneBy {
			to = Stage{Old: s.Old}
		}
	case !s.isOf(c.old, c.new):
		if s.serves(c.old) && s.Step != Begun { // otherwise this change is done, or another is in progress
			to = c.stage()
		}
	case s.Step < Done && c.after.Has(node) && c.evidenceLocked(now, maxTTL) != 0:
		to.Step, isDone = Done, true
	case s.Step == Begun && c.before.Has(node) && c.isCommittingLocked():
		to.Step = Committed
	}
	if to != s && !c.isTurnOfLocked(node, to, now, votes) {
		return s, false
	}
	return to, isDone
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
		case seen.stage == to || seen.stage.isOf(to.Old, to.New) && seen.stage.Step > to.Step:
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
		return c.seen[node].stage == c.undoes
	}
	return c.before.Has(node) && !c.isDone(c.seen[node].stage) && (to.Step != Committed || c.seen[node].stage.isOf(c.old, c.new))
}

// isCommittingLocked reports whether this host commits the change: the operator wants it, or another host
// has begun to. The caller holds mu.
func (c *change) isCommittingLocked() bool {
	return c.commits || slices.ContainsFunc(c.seen, func(seen sighting) bool { return c.refusesOld(seen.stage) })
}

// evidenceLocked returns the nodes that show that every lock of an old host has expired; none if there are
// too few. Then a majority of the old list refused old hosts at an instant, and has kept its data
// until max_ttl later. The caller holds mu.
func (c *change) evidenceLocked(now, maxTTL time.Duration) (nodes quorum.Set) {
	for _, candidate := range c.seen {
		if !c.refusesOld(candidate.stage) {
			continue
		}
		nodes = 0
		for node, seen := range c.seen {
			if seen.isRecent(now, maxTTL) && c.refusesOld(seen.stage) && seen.first <= candidate.first && seen.last >= candidate.first+maxTTL {
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

// serving returns the nodes that serve hosts with a list alone, as their hashes show.
func (s *Sources) serving(list string) (nodes quorum.Set) {
	for node := range s.Epochs {
		if _, stage := s.stageOf(node); stage.serves(list) {
			nodes |= quorum.Of(node)
		}
	}
	return nodes
}

// complete returns the stage with which a node of the new list serves new hosts, if the counters of
// the sources are not below any fencing token of an old host.
//
// Tokens of old hosts are on a majority of the old list. So the counters come from such a majority,
// and were read after it had begun to refuse old hosts: from the nodes that are the evidence. Any
// node that serves new hosts already has these counters, too.
//
// A node that missed the end of the last change serves this host's list if more nodes do than a
// majority can do without. Fewer do not show it: each of them may have missed a commit. If the nodes change
// from one list to another and back, a node that missed the first commit serves the first list all the
// time, but a majority refused it in between.
func (c *change) complete(node int, s Stage, word string, now, maxTTL time.Duration, sources *Sources) (to Stage, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to = Stage{Old: s.Old, New: s.New, Step: Done}
	if !c.isJoint() || !s.isOf(c.old, c.new) {
		return to, c.majority.Blocks(sources.serving(c.old))
	}
	evidence, read := c.evidenceLocked(now, maxTTL), quorum.Set(0)
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

// admits returns the stage for a node whose quarantine ends: the latest of the sources. As in complete,
// one node does not show that a list is in use.
func (c *change) admits(sources *Sources) Stage {
	latest, isOldInUse := c.stage(), c.majority.Blocks(sources.serving(c.old))
	var done quorum.Set
	for node := range c.seen {
		_, s := sources.stageOf(node)
		switch {
		case c.isDone(s) && !isOldInUse:
			done |= quorum.Of(node)
			latest.Step = max(latest.Step, Committed)
		case c.isDone(s): // it missed an earlier change
		case s.isOf(latest.Old, latest.New) && s.Step > latest.Step:
			latest = s
		case !c.isJoint() && s.Step != Settled && s.serves(c.old) && latest.Step == Settled:
			latest = s
		}
	}
	if c.newMajor.Blocks(done) {
		latest.Step = Done
	}
	return latest
}

// isSeen reports whether this host has seen a change of the nodes: its own, or on a node.
func (c *change) isSeen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isJoint() || slices.ContainsFunc(c.seen, func(s sighting) bool { return s.stage.Step != Settled })
}

// noteRefused records the stage of a node that does not serve this host.
func (c *change) noteRefused(node int, s Stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[node] = sighting{stage: s}
}

// refusal returns why a node with this stage does not serve this host, and what to do.
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
		return fmt.Errorf("it left these nodes in an earlier change (%s), and cannot join with the state that it had then: when no host uses it any more, and none with the list of that time can come back, HDEL %s epoch there; then it waits max_ttl like a new node", s, NodeKey)
	case s.Step != Settled:
		return fmt.Errorf("another change of the nodes is in progress (%s, here %s): use the same config everywhere, or undo that change first (redlock nodes undo); or, if it was used with other nodes before, and no host uses it now: HDEL %s epoch there", s, c.stage(), NodeKey)
	case c.isJoint():
		return fmt.Errorf("it was admitted with another node list (%s, here %s): the nodes that are not joining must be the list of the other hosts; if it is a joining node that was used before, and no host uses it now: HDEL %s epoch there", s, c.stage(), NodeKey)
	}
	return fmt.Errorf("it was admitted with another node list (%s, here %s): with two lists two quorums could hold one lock; use the same names everywhere; to change the list while locks are held, first mark nodes as joining or leaving on all hosts (NODES.md, Changing the nodes); or %s", s.Old, c.old, ChangeForAll)
}
