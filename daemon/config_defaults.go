package daemon

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/redlock"
)

// DefaultSocketPath is where clients look for the daemon.
const DefaultSocketPath = "/run/redlockd/redlockd.sock"

// configDefaultTTL is lease.ttl where the file does not set it and max_ttl is no shorter.
const configDefaultTTL = 10 * time.Second

// defaultConfig is what a file with nothing in it would mean, but for the
// nodes, which have no default, and lease.ttl, which depends on max_ttl.
func defaultConfig() *Config {
	return &Config{
		Quorum: QuorumConfig{
			KeyPrefix:   redlock.DefaultPrefix,
			MaxTTL:      30 * time.Second,
			NodeTimeout: 50 * time.Millisecond,
		},
		Socket: SocketConfig{Path: DefaultSocketPath, Mode: 0o660},
		Limits: LimitsConfig{
			Connections:        10000,
			ConnectionsPerUser: 1000,
			LeasesPerUser:      10000,
			WaitersPerUser:     10000,
		},
		Log: LogConfig{Level: hclog.Info, Format: logging.Text},
	}
}

// DevConfig is the config of redlockd -dev: five nodes a to e that the daemon
// embeds (their address is the word "embedded", nothing is dialled), and a
// socket in the working directory.
func DevConfig() *Config {
	cfg := defaultConfig()
	cfg.Lease.TTL = configDefaultTTL
	cfg.Quorum.NodeTimeout = 500 * time.Millisecond // embedded nodes are slow when busy, and never hang
	cfg.Socket = SocketConfig{Path: "./redlockd.sock", Mode: 0o600}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		cfg.Quorum.Nodes = append(cfg.Quorum.Nodes, NodeConfig{Name: name, Address: "embedded"})
	}
	return cfg
}
