package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/logging"
)

func TestCheckReload(t *testing.T) {
	now := mustLoad(t, nodesSource(3))
	for name, c := range map[string]struct {
		change func(*Config)
		want   string // "": allowed
	}{
		"nothing":     {func(*Config) {}, ""},
		"log.level":   {func(c *Config) { c.Log.Level = hclog.Trace }, ""},
		"limits":      {func(c *Config) { c.Limits.Connections = 1 }, ""},
		"log.format":  {func(c *Config) { c.Log.Format = logging.JSON }, ""},
		"key_prefix":  {func(c *Config) { c.Quorum.KeyPrefix = "x:" }, "quorum.key_prefix (held locks are not found"},
		"max_ttl":     {func(c *Config) { c.Quorum.MaxTTL++ }, "quorum.max_ttl"},
		"timeout":     {func(c *Config) { c.Quorum.NodeTimeout++ }, "quorum.node_timeout"},
		"lease":       {func(c *Config) { c.Lease.Linger++ }, "lease"},
		"drain":       {func(c *Config) { c.Drain++ }, "drain"},
		"socket":      {func(c *Config) { c.Socket.Mode = 0o600 }, "socket"},
		"access":      {func(c *Config) { c.Access = &Access{} }, ""},
		"metrics":     {func(c *Config) { c.Metrics = &Metrics{} }, "metrics"},
		"fewer nodes": {func(c *Config) { c.Quorum.Nodes = c.Quorum.Nodes[:2] }, "may share no node"},
		"other node":  {func(c *Config) { c.Quorum.Nodes[1].Address = "10.9.9.9:6379" }, `to change node "n1" (host by host`},
		"other names": {func(c *Config) { c.Quorum.Nodes[1].Name = "x" }, "may share no node"},
		"order":       {func(c *Config) { slices.Reverse(c.Quorum.Nodes) }, ""},
		"tls":         {func(c *Config) { c.Quorum.Nodes[1].TLS = &TLS{} }, `to change node "n1";`},
		"user":        {func(c *Config) { c.Quorum.Nodes[1].Username = "x"; c.Quorum.Nodes[2].Durable = true }, `to change node "n1", node "n2";`},
		"two things":  {func(c *Config) { c.Lease.TTL++; c.Socket.Path = "/x" }, "lease, socket"},
	} {
		next := mustLoad(t, "\n"+nodesSource(3)) // every line number differs
		c.change(next)
		err := now.CheckReload(next)
		if c.want == "" && err != nil {
			t.Errorf("%s: got %v, want none", name, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want one with %q", name, err, c.want)
		}
	}
}
