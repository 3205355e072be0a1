package config

import (
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// manyNodes is the number above which more nodes cost more than they add.
const manyNodes = 15

// checkConfig checks rules that concern several values, fills in the defaults that depend on other
// values, and collects the warnings.
func (r *reader) checkConfig(cfg *Config) {
	if cfg.Lease.TTL == 0 {
		cfg.Lease.TTL = min(defaultTTL, cfg.Quorum.MaxTTL)
	}
	r.checkTTL(cfg)
	r.checkHold(cfg)
	r.checkAddresses(cfg.Quorum.Nodes)
	r.checkCounts(cfg.Quorum.Nodes)
	r.warnOfPath(cfg.Socket.Path)
	r.warnOfGroup(cfg.Socket.Group)
	r.warnOfNobody(cfg.Access)

	slices.SortStableFunc(r.warnings, compareFaults)
	for _, warning := range r.warnings {
		cfg.Warnings = append(cfg.Warnings, warning.String())
	}
}

// compareWhatIsSet checks the rules for values that are all set, in a file with faults of its syntax.
// Others may be in the part that was not understood.
func (r *reader) compareWhatIsSet(cfg *Config) {
	r.checkAddresses(cfg.Quorum.Nodes)
	for _, name := range []string{"lease.ttl", "quorum.max_ttl", "quorum.node_timeout"} {
		if _, isSet := r.positions[name]; !isSet {
			return
		}
	}
	r.checkTTL(cfg)
}

// checkTTL compares ttl, max_ttl and node_timeout, unless one of them has a fault already.
func (r *reader) checkTTL(cfg *Config) {
	if r.faulty["lease.ttl"] || r.faulty["quorum.max_ttl"] || r.faulty["quorum.node_timeout"] {
		return
	}
	at := r.rangeOf("lease.ttl", "quorum.node_timeout", "quorum.max_ttl", "quorum")
	ttl, longest, timeout := cfg.Lease.TTL, cfg.Quorum.MaxTTL, cfg.Quorum.NodeTimeout
	if ttl > longest {
		r.faultf(at, "lease.ttl: wanted at most %s, which is quorum.max_ttl, found %s", formatDuration(longest), formatDuration(ttl))
	}
	if least := minDefaultTTL(timeout); ttl < least {
		r.faultf(at, "lease.ttl: wanted at least %s with a node_timeout of %s (two node_timeouts must fit between the first extension at ttl/3 and the LOST at the deadline - ttl/5), or a node_timeout of at most %s, found %s",
			formatDuration(least), formatDuration(timeout), formatDuration(maxNodeTimeout(ttl)), formatDuration(ttl))
	}
}

// checkHold checks that the defaults of linger= and max= are values that a LOCK may ask for.
func (r *reader) checkHold(cfg *Config) {
	if !r.faulty["lease.linger"] && !r.faulty["quorum.max_ttl"] && cfg.Lease.Linger > cfg.Quorum.MaxTTL {
		r.faultf(r.rangeOf("lease.linger"), "lease.linger: wanted at most %s, which is quorum.max_ttl, found %s",
			formatDuration(cfg.Quorum.MaxTTL), formatDuration(cfg.Lease.Linger))
	}
	if hold := cfg.Lease.MaxHold; !r.faulty["lease.max_hold"] && hold != 0 && hold < redlock.MinTTL {
		r.faultf(r.rangeOf("lease.max_hold"), "lease.max_hold: wanted 0s for no bound, or at least %s, found %s",
			formatDuration(redlock.MinTTL), formatDuration(hold))
	}
}

// minDefaultTTL returns the shortest default ttl with which a lease survives one extension that
// timed out. The first extension starts at ttl/3, and LOST is sent at ttl − drift − ttl/5. Two
// node_timeouts must fit between them, with drift = ttl/100 + 2 ms: 2·timeout + 2 ms ≤ ttl·137/300.
// A client may still ask for a shorter ttl=. That lease is as safe, but is lost sooner.
func minDefaultTTL(timeout time.Duration) time.Duration {
	least := (2*timeout + 2*time.Millisecond) * 300 / 137
	return least.Truncate(time.Millisecond) + time.Millisecond
}

// maxNodeTimeout is the inverse of minDefaultTTL, rounded down to milliseconds.
func maxNodeTimeout(ttl time.Duration) time.Duration {
	return ((ttl*137/300 - 3*time.Millisecond) / 2).Truncate(time.Millisecond)
}

// checkAddresses refuses two nodes with the same address, which would have two votes. If one master
// has two different addresses, the daemon later finds its run_id twice.
func (r *reader) checkAddresses(nodes []Node) {
	seen := map[string]Node{}
	for _, node := range nodes {
		key := canonicalAddress(node.Address)
		if other, again := seen[key]; again && key != "" {
			name := `node "` + node.Name + `"`
			why := ""
			if node.Database != other.Database {
				why = ": two databases of one server fail together, so they are one node"
			}
			r.faultf(r.rangeOf(name+".address", name), "%s.address: wanted an address of its own, found %s, which node %q already has%s", name, quote(node.Address), other.Name, why)
			continue
		}
		seen[key] = node
	}
}

// canonicalAddress returns the same text for all spellings of an address.
func canonicalAddress(address string) string {
	if isUnixAddress(address) {
		return "unix:" + path.Clean(strings.TrimPrefix(address, "unix:"))
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")) + ":" + strings.TrimLeft(port, "0")
}

func isUnixAddress(address string) bool { return strings.HasPrefix(address, "unix:") }

// checkCounts checks the number of nodes: of the new list, if nodes are joining or leaving.
func (r *reader) checkCounts(nodes []Node) {
	at := r.rangeOf("quorum")
	before, after := len(namesWithout(nodes, isJoining)), len(namesWithout(nodes, isLeaving))
	switch n := len(nodes); {
	case n > 0 && before == 0:
		r.faultf(at, "quorum: wanted at least one node that is not joining: the nodes that the other hosts use now; found none")
	case n > 0 && after == 0:
		r.faultf(at, "quorum: wanted at least one node that is not leaving: the nodes that remain; found none")
	case after == 1:
		r.warnf(at, "quorum: 1 node: no failure is tolerated (three nodes tolerate one, five tolerate two)")
	case after%2 == 0 && n > 0:
		r.warnf(at, "quorum: %d nodes tolerate no more failures than %d would", after, after-1)
	}
	switch n := len(nodes); {
	case n > redlock.MaxNodes:
		r.faultf(at, "quorum: wanted at most %d nodes, found %d", redlock.MaxNodes, n)
	case n > manyNodes:
		r.warnf(at, "quorum: %d nodes: every lock asks all of them; five or seven are usual", n)
	}
}
