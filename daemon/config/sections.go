package config

import (
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/redlockd/redlockd/daemon/logging"
)

// The ranges of durations. minTTL is the minimum of the protocol. maxTTL is also how long a
// restarted node may be quarantined.
const (
	minTTL      = 100 * time.Millisecond
	maxTTL      = 24 * time.Hour
	longestHold = 365 * 24 * time.Hour // of max_hold, where 0 is no bound
)

// readConfig reads the whole file, with a function for each block, in the order of redlockd.hcl(5).
// checkConfig checks rules that concern several values.
func (r *reader) readConfig(body *hclsyntax.Body) *Config {
	cfg := defaults()
	cfg.Path = r.file
	file := &section{r: r, body: body, header: r.rangeOf()}

	if !file.readBlock("quorum", func(b *section) { r.readQuorum(b, &cfg.Quorum) }) {
		file.missing("quorum", "a block quorum { … } with the nodes")
	}
	file.readBlock("lease", func(b *section) { readLease(b, &cfg.Lease) })
	file.duration("drain", &cfg.Drain, 0, maxTTL)
	file.readBlock("socket", func(b *section) { readSocket(b, &cfg.Socket) })
	file.readBlock("access", func(b *section) { cfg.Access = readAccess(b) })
	file.readBlock("limits", func(b *section) { readLimits(b, &cfg.Limits) })
	file.readBlock("log", func(b *section) { readLog(b, &cfg.Log) })
	file.readBlock("metrics", func(b *section) { cfg.Metrics = readMetrics(b) })
	file.readBlock("doctor", func(b *section) { b.texts("ignore", &cfg.Doctor.Ignore, checkDoctorCheck) })
	file.finish()
	return cfg
}

func (r *reader) readQuorum(b *section, quorum *Quorum) {
	b.text("key_prefix", &quorum.KeyPrefix, checkKeyPrefix)
	b.duration("max_ttl", &quorum.MaxTTL, minTTL, maxTTL)
	b.duration("node_timeout", &quorum.NodeTimeout, time.Millisecond, maxTTL)
	quorum.Nodes = nil
	n := b.readNamedBlocks("node", func(name string, b *section) {
		quorum.Nodes = append(quorum.Nodes, r.readNode(name, b))
	})
	if n == 0 {
		b.missing("node", `at least one block node "a" { address = … }`)
	}
}

func (r *reader) readNode(name string, b *section) Node {
	node := Node{Name: name, Pos: fmt.Sprintf("%s:%d", r.file, b.header.Start.Line)}
	b.text("address", &node.Address, checkNodeAddress)
	b.number("database", &node.Database, maxDatabase, "")
	b.text("username", &node.Username, checkUsername)
	b.fileName("password_file", &node.PasswordFile, func() error { _, err := node.Password(); return err })
	b.flag("durable", &node.Durable)
	b.flag("joining", &node.Joining)
	b.flag("leaving", &node.Leaving)
	b.readBlock("tls", func(b *section) { node.TLS = readTLS(b) })

	if !b.has("address") {
		b.missing("address", addressForms)
	}
	if b.has("username") && !b.has("password_file") {
		b.missing("password_file", "a file with the password of "+quote(node.Username))
	}
	if node.Joining && node.Leaving {
		r.faultf(r.rangeOf(b.path+".leaving", b.path), "%s.leaving: wanted joining or leaving, found both: a new node is joining, and a node that others replace is leaving", b.path)
	}
	if isUnixAddress(node.Address) && node.TLS != nil {
		r.faultf(r.rangeOf(b.path+".tls", b.path), "%s.tls: wanted no TLS to %s, found some: Redis speaks TLS over TCP only", b.path, node.Address)
	}
	return node
}

func readTLS(b *section) *TLS {
	t := &TLS{}
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

func readLease(b *section, lease *Lease) {
	b.duration("ttl", &lease.TTL, minTTL, maxTTL)
	b.duration("max_hold", &lease.MaxHold, 0, longestHold)
	b.duration("linger", &lease.Linger, 0, maxTTL)
}

func readSocket(b *section, socket *Socket) {
	mode := ""
	b.text("path", &socket.Path, checkUnixPath)
	if b.text("mode", &mode, checkMode) {
		bits, _ := strconv.ParseUint(mode, 8, 32) // checkMode accepted it
		socket.Mode = fs.FileMode(bits)
	}
	b.text("group", &socket.Group, checkAccount)
}

func readAccess(b *section) *Access {
	access := &Access{}
	n := b.readNamedBlocks("rule", func(name string, b *section) {
		access.Rules = append(access.Rules, readRule(name, b))
	})
	if n == 0 {
		b.missing("rule", `at least one block rule "…" { … } (none would deny everything to everyone)`)
	}
	return access
}

func readRule(name string, b *section) Rule {
	rule := Rule{Name: name}
	b.texts("users", &rule.Users, checkUser)
	b.texts("groups", &rule.Groups, checkGroup)
	rule.UIDs, rule.GIDs = accounts(rule.Users, UserOfRule), accounts(rule.Groups, GroupOfRule)
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

func readLimits(b *section, limits *Limits) {
	b.count("connections", &limits.Connections)
	b.count("connections_per_user", &limits.ConnectionsPerUser)
	b.count("leases_per_user", &limits.LeasesPerUser)
	b.count("waiters_per_user", &limits.WaitersPerUser)
	b.count("requests_per_second", &limits.RequestsPerSecond)
}

func readLog(b *section, log *Log) {
	level := ""
	if b.text("level", &level, checkLevel) {
		log.Level, _ = logging.ParseLevel(level) // checkLevel accepted it
	}
	b.text("format", (*string)(&log.Format), checkFormat)
	b.flag("grants", &log.Grants)
}

func readMetrics(b *section) *Metrics {
	metrics := &Metrics{}
	b.text("address", &metrics.Address, checkListenAddress)
	b.flag("page", &metrics.Page)
	b.flag("names", &metrics.Names)
	if !b.has("address") {
		b.missing("address", "host:port to listen on")
	}
	if metrics.Names && !metrics.Page {
		b.missing("page", "page = true, as names = true is for that page")
	}
	return metrics
}
