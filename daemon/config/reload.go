package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/redlockd/redlockd/redlock"
)

// Changes returns what next changes that needs another process: a process can change only log,
// access, limits and doctor. The content of password and certificate files is read at every
// connection. If next cannot be used while locks are held, it returns an error that says why.
// anyList says that no lock is held, and none can be with this config: the nodes refuse its list.
func (c *Config) Changes(next *Config, anyList bool) (changed []string, err error) {
	if c.Quorum.KeyPrefix != next.Quorum.KeyPrefix {
		return nil, fmt.Errorf("quorum.key_prefix cannot change while locks are held, because they are not found under another one: %s", redlock.ChangeForAll)
	}
	if !anyList && !c.Quorum.SharesList(&next.Quorum) {
		return nil, errors.New("the list of nodes cannot change at once while locks are held, because a quorum of the old list and one of the new list may share no node: first mark nodes as joining or leaving on all hosts (NODES.md, Changing the nodes)")
	}
	for _, fixed := range []struct {
		name     string
		now, new any
	}{
		{"quorum.max_ttl", c.Quorum.MaxTTL, next.Quorum.MaxTTL},
		{"quorum.node_timeout", c.Quorum.NodeTimeout, next.Quorum.NodeTimeout},
		{"lease", c.Lease, next.Lease},
		{"drain", c.Drain, next.Drain},
		{"socket", c.Socket, next.Socket},
		{"metrics", c.Metrics, next.Metrics},
	} {
		if !reflect.DeepEqual(fixed.now, fixed.new) {
			changed = append(changed, fixed.name)
		}
	}
	return append(changed, changedNodes(c.Quorum.Nodes, next.Quorum.Nodes)...), nil
}

// ListsChange returns the lists of the nodes in next, and whether they are others than in c. A config
// without joining or leaving nodes has one list, twice.
func (c *Quorum) ListsChange(next *Quorum) (before, after []string, isOther bool) {
	before, after = namesWithout(next.Nodes, isJoining), namesWithout(next.Nodes, isLeaving)
	return before, after, !slices.Equal(before, namesWithout(c.Nodes, isJoining)) || !slices.Equal(after, namesWithout(c.Nodes, isLeaving))
}

// SharesList reports whether two configs have a list of nodes in common: with joining or leaving nodes,
// a config has the old list and the new one. Then the leases of the one continue with the other.
func (c *Quorum) SharesList(next *Quorum) bool {
	for _, without := range []func(Node) bool{isJoining, isLeaving} {
		for _, nextWithout := range []func(Node) bool{isJoining, isLeaving} {
			if slices.Equal(namesWithout(c.Nodes, without), namesWithout(next.Nodes, nextWithout)) {
				return true
			}
		}
	}
	return false
}

func isJoining(n Node) bool { return n.Joining }
func isLeaving(n Node) bool { return n.Leaving }

// namesWithout returns the names of the other nodes, sorted: their order in the file does not matter.
func namesWithout(nodes []Node, is func(Node) bool) (names []string) {
	for _, n := range nodes {
		if !is(n) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// changedNodes returns the nodes with another address or other settings, and the ones that are in one
// config only. Such a change can be made host by host.
func changedNodes(now, next []Node) (changed []string) {
	for _, a := range now {
		i := slices.IndexFunc(next, func(b Node) bool { return b.Name == a.Name })
		if i < 0 {
			changed = append(changed, fmt.Sprintf("node %q (removed)", a.Name))
			continue
		}
		b := next[i]
		a.Pos, b.Pos = "", ""
		if !reflect.DeepEqual(a, b) {
			what := fmt.Sprintf("node %q", a.Name)
			if a.Address != b.Address {
				what += " (host by host; if another Redis is there, change one node at a time: it does not vote until max_ttl after the last host)"
			}
			changed = append(changed, what)
		}
	}
	for _, b := range next {
		if !slices.ContainsFunc(now, func(a Node) bool { return a.Name == b.Name }) {
			changed = append(changed, fmt.Sprintf("node %q (added)", b.Name))
		}
	}
	slices.Sort(changed)
	return changed
}
