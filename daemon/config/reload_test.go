package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/logging"
)

// A change needs no other process, needs one, or is refused.
func TestChanges(t *testing.T) {
	now := mustLoad(t, nodesSource(3))
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string // changes that need another process
		refuse string   // "": allowed
	}{
		"nothing":     {func(*Config) {}, nil, ""},
		"log.level":   {func(c *Config) { c.Log.Level = hclog.Trace }, nil, ""},
		"limits":      {func(c *Config) { c.Limits.Connections = 1 }, nil, ""},
		"log.format":  {func(c *Config) { c.Log.Format = logging.JSON }, nil, ""},
		"key_prefix":  {func(c *Config) { c.Quorum.KeyPrefix = "x:" }, nil, "quorum.key_prefix cannot change while locks are held"},
		"max_ttl":     {func(c *Config) { c.Quorum.MaxTTL++ }, []string{"quorum.max_ttl"}, ""},
		"timeout":     {func(c *Config) { c.Quorum.NodeTimeout++ }, []string{"quorum.node_timeout"}, ""},
		"lease":       {func(c *Config) { c.Lease.Linger++ }, []string{"lease"}, ""},
		"drain":       {func(c *Config) { c.Drain++ }, []string{"drain"}, ""},
		"socket":      {func(c *Config) { c.Socket.Mode = 0o600 }, []string{"socket"}, ""},
		"access":      {func(c *Config) { c.Access = &Access{} }, nil, ""},
		"metrics":     {func(c *Config) { c.Metrics = &Metrics{} }, []string{"metrics"}, ""},
		"fewer nodes": {func(c *Config) { c.Quorum.Nodes = c.Quorum.Nodes[:2] }, nil, "may share no node"},
		"other node":  {func(c *Config) { c.Quorum.Nodes[1].Address = "10.9.9.9:6379" }, []string{`node "n1" (host by host`}, ""},
		"other names": {func(c *Config) { c.Quorum.Nodes[1].Name = "x" }, nil, "may share no node"},
		"order":       {func(c *Config) { slices.Reverse(c.Quorum.Nodes) }, nil, ""},
		"tls":         {func(c *Config) { c.Quorum.Nodes[1].TLS = &TLS{} }, []string{`node "n1"`}, ""},
		"user":        {func(c *Config) { c.Quorum.Nodes[1].Username = "x"; c.Quorum.Nodes[2].Durable = true }, []string{`node "n1"`, `node "n2"`}, ""},
		"joining": {func(c *Config) {
			c.Quorum.Nodes = append(c.Quorum.Nodes, Node{Name: "x", Address: "10.9.9.9:6379", Joining: true})
			c.Quorum.Nodes[1].Leaving = true
		}, []string{`node "n1"`, `node "x" (added)`}, ""},
		"joining and other": {func(c *Config) {
			c.Quorum.Nodes = append(c.Quorum.Nodes, Node{Name: "x", Address: "10.9.9.9:6379", Joining: true}, Node{Name: "y", Address: "10.9.9.9:6379"})
		}, nil, "first mark nodes as joining or leaving"},
		"two things": {func(c *Config) { c.Lease.TTL++; c.Socket.Path = "/x" }, []string{"lease", "socket"}, ""},
	} {
		next := mustLoad(t, "\n"+nodesSource(3)) // every line number differs
		c.change(next)
		changed, err := now.Changes(next, false)
		if c.refuse == "" && err != nil || c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse)) {
			t.Errorf("%s: got %v, want one with %q", name, err, c.refuse)
		}
		if !slices.EqualFunc(changed, c.want, strings.HasPrefix) {
			t.Errorf("%s: got the changes %q, want %q", name, changed, c.want)
		}
		if _, err := now.Changes(next, true); (err != nil) != strings.HasPrefix(c.refuse, "quorum.key_prefix") {
			t.Errorf("%s: without locks, and with a list that was replaced: %v", name, err)
		}
	}
}
