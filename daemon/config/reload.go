package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// CheckReload returns an error that lists the changes in next that need a restart, or nil if next
// can be used from now on. Only log, access, limits and doctor can change. The content of password
// and certificate files needs no reload: they are read at every connection.
func (c *Config) CheckReload(next *Config) error {
	var changed []string
	for _, fixed := range []struct {
		name     string
		now, new any
	}{
		{"quorum.key_prefix (held locks are not found under another one: " + redlock.ChangeForAll + ")", c.Quorum.KeyPrefix, next.Quorum.KeyPrefix},
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
	if nodes, others := sortedByName(c.Quorum.Nodes), sortedByName(next.Quorum.Nodes); !slices.EqualFunc(nodes, others, sameName) {
		changed = append(changed, "the list of nodes (a quorum of the old list and one of the new list may share no node: "+redlock.ChangeForAll+")")
	} else {
		changed = append(changed, changedNodes(nodes, others)...)
	}
	if changed == nil {
		return nil
	}
	return fmt.Errorf("a restart is needed to change %s; nothing was changed", strings.Join(changed, ", "))
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
