package admission

import (
	"errors"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// Progress is how far a change of the nodes is, as this host sees it.
type Progress struct {
	Step Step // the least of a majority of each list; Settled: not all of them have begun

	// Behind are the nodes that may vote and do not have the next step yet. Missing are those that
	// may not vote.
	Behind, Missing quorum.Set

	Left     time.Duration // about how long the step lasts, if no node fails and no operator is needed
	Held     time.Duration // of a committed change: until every lock of an old host has expired
	Conflict bool          // nodes are in another change
	Over     bool          // the nodes had this change, and were changed back: it does not begin again
}

// IsChanging reports whether this host's config has a change of the nodes.
func (f *Fleet) IsChanging() bool { return f.change.isJoint() }

// Progress returns how far the change in this host's config is.
func (f *Fleet) Progress(now time.Duration) (p Progress) {
	var votes quorum.Set
	for node := range f.members {
		if f.register.votes(node) {
			votes |= quorum.Of(node)
		}
	}
	c := f.change
	c.mu.Lock()
	defer c.mu.Unlock()
	atLeast := func(step Step) (nodes quorum.Set) {
		for node, seen := range c.seen {
			if seen.stage.isOf(c.old, c.new) && seen.stage.Number == c.number && seen.stage.Step >= step || c.isDone(seen.stage) {
				nodes |= quorum.Of(node)
			}
		}
		return nodes & votes
	}
	begun, committed, done := atLeast(Begun), atLeast(Committed), atLeast(Done)
	old, next := f.lists[0], f.lists[len(f.lists)-1]
	p.Missing, p.Over = (c.before|c.after)&^votes, c.isOverLocked()
	p.Conflict = slices.ContainsFunc(c.seen, func(s sighting) bool {
		return s.stage.Step == Begun && s.stage.Old == c.old && s.stage.New != c.new && s.stage.Number == c.number
	})
	switch {
	case next.Decides(done) && c.after&votes&^done == 0:
		p.Step = Done
	case c.isCommittingLocked(now):
		p.Step, p.Behind = Committed, c.after&votes&^done
		if !old.Decides(committed) {
			p.Behind = c.before & votes &^ committed
		}
		p.Held = c.leftLocked(now, f.LongestTTL())
		p.Left = p.Held + time.Duration((c.after&votes&^done).Len())*stepInterval
	default:
		if p.Behind = votes&^begun | c.justBegunLocked(now); p.Behind != 0 {
			p.Left = time.Duration((votes&^begun).Len())*stepInterval + reportTime
		} else if old.Decides(begun) && next.Decides(begun) {
			p.Step = Begun
		}
	}
	return p
}

// justBegunLocked returns the nodes that hosts with the old list may not have seen in this change yet, or hosts with an
// earlier list, if the node joins: see HostReport. The caller holds mu.
func (c *change) justBegunLocked(now time.Duration) (nodes quorum.Set) {
	for node, seen := range c.seen {
		if seen.stage.isOf(c.old, c.new) && now-seen.since < reportTime {
			nodes |= quorum.Of(node)
		}
	}
	return nodes
}

// leftLocked returns the time until the evidence can be complete, if no node fails. The caller holds mu.
func (c *change) leftLocked(now, maxTTL time.Duration) time.Duration {
	var refusing quorum.Set
	var from time.Duration
	for node, seen := range c.seen {
		if c.refusesOld(seen.stage) {
			refusing |= quorum.Of(node)
			from = max(from, seen.since)
		}
		if c.isDone(seen.stage) {
			return 0
		}
	}
	if c.majority.Decides(refusing) {
		return max(from+maxTTL-now, 0)
	}
	left := maxTTL
	for node := range c.seen {
		if c.before.Has(node) && !refusing.Has(node) && !c.majority.Decides(refusing) {
			refusing |= quorum.Of(node)
			left += stepInterval
		}
	}
	return left
}

// Reasons why the operator cannot change the nodes' stage.
var (
	ErrNoChange     = errors.New("this host's config has no joining or leaving nodes")
	ErrIsJoint      = errors.New("this host's config still has joining or leaving nodes: give it the old list first")
	ErrNotBegun     = errors.New("not all nodes that can vote have begun the change, or too few of the old or of the new list can vote")
	ErrNothingBegun = errors.New("no node has begun a change of this host's list")
	ErrCommitted    = errors.New("the change is committed and cannot be undone: go on, then change the nodes back")
	ErrOver         = errors.New("the nodes had this change, and were changed back since: give this host the config of the other hosts")
	ErrConflicting  = errors.New("another change of the nodes is in progress")
)

// CanCommit returns the step of the change in this host's config, or why this host cannot commit it now.
func (f *Fleet) CanCommit(now time.Duration) (Step, error) {
	p := f.Progress(now)
	switch {
	case !f.change.isJoint():
		return Settled, ErrNoChange
	case p.Conflict:
		return Settled, ErrConflicting
	case p.Over:
		return Settled, ErrOver
	case p.Step == Settled:
		return Settled, ErrNotBegun
	}
	return p.Step, nil
}

// CommitTime is how long a host tries to commit a change: half the time after which an undo takes a host for one that is not
// at work. So a host that was stopped commits no change that was undone, and began again.
const CommitTime = 5 * LookInterval

// Commit makes this host commit the change in its config, within CommitTime. Old hosts get no vote from then on, and the
// change cannot be undone.
func (f *Fleet) Commit(now time.Duration) error {
	if _, err := f.CanCommit(now); err != nil {
		return err
	}
	f.change.mu.Lock()
	defer f.change.mu.Unlock()
	f.change.asked, f.change.askedBy = f.change.stageLocked(), now+CommitTime
	return nil
}

// ShowsCommit reports whether a node has the commit of the change in this host's config.
func (f *Fleet) ShowsCommit() bool {
	c := f.change
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.seen, func(s sighting) bool { return c.refusesOld(s.stage) || c.isDone(s.stage) })
}

