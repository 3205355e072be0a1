package admission

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// Reasons why a host gets too few votes if its config has one list of a change instead of both.
var (
	ErrTooEarly = errors.New("the new list of nodes gets no vote before the change is done: reload redlockd again when redlock nodes says done")
	ErrTooLate  = errors.New("the change of the nodes is committed, and the old list gets no vote any more: go on to the new list, then change the nodes back")
	ErrUnknown  = errors.New("too few nodes say how far the change of the nodes is: reload redlockd again when they answer; a restart takes this config now, but leases are lost if the nodes then refuse it")
)

// ReplacedList returns the list of this host with the number of the change that replaced it; "": it is not known that
// one did.
func (f *Fleet) ReplacedList() string {
	c := f.change
	if !c.isReplaced() {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stage{Number: c.replaced, Old: c.old}.String()
}

// NoteReplacedList records a text of ReplacedList, if it is about the list of this host.
func (f *Fleet) NoteReplacedList(text string) {
	c := f.change
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, err := parseStage(text); err == nil && !c.isJoint() && s == (Stage{Number: s.Number, Old: c.old}) {
		c.replaced = max(c.replaced, s.Number)
	}
}

// ServesLists returns why this host would get too few votes with other lists of nodes, which may be
// equal: an error above, or the refusal of a node. sources are the nodes that answered. Nodes that are
// not in this host's present lists are not asked, and no reason.
func (f *Fleet) ServesLists(now time.Duration, before, after []string, sources *Sources) error {
	next := &change{old: listDigest(before, f.options.Prefix), new: listDigest(after, f.options.Prefix)}
	var serving, refusing quorum.Set
	var refusal error
	for node, m := range f.members {
		if slices.Contains(before, m.name) {
			next.before |= quorum.Of(node)
		}
		if slices.Contains(after, m.name) {
			next.after |= quorum.Of(node)
		}
		if !sources.Nodes.Has(node) || !(next.before | next.after).Has(node) {
			continue
		}
		if _, stage := sources.stageOf(node); next.serves(node, stage) {
			serving |= quorum.Of(node)
		} else {
			refusing |= quorum.Of(node)
			refusal = next.refusal(node, stage)
		}
	}
	c := f.change
	c.mu.Lock()
	isCommitting := c.isCommittingLocked(now)
	c.mu.Unlock()
	mayLack := func(list []string) int { return (len(list) - 1) / 2 }
	switch {
	case !c.isJoint() || next.isJoint():
		if (refusing&next.before).Len() > mayLack(before) || (refusing&next.after).Len() > mayLack(after) {
			return fmt.Errorf("the nodes refuse this config: %w", refusal)
		}
	case next.old == c.new && refusing != 0:
		return ErrTooEarly
	case next.old == c.old && (refusing != 0 || isCommitting):
		return ErrTooLate
	case serving.Len() < len(before)-mayLack(before):
		return ErrUnknown
	}
	return nil
}
