package admission

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// HostsKey is the hash in which hosts tell a node that is being changed which list they have: by the
// name of the host, its HostReport.
const HostsKey = "redlockd:hosts"

// HostsLast is how long the hash exists after the last host has written to it.
const HostsLast = time.Hour

// HostReport is what a host told a node about itself.
type HostReport struct {
	Name string
	list string        // a list or, of a joint host, its Stage
	Age  time.Duration // since then, on the node's clock
}

// HostList says which list of a change a host has.
type HostList string

// The lists of a change.
const (
	OldList   HostList = "old"
	BothLists HostList = "joint"
	NewList   HostList = "new"
	OtherList HostList = "other"
)

// reportTime is how long a node has a stage before this host relies on the reports there: by then,
// each host that looks at the node has seen the stage, and reported at its next look.
const reportTime = 3 * LookInterval

// reports tells whether this host reports its list to a node: while the node is being changed.
// After a change that led to this host's list, only hosts that are behind report.
func (c *change) reports(node int) bool {
	if c.isJoint() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.seen[node].stage
	return s.Step != Settled && !(s.Step == Done && s.New == c.old)
}

// HostReport returns what this host tells the node about itself at a time of the node; "": nothing,
// because the node is not being changed.
func (m *Member) HostReport(at time.Duration) string {
	c := m.fleet.change
	if !c.reports(m.index) {
		return ""
	}
	return strconv.FormatInt(at.Milliseconds(), 10) + " " + c.stage().String()
}

// ParseHostReport parses a text of Member.HostReport. now is the time of the node.
func ParseHostReport(name, text string, now time.Duration) (r HostReport, ok bool) {
	ms, list, ok := strings.Cut(text, " ")
	at, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil || at < 0 || at > MaxNodeSeconds*1000 {
		return HostReport{}, false
	}
	return HostReport{Name: name, list: list, Age: max(now-time.Duration(at)*time.Millisecond, 0)}, true
}

// ListOf returns which list of the change in progress a host has reported.
func (f *Fleet) ListOf(r HostReport) HostList {
	of := f.change.inProgress()
	s, err := parseStage(r.list)
	switch {
	case err != nil:
		return OtherList
	case s.isOf(of.Old, of.New):
		return BothLists
	case s.Step == Settled && s.Old == of.Old:
		return OldList
	case s.Step == Settled && s.Old == of.New && s.Number > of.Number:
		return NewList // otherwise it has that list since an earlier change
	}
	return OtherList
}

// inProgress returns a stage of the change in this host's config or, without one, of the change that was
// seen on a node.
func (c *change) inProgress() Stage {
	if c.isJoint() {
		return c.stage()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.seen, func(s sighting) bool { return s.stage.Step != Settled }); i >= 0 {
		return c.seen[i].stage
	}
	return c.stageLocked()
}

// ShowAllHosts reports whether the reports on these nodes show each host that can take a lock on a
// majority of the old list.
func (f *Fleet) ShowAllHosts(nodes quorum.Set) bool { return f.lists[0].Decides(nodes) }
