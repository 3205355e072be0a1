package daemon

import (
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/redlockd/redlockd/daemon/logging"
)

// The ranges of durations. The shortest lease is the protocol's; a longer
// max_ttl than a day would quarantine a restarted node for as long.
const (
	configMinTTL = 100 * time.Millisecond
	configMaxTTL = 24 * time.Hour
	configMaxAge = 365 * 24 * time.Hour // of max_hold, where 0 is no bound
)

// readConfig reads the whole file: one method a block, in the order of
// redlockd.hcl(5). What spans several values is left to checkConfig.
func (r *configReader) readConfig(body *hclsyntax.Body) *Config {
	cfg := defaultConfig()
	cfg.Path = r.file
	file := &configBody{r: r, body: body, header: r.rangeOf()}

	if !file.one("quorum", func(b *configBody) { r.readQuorum(b, &cfg.Quorum) }) {
		file.missing("quorum", "a block quorum { … } with the nodes")
	}
	file.one("lease", func(b *configBody) { readLease(b, &cfg.Lease) })
	file.one("socket", func(b *configBody) { readSocket(b, &cfg.Socket) })
	file.one("access", func(b *configBody) { cfg.Access = readAccess(b) })
	file.one("limits", func(b *configBody) { readLimits(b, &cfg.Limits) })
	file.one("log", func(b *configBody) { readLog(b, &cfg.Log) })
	file.one("metrics", func(b *configBody) { cfg.Metrics = readMetrics(b) })
	file.finish()
	return cfg
}

func (r *configReader) readQuorum(b *configBody, quorum *QuorumConfig) {
	b.text("key_prefix", &quorum.KeyPrefix, checkKeyPrefix)
	b.duration("max_ttl", &quorum.MaxTTL, configMinTTL, configMaxTTL)
	b.duration("node_timeout", &quorum.NodeTimeout, time.Millisecond, configMaxTTL)
	quorum.Nodes = nil
	n := b.many("node", func(name string, b *configBody) {
		quorum.Nodes = append(quorum.Nodes, r.readNode(name, b))
	})
	if n == 0 {
		b.missing("node", `at least one block node "a" { address = … }`)
	}
}

func (r *configReader) readNode(name string, b *configBody) NodeConfig {
	node := NodeConfig{Name: name, Pos: fmt.Sprintf("%s:%d", r.file, b.header.Start.Line)}
	b.text("address", &node.Address, checkNodeAddress)
	b.text("username", &node.Username, checkUsername)
	b.fileName("password_file", &node.PasswordFile, func() error { _, err := node.Password(); return err })
	b.flag("durable", &node.Durable)
	b.one("tls", func(b *configBody) { node.TLS = readTLS(b) })

	if !b.has("address") {
		b.missing("address", addressForms)
	}
	if b.has("username") && !b.has("password_file") {
		b.missing("password_file", "a file with the password of "+configQuote(node.Username))
	}
	if isUnixAddress(node.Address) && node.TLS != nil {
		r.faultf(r.rangeOf(b.path+".tls", b.path), "%s.tls: wanted no TLS to %s, found some: Redis speaks TLS over TCP only", b.path, node.Address)
	}
	return node
}

func readTLS(b *configBody) *TLSConfig {
	t := &TLSConfig{}
	b.fileName("ca_file", &t.CAFile, func() error { _, err := t.roots(); return err })
	cert := b.fileName("cert_file", &t.CertFile, func() error { _, err := readSecretFile(t.CertFile); return err })
	key := b.fileName("key_file", &t.KeyFile, func() error { _, err := readSecretFile(t.KeyFile); return err })
	b.text("server_name", &t.ServerName, checkHost)

	switch {
	case b.has("cert_file") && !b.has("key_file"):
		b.missing("key_file", "the key of cert_file")
	case b.has("key_file") && !b.has("cert_file"):
		b.missing("cert_file", "the certificate of key_file")
	case cert && key:
		b.checkFile("key_file", "the key of cert_file", func() error { _, err := t.certificates(); return err })
	}
	return t
}

func readLease(b *configBody, lease *LeaseConfig) {
	b.duration("ttl", &lease.TTL, configMinTTL, configMaxTTL)
	b.duration("max_hold", &lease.MaxHold, 0, configMaxAge)
	b.duration("linger", &lease.Linger, 0, configMaxTTL)
}

func readSocket(b *configBody, socket *SocketConfig) {
	mode := ""
	b.text("path", &socket.Path, checkUnixPath)
	if b.text("mode", &mode, checkMode) {
		bits, _ := strconv.ParseUint(mode, 8, 32) // checkMode has seen to it
		socket.Mode = fs.FileMode(bits)
	}
	b.text("group", &socket.Group, checkAccount)
}

func readAccess(b *configBody) *AccessConfig {
	access := &AccessConfig{}
	n := b.many("rule", func(name string, b *configBody) {
		access.Rules = append(access.Rules, readRule(name, b))
	})
	if n == 0 {
		b.missing("rule", `at least one block rule "…" { … } (none would deny everything to everyone)`)
	}
	return access
}

func readRule(name string, b *configBody) AccessRule {
	rule := AccessRule{Name: name}
	b.texts("users", &rule.Users, checkUser)
	b.texts("groups", &rule.Groups, checkGroup)
	rule.uids, rule.gids = accounts(rule.Users, userOfRule), accounts(rule.Groups, groupOfRule)
	b.texts("locks", &rule.Locks, checkLockPattern)
	b.texts("allow", &rule.Allow, checkAllow)
	if b.isEmpty("users") && b.isEmpty("groups") {
		b.missing("users", "users or groups with at least one name")
	}
	if b.isEmpty("locks") {
		b.missing("locks", `at least one lock such as "web/*"`)
	}
	if b.isEmpty("allow") {
		b.missing("allow", "at least one of "+allowWords)
	}
	return rule
}

func readLimits(b *configBody, limits *LimitsConfig) {
	b.count("connections", &limits.Connections)
	b.count("connections_per_user", &limits.ConnectionsPerUser)
	b.count("leases_per_user", &limits.LeasesPerUser)
	b.count("waiters_per_user", &limits.WaitersPerUser)
	b.count("requests_per_second", &limits.RequestsPerSecond)
}

func readLog(b *configBody, log *LogConfig) {
	level := ""
	if b.text("level", &level, checkLevel) {
		log.Level, _ = logging.ParseLevel(level) // checkLevel has seen to it
	}
	b.text("format", (*string)(&log.Format), checkFormat)
}

func readMetrics(b *configBody) *MetricsConfig {
	metrics := &MetricsConfig{}
	b.text("address", &metrics.Address, checkListenAddress)
	if !b.has("address") {
		b.missing("address", "host:port to listen on")
	}
	return metrics
}
