package redlock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// ChangeStep is how far a change of the nodes is.
type ChangeStep string

// The steps of a change. Until it is committed, it can be undone.
const (
	ChangeBegins    ChangeStep = "begins"    // nodes are still to learn of it, or joining nodes have no vote yet
	ChangeBegun     ChangeStep = "begun"     // it can be committed when all hosts have it
	ChangeCommitted ChangeStep = "committed" // hosts with the old list get no vote
	ChangeDone      ChangeStep = "done"      // hosts with the new list get votes
)

// Change is a change of the nodes that is in this process's Options: Node.Joining and Node.Leaving. It
// goes from the old list, without the joining nodes, to the new list, without the leaving ones, while
// locks are held:
//
//  1. Each process in turn is ended, and a process with both lists adopts its leases.
//  2. When the step is ChangeBegun, and all processes have both lists, one calls CommitChange. Until
//     then, UndoChange leads back.
//  3. When the step is ChangeDone, each process in turn gets the new list. Then the old nodes can end.
//     They must not start again without their data while any process has the old list.
type Change struct {
	Step             ChangeStep
	Joining, Leaving []string
	Behind           []string      // nodes that vote and do not have the next step yet
	Missing          []string      // nodes that do not vote
	Left             time.Duration // until locks of hosts with the old list have expired
	Conflict         bool          // nodes are in another change

	spare int
}

// change returns the change in progress; nil: there is none.
func (q *Quorum) change() *Change {
	if !q.admission.IsChanging() {
		return nil
	}
	p := q.admission.Progress(q.clock())
	c := &Change{Behind: q.namesOf(p.Behind), Missing: q.namesOf(p.Missing), Left: p.Left, Conflict: p.Conflict}
	c.Step = [...]ChangeStep{ChangeBegins, ChangeBegun, ChangeCommitted, ChangeDone}[p.Step]
	for _, node := range q.options.Nodes {
		switch {
		case node.Joining:
			c.Joining = append(c.Joining, node.Name)
		case node.Leaving:
			c.Leaving = append(c.Leaving, node.Name)
		}
	}
	return c
}

func (q *Quorum) namesOf(nodes quorum.Set) (names []string) {
	for i, l := range q.lanes {
		if nodes.Has(i) {
			names = append(names, l.Name())
		}
	}
	return names
}

// Next returns what the change waits for, or what the operator must do next.
func (c *Change) Next() string {
	joining := slices.ContainsFunc(c.Missing, func(name string) bool { return slices.Contains(c.Joining, name) })
	switch {
	case c.Conflict:
		return "another change of the nodes is in progress: use the same config on all hosts, or undo that change (redlock nodes undo, on a host with the old list)"
	case c.Step == ChangeBegins && joining:
		return "wait until the joining nodes may vote: " + strings.Join(c.Missing, ", ") + " (redlock status says why not)"
	case c.Step == ChangeBegins:
		return "wait until these nodes have begun: " + strings.Join(c.Behind, ", ")
	case c.Step == ChangeBegun:
		return "give all other hosts this config, restart redlockd there, then: redlock nodes commit"
	case c.Step == ChangeCommitted && c.Left > 0:
		return fmt.Sprintf("wait for %v: until then hosts with the old list may hold locks", c.Left.Round(time.Second))
	case c.Step == ChangeCommitted:
		return "wait until these nodes serve the new list: " + strings.Join(append(slices.Clone(c.Behind), c.Missing...), ", ")
	}
	return "remove the leaving nodes and the word joining from the config of all hosts, restart redlockd there, then stop the old Redis servers"
}

// ErrChange means that the nodes cannot be changed now. The error says why.
var ErrChange = fmt.Errorf("the nodes cannot be changed now")

// CommitChange commits the change of the nodes in this process's Options. From then on, hosts with
// the old list get no vote, and the change cannot be undone. The caller knows that no such host
// holds locks. CommitChange does not wait for the nodes: Status says how far the change is. The error
// matches ErrChange.
func (q *Quorum) CommitChange(context.Context) error {
	if err := q.admission.Commit(q.clock()); err != nil {
		return fmt.Errorf("%w: %w", ErrChange, err)
	}
	q.lookAtAll()
	return nil
}

// UndoChange undoes a change of the nodes that has begun and is not committed. This process's Options
// must have the old list. The error matches ErrChange.
func (q *Quorum) UndoChange(context.Context) error {
	if err := q.admission.Undo(q.clock()); err != nil {
		return fmt.Errorf("%w: %w", ErrChange, err)
	}
	q.lookAtAll()
	return nil
}

func (q *Quorum) lookAtAll() {
	for _, l := range q.lanes {
		l.LookSoon()
	}
}

// stepOf returns the step of a change on a node; "": the node is not being changed.
func (q *Quorum) stepOf(node int) ChangeStep {
	if step := q.admission.StepOf(node); step != admission.Settled {
		return ChangeStep(step.String())
	}
	return ""
}