// CanUndo returns why this host cannot undo a change.
func (f *Fleet) CanUndo(now time.Duration) error {
	f.change.mu.Lock()
	defer f.change.mu.Unlock()
	_, err := f.change.undoableLocked(now)
	return err
}

// undoableLocked returns a change of this host's list that has begun. The caller holds mu.
func (c *change) undoableLocked(now time.Duration) (Stage, error) {
	i := slices.IndexFunc(c.seen, func(seen sighting) bool { return seen.stage.Step == Begun && seen.stage.Old == c.old })
	switch {
	case c.isCommittingLocked(now), slices.ContainsFunc(c.seen, func(seen sighting) bool {
		return seen.stage.Old == c.old && seen.stage.Step >= Committed && seen.stage.Number >= c.number
	}):
		return Stage{}, ErrCommitted
	case c.isJoint():
		return Stage{}, ErrIsJoint
	case i < 0:
		return Stage{}, ErrNothingBegun
	}
	return c.seen[i].stage, nil
}

// Undo makes this host undo, on all nodes, a change that has begun and is not committed. Its config
// must have the old list. If another host still has the change in its config, it begins again.
func (f *Fleet) Undo(now time.Duration) error {
	c := f.change
	c.mu.Lock()
	defer c.mu.Unlock()
	begun, err := c.undoableLocked(now)
	if err == nil {
		c.asked, c.askedBy = begun, now+time.Duration(2+len(f.members))*2*stepInterval
	}
	return err
}

// ChangeElsewhere returns the step of a change that is not in this host's config: Begun if one of this host's list has
// begun, Done if one to this host's list is done, otherwise Settled.
func (f *Fleet) ChangeElsewhere() (found Step) {
	c := f.change
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, seen := range c.seen {
		switch {
		case seen.stage.Step == Begun:
			return Begun
		case seen.stage.Step == Done:
			found = Done
		}
	}
	return found
}

// RefusalHere returns why a node that serves other lists refuses this host; nil: none does.
func (f *Fleet) RefusalHere() error {
	c := f.change
	c.mu.Lock()
	defer c.mu.Unlock()
	for node, seen := range c.seen {
		if seen.stage != (Stage{}) && !c.serves(node, seen.stage) {
			return c.refusal(node, seen.stage)
		}
	}
	return nil
}

// StepOf returns the step of a change on a node.
func (f *Fleet) StepOf(node int) Step {
	f.change.mu.Lock()
	defer f.change.mu.Unlock()
	return f.change.seen[node].stage.Step
}
