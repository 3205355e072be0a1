package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/node"
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
	Left             time.Duration // about how long the step lasts; 0: nobody knows, or it waits for an operator
	Conflict         bool          // nodes are in another change
	Over             bool          // the nodes had this change, and were changed back: it does not begin again

	held  time.Duration // until locks of hosts with the old list have expired
	spare int
}

// change returns the change in progress; nil: there is none.
func (q *Quorum) change() *Change {
	if !q.admission.IsChanging() {
		return nil
	}
	p := q.admission.Progress(q.clock())
	c := &Change{Behind: q.namesOf(p.Behind), Missing: q.namesOf(p.Missing), Left: p.Left, Conflict: p.Conflict, Over: p.Over, held: p.Held}
	c.Step = [...]ChangeStep{ChangeBegins, ChangeBegun, ChangeCommitted, ChangeDone}[p.Step]
	for _, n := range q.options.Nodes {
		switch {
		case n.Joining:
			c.Joining = append(c.Joining, n.Name)
		case n.Leaving:
			c.Leaving = append(c.Leaving, n.Name)
		}
	}
	if c.Step == ChangeBegins {
		c.Left = q.untilVotes(c)
	}
	return c
}

// untilVotes returns about when the joining nodes vote and all nodes have begun; 0: that is not known,
// because a node waits for more than time.
func (q *Quorum) untilVotes(c *Change) time.Duration {
	left := c.Left
	for _, l := range q.lanes {
		if slices.Contains(c.Missing, l.Name()) && slices.Contains(c.Joining, l.Name()) {
			node := l.Status()
			if node.Left == 0 {
				return 0
			}
			left = max(left, node.Left+admission.LookInterval)
		}
	}
	return left
}

func (q *Quorum) namesOf(nodes quorum.Set) (names []string) {
	for i, l := range q.lanes {
		if nodes.Has(i) {
			names = append(names, l.Name())
		}
	}
	return names
}

// Next returns what the change waits for, or what the operator must do next. hosts are those of
// ChangeHosts; nil: they are not known.
func (c *Change) Next(hosts []ChangeHost) string {
	joins := slices.ContainsFunc(c.Missing, func(name string) bool { return slices.Contains(c.Joining, name) })
	about := ""
	if c.Left > 0 {
		about = fmt.Sprintf("about %v ", node.Seconds(c.Left))
	}
	behind, missing := strings.Join(c.Behind, ", "), strings.Join(c.Missing, ", ")
	switch {
	case c.Conflict:
		return "another change of the nodes is in progress: use the same config on all hosts, or undo that change (redlock nodes undo, on a host with the old list)"
	case c.Over:
		return admission.ErrOver.Error() + "; to make this change again, restart redlockd here"
	case c.Step == ChangeBegins && joins:
		return "wait " + about + "until the joining nodes may vote: " + missing + " (redlock status says why not)"
	case c.Step == ChangeBegins && c.Behind == nil, c.Step == ChangeCommitted && c.Behind == nil:
		return "too few nodes of the old or of the new list may vote: bring these up: " + missing
	case c.Step == ChangeBegins:
		return "wait " + about + "until these nodes have begun, one after the other: " + behind
	case c.Step == ChangeBegun:
		return nextOfBegun(hosts)
	case c.Step == ChangeCommitted && c.held > 0:
		return fmt.Sprintf("wait %suntil the new list is in use: for %v hosts with the old list may hold locks, then the nodes serve it one after the other", about, node.Seconds(c.held))
	case c.Step == ChangeCommitted:
		return "wait " + about + "until these nodes serve the new list, one after the other: " + behind
	}
	return "remove the leaving nodes and the word joining from the config, and reload redlockd, on " + cmp.Or(strings.Join(namesOfHosts(hosts, HostJoint), ", "), "each host") +
		"; when no host is left, stop the old Redis servers"
}

func nextOfBegun(hosts []ChangeHost) string {
	behind := namesOfHosts(hosts, HostOld, HostNew, HostOther)
	switch joint := namesOfHosts(hosts, HostJoint); {
	case behind != nil:
		return "give this config to these hosts, and reload redlockd there: " + strings.Join(behind, ", ")
	case joint != nil:
		return fmt.Sprintf("all hosts at work have this config (%d): redlock nodes commit", len(joint))
	}
	return "give all other hosts this config, reload redlockd there, then: redlock nodes commit"
}

// NextStep returns what the operator must do next about a change of the nodes, also on a host whose
// config has none. hosts are those of ChangeHosts.
func (q *Quorum) NextStep(hosts []ChangeHost) string {
	if c := q.change(); c != nil {
		return c.Next(hosts)
	}
	if why := q.admission.RefusalHere(); why != nil {
		return "nodes refuse this host: " + why.Error()
	}
	joint := strings.Join(namesOfHosts(hosts, HostJoint), ", ")
	switch q.admission.ChangeElsewhere() {
	case admission.Settled:
		return "no change of the nodes is in progress"
	case admission.Begun:
		return "the nodes are being changed by " + cmp.Or(joint, "a host that is not at work now") + ": give this host the same config, and reload redlockd; or, to go back, give these hosts the old config, then: redlock nodes undo"
	}
	if joint != "" {
		return "the nodes were changed to this host's list. Hosts that still have both: " + joint + ". When none is left, stop the old Redis servers"
	}
	return "the nodes were changed to this host's list, and no host at work has the old one: the old Redis servers are not needed any more"
}

