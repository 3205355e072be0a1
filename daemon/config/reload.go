package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// Changes returns what next changes that needs another process: a process can change only log,
// access, limits and doctor. The content of password and certificate files is read at every
// connection. If next cannot be used while locks are held, it returns an error that says why.
func (c *Config) Changes(next *Config) (changed []string, err error) {
	if c.Quorum.KeyPrefix != next.Quorum.KeyPrefix {
		return nil, fmt.Errorf("quorum.key_prefix cannot change while locks are held, because they are not found under another one: %s", redlock.ChangeForAll)
	}
	nodes, others := sortedByName(c.Quorum.Nodes), sortedByName(next.Quorum.Nodes)
	if !slices.EqualFunc(nodes, others, sameName) {
		return nil, fmt.Errorf("the list of nodes cannot change while locks are held, because a quorum of the old list and one of the new list may share no node: %s", redlock.ChangeForAll)
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
	return append(changed, changedNodes(nodes, others)...), nil
}

// sortedByName sorts the nodes, because their order in the file does not matter.
func sortedByName(nodes []Node) []Node {
	return slices.SortedFunc(slices.Values(nodes), func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
}

func sameName(now, next Node) bool { return now.Name == next.Name }

// changedNodes returns the nodes with another address or other settings. Such a change can be made
// host by host.
func changedNodes(now, next []Node) (changed []string) {
	for i := range now {
		a, b := now[i], next[i]
		a.Pos, b.Pos = "", ""
		if !reflect.DeepEqual(a, b) {
			what := fmt.Sprintf("node %q", a.Name)
			if a.Address != b.Address {
				what += " (host by host; if another Redis is there, change one node at a time: it does not vote until max_ttl after the last host)"
			}
			changed = append(changed, what)
		}
	}
	return changed
}
