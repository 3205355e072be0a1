package config

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/redlock"
)

// DefaultSocketPath is where clients look for the daemon.
const DefaultSocketPath = "/run/redlockd/redlockd.sock"

// defaultTTL is lease.ttl where the file does not set it and max_ttl is no shorter.
const defaultTTL = 10 * time.Second

// defaults is what a file with nothing in it would mean, but for the
// nodes, which have no default, and lease.ttl, which depends on max_ttl.
func defaults() *Config {
	return &Config{
		Quorum: Quorum{
			KeyPrefix:   redlock.DefaultPrefix,
			MaxTTL:      30 * time.Second,
			NodeTimeout: 50 * time.Millisecond,
		},
		Socket: Socket{Path: DefaultSocketPath, Mode: 0o660},
		Limits: Limits{
			Connections:        10000,
			ConnectionsPerUser: 1000,
			LeasesPerUser:      10000,
			WaitersPerUser:     10000,
		},
		Log: Log{Level: hclog.Info, Format: logging.Text},
	}
}

// Dev is the config of redlockd -dev: five nodes a to e that the daemon
// embeds (their address is the word "embedded", nothing is dialled), and a
// socket in the working directory.
func Dev() *Config {
	cfg := defaults()
	cfg.Lease.TTL = defaultTTL
	cfg.Quorum.NodeTimeout = 500 * time.Millisecond // embedded nodes are slow when busy, and never hang
	cfg.Socket = Socket{Path: "./redlockd.sock", Mode: 0o600}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		cfg.Quorum.Nodes = append(cfg.Quorum.Nodes, Node{Name: name, Address: "embedded"})
	}
	return cfg
}