// ErrChange means that the nodes cannot be changed now. The error says why.
var ErrChange = errors.New("the nodes cannot be changed now")

// CommitChange commits the change of the nodes in this process's Options. From then on, hosts with
// the old list get no vote, and the change cannot be undone. It is refused while such a host is at
// work. CommitChange waits for the first node alone, for five seconds at most: Status says how far the change is. It is repeated
// without effect. The error matches ErrChange.
func (q *Quorum) CommitChange(ctx context.Context) error {
	step, err := q.admission.CanCommit(q.clock())
	switch {
	case err != nil:
		return q.errChange(err)
	case step != admission.Begun:
		return nil // it is committed
	}
	hosts, err := q.ChangeHosts(ctx)
	if err != nil {
		return err
	}
	if behind := namesOfHosts(hosts, HostOld, HostOther); behind != nil {
		return fmt.Errorf("%w: hosts without this change in their config: %s: give them this config, and reload redlockd there; or stop it, and wait %v", ErrChange, strings.Join(behind, ", "), hostAtWork)
	}
	if err := q.admission.Commit(q.clock()); err != nil {
		return q.errChange(err)
	}
	q.lookAtAll()
	return q.awaitCommit(ctx)
}

// awaitCommit waits until a node shows that the change is committed. From then on, no host takes the old list any more:
// see CheckLists.
func (q *Quorum) awaitCommit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, admission.CommitTime)
	defer cancel()
	for !q.admission.ShowsCommit() {
		select {
		case <-time.After(admission.LookInterval / 20):
		case <-ctx.Done():
			return fmt.Errorf("%w: no node took the commit within %v: commit again", ErrChange, admission.CommitTime)
		}
	}
	return nil
}

// UndoChange undoes a change of the nodes that has begun and is not committed. This process's Options
// must have the old list. It is refused while a host with both lists is at work, which would begin the
// change again. The error matches ErrChange.
func (q *Quorum) UndoChange(ctx context.Context) error {
	if err := q.admission.CanUndo(q.clock()); err != nil {
		return q.errChange(err)
	}
	hosts, err := q.ChangeHosts(ctx)
	if err != nil {
		return err
	}
	if behind := namesOfHosts(hosts, HostJoint); behind != nil {
		return fmt.Errorf("%w: hosts that have the change in their config, and would begin it again: %s: give them the old config, and reload redlockd there; or stop it, and wait %v", ErrChange, strings.Join(behind, ", "), hostAtWork)
	}
	if err := q.admission.Undo(q.clock()); err != nil {
		return q.errChange(err)
	}
	q.lookAtAll()
	return nil
}

// errChange returns the error of a change that the nodes do not allow now.
func (q *Quorum) errChange(err error) error {
	if c := q.change(); c != nil && errors.Is(err, admission.ErrNotBegun) {
		return fmt.Errorf("%w: %w: %s", ErrChange, err, c.Next(nil))
	}
	return fmt.Errorf("%w: %w", ErrChange, err)
}

// HostList says which list of nodes the config of a host has.
type HostList = admission.HostList

// The lists of a change of the nodes.
const (
	HostOld   = admission.OldList
	HostJoint = admission.BothLists
	HostNew   = admission.NewList
	HostOther = admission.OtherList // another change, or none of the lists
)

// ChangeHost is a host that uses nodes which are being changed. It tells them so once a second. A host
// with the new list does that only while nodes refuse it.
type ChangeHost struct {
	Name string
	List HostList
	Seen time.Duration // how long ago a node last heard of it
}

// IsAtWork reports whether the host was seen in the last seconds.
func (h *ChangeHost) IsAtWork() bool { return h.Seen < hostAtWork }

// hostAtWork is after how long without a report a host is at work no longer. A host that was only
// stopped for that long loses no promise: it gets no vote when it continues.
const hostAtWork = 10 * time.Second

// ChangeHosts asks the nodes which hosts use them, and returns these in the order of their names. If
// too few nodes of the old list answer to show every host, the error matches ErrChange.
func (q *Quorum) ChangeHosts(ctx context.Context) ([]ChangeHost, error) {
	var mu sync.Mutex // guards what follows
	var read quorum.Set
	var failed []error
	seen := map[string]admission.HostReport{}
	var all sync.WaitGroup
	for i, l := range q.lanes {
		all.Go(func() {
			reports, err := l.Hosts(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return
			}
			read |= quorum.Of(i)
			for _, r := range reports {
				if other, isSeen := seen[r.Name]; !isSeen || r.Age < other.Age {
					seen[r.Name] = r
				}
			}
		})
	}
	all.Wait()
	if !q.admission.ShowAllHosts(read) {
		return nil, fmt.Errorf("%w: too few nodes of the old list say which hosts use them: %w", ErrChange, errors.Join(failed...))
	}
	var hosts []ChangeHost
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		hosts = append(hosts, ChangeHost{Name: name, List: q.admission.ListOf(seen[name]), Seen: seen[name].Age})
	}
	return hosts, nil
}

// namesOfHosts returns the names of the hosts at work that have one of the lists.
func namesOfHosts(hosts []ChangeHost, lists ...HostList) (names []string) {
	for i := range hosts {
		if hosts[i].IsAtWork() && slices.Contains(lists, hosts[i].List) {
			names = append(names, hosts[i].Name)
		}
	}
	return names
}

func (q *Quorum) lookAtAll() {
	for _, l := range q.lanes {
		l.LookSoon()
	}
}
