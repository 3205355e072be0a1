package doctor

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

// checkQuorum uses only the numbers. Other checks report the daemon's text.
func (p *snapshot) checkQuorum() []Finding {
	s := p.status
	text := readiness(s)
	switch {
	case s.Spare < 0 && s.Left > 0 && !slices.ContainsFunc(s.Nodes, needsOtherNodes):
		return []Finding{{"quorum", Bad, fmt.Sprintf("%s: no lock can be taken for %s, until quarantines end", text, output.Duration(s.Left)),
			fixQuarantine(s)}}
	case s.Spare < 0:
		return []Finding{{"quorum", Bad, text + ": no lock can be taken", "see the findings about the nodes"}}
	case s.Spare == 0 && len(s.Nodes) > 2:
		return []Finding{{"quorum", Warning, text + ": no further node may fail", "see the findings about the nodes"}}
	case s.Spare == 0:
		return []Finding{{"quorum", OK, text + ": none may fail", ""}}
	}
	return []Finding{{"quorum", OK, fmt.Sprintf("%s: %d more may fail", text, s.Spare), ""}}
}

// fixQuarantine says what to do while quarantines prevent a quorum. It offers ADMIT only if no node
// votes, and the daemon offers it, too: then none of the nodes had an epoch. Otherwise they are not
// new, and may have forgotten locks that are held.
func fixQuarantine(s *client.Status) string {
	if slices.ContainsFunc(s.Nodes, func(n client.Node) bool { return n.State != "quarantined" }) || !strings.Contains(s.Text, "ADMIT all") {
		return "wait; see the findings about the nodes"
	}
	return "wait; or, only if all nodes are new and no host holds a lock: redlock admit all"
}

// waitForQuarantine is the fix for a quarantine that ends by itself.
const waitForQuarantine = "wait (redlock status shows how long); redlock admit is unsafe while locks are held that the node may have forgotten"

func readiness(s *client.Status) string {
	switch {
	case s.Change != "":
		return fmt.Sprintf("the nodes are being changed, and %d of both lists are ready", countNodes(s.Nodes, func(n client.Node) bool { return n.State == "ready" }))
	case len(s.Nodes) != 1:
		return fmt.Sprintf("%d of %d nodes are ready, and %d are needed", s.Quorum+s.Spare, len(s.Nodes), s.Quorum)
	case describe.Ready(s):
		return "the only node is ready"
	}
	return "the only node is not ready"
}

func countNodes(nodes []client.Node, is func(client.Node) bool) (n int) {
	for _, node := range nodes {
		if is(node) {
			n++
		}
	}
	return n
}

// checkChange warns of a change of the nodes that is not finished.
func (p *snapshot) checkChange() []Finding {
	if p.status.Change == "" {
		return nil
	}
	return []Finding{{"node-change", Warning, "a change of the nodes is in progress (" + p.status.Change + ")", "redlock nodes says what it waits for, and what to do next"}}
}

// checkNodeCount warns of an even number of nodes: it tolerates as many failures as one node fewer.
func (p *snapshot) checkNodeCount() []Finding {
	switch n := countNodes(p.status.Nodes, func(n client.Node) bool { return n.List != "leaving" }); {
	case n == 1:
		return []Finding{{"node-count", Warning, "there is one node: without it no lock can be taken", "3 nodes tolerate the loss of one, 5 of two: see Changing the nodes in NODES.md"}}
	case n%2 == 0:
		return []Finding{{"node-count", Warning, fmt.Sprintf("%d nodes tolerate no more failures than %d would", n, n-1), "one node more, or one less: see Changing the nodes in NODES.md"}}
	default:
		return []Finding{{"node-count", OK, fmt.Sprintf("%d nodes tolerate the failure of %d", n, n/2), ""}}
	}
}

// checkNodes reports the state of each node. While a quorum votes, a node without a vote is no
// danger. Nodes with the same state and reason are one finding.
func (p *snapshot) checkNodes() (findings []Finding) {
	for _, g := range describe.GroupNodes(p.status.Nodes, describe.NodeCondition) {
		f := Finding{"node", OK, strings.Join(g.Names, ", ") + ": " + g.Common, ""}
		if g.First.State != "ready" || g.First.Reason != "" {
			f.result, f.fix = Warning, nodeFix(g.First)
		}
		findings = append(findings, f)
	}
	return findings
}

// checkPersistence reports the nodes that lose their data in a restart, in one finding. It is no
// warning: such nodes are safe, and most fleets choose them.
func (p *snapshot) checkPersistence() []Finding {
	var names []string
	for _, n := range p.status.Nodes {
		if n.Volatile {
			names = append(names, n.Name)
		}
	}
	if names == nil {
		return nil
	}
	return []Finding{{"persistence", OK, strings.Join(names, ", ") + ": no persistence: a restart costs a quarantine, and a restart of all nodes at once loses all locks (Persistence in NODES.md)", ""}}
}

// tlsFixes are the fixes for words of Go's and OpenSSL's errors about certificates.
var tlsFixes = []struct{ words, fix string }{
	{"unknown authority", "ca_file of its tls block must have the authority that signed the certificate of the node"},
	{"certificate is valid for", "give the node a certificate for the name in its address, or set server_name of its tls block to a name in its certificate"},
	{"doesn't contain any IP SANs", "give the node a certificate with this IP address, or set server_name of its tls block to a name in its certificate"},
	{"not valid for any names", "give the node a certificate with a name (subjectAltName)"},
	{"certificate has expired or is not yet valid", "renew the certificate of the node, or of its authority (tls-cert-file, tls-ca-cert-file in its redis.conf), and check the clock of this host"},
	{"tls: certificate required", "the node wants a certificate of redlockd (tls-auth-clients): cert_file and key_file in its tls block"},
	{"tls: expired certificate", "renew the certificate of redlockd: cert_file of its tls block"},
	{"tls: unknown certificate authority", "tls-ca-cert-file in the node's redis.conf must have the authority that signed redlockd's certificate (cert_file)"},
	{"no answer to the TLS handshake", "let its address lead to the port for TLS (tls-port in its redis.conf), or remove its tls block"},
	{"file of its tls block cannot be used", "correct the files of its tls block, or let the user of redlockd read them"},
}

// nodeFix returns the fix, unless the daemon's reason contains one.
func nodeFix(n client.Node) string {
	if slices.ContainsFunc(ownFixes, func(words string) bool { return strings.Contains(n.Reason, words) }) {
		return ""
	}
	for _, word := range []string{"NOPERM", "WRONGPASS", "NOAUTH"} {
		if strings.Contains(n.Reason, word) {
			return "give the user that redlockd logs in as the rights in NODES.md (ACL SETUSER), and username and password_file in the config"
		}
	}
	for _, fault := range tlsFixes {
		if strings.Contains(n.Reason, fault.words) {
			return fault.fix
		}
	}
	if n.State == "down" && strings.Contains(n.Reason, "no answer to a connection") {
		return "start its host, or let connections from this host through the firewall"
	}
	if n.State == "down" && (strings.Contains(n.Reason, "silent for") || strings.Contains(n.Reason, "no answer")) {
		return "it is reachable but does not answer in time: find out why (redis-cli --latency, SLOWLOG GET; its disk, if appendfsync is always; the network between); a restart costs a quarantine: do it only if Redis hangs for good"
	}
	if needsOtherNodes(n) {
		after := ""
		if n.Left > 0 { // the node may have lost locks that are held
			after = ", but only after its quarantine has passed"
		}
		return "time does not end it: bring up the nodes that are down, or an empty Redis in their place; if that is impossible, and fencing tokens may start again: redlock admit and its name" + after
	}
	return nodeFixes[n.State]
}

// ownFixes are words of reasons that say what to do.
var ownFixes = []string{"; fix: ", "connection refused: start Redis there", "raise node_timeout", "cannot be resolved: correct it", "runs at a wrong rate"}

// needsOtherNodes reports whether a quarantine does not end by time alone. While time is left, only
// the text of the reason tells.
func needsOtherNodes(n client.Node) bool {
	return n.State == "quarantined" && (n.Left == 0 || strings.Contains(n.Reason, "counters are to be copied from"))
}

// nodeFixes are the fixes for states whose reason does not contain one.
var nodeFixes = map[string]string{
	"down":        "start Redis there, and check address, firewall, password and certificate",
	"connecting":  "wait; if it stays so, check that Redis runs there, and the address and firewall",
	"quarantined": waitForQuarantine,
}

// thisMachine stands for all addresses of this host.
const thisMachine = "this machine"

// embedded is the address of a node inside the daemon.
const embedded = "embedded"

// checkSameHost finds nodes that fail together.
func (p *snapshot) checkSameHost() (findings []Finding) {
	for _, g := range describe.GroupNodes(p.status.Nodes, func(n client.Node) string { return machineOf(n.Address) }) {
		if f, found := p.sameMachine(g.Common, g.Names); found {
			findings = append(findings, f)
		}
	}
	if findings == nil {
		return []Finding{{"same-host", OK, "each node has a host of its own, by its address", ""}}
	}
	return findings
}

// sameMachine reports nodes on one machine; found is false if that is no problem.
func (p *snapshot) sameMachine(machine string, nodes []string) (f Finding, found bool) {
	who := strings.Join(nodes, ", ")
	rest := len(p.status.Nodes) - len(nodes)
	f = Finding{"same-host", Warning, "", "put each node on a machine of its own"}
	switch {
	case machine == embedded:
		f.text = "this is redlockd -dev: its nodes are in the process itself, and so are its locks"
		f.fix = "use a config with real nodes for locks that other hosts share"
	case machine == thisMachine:
		f.text = who + " can be reached only from this host: other hosts cannot share locks through them, or have different nodes under these names"
		f.fix = "addresses that every host can use"
	case len(nodes) < 2:
		return f, false
	case rest < p.status.Quorum:
		f.text = who + " are all on " + machine + ": when it fails, no lock can be taken"
	default:
		f.text = who + " are all on " + machine + " and fail together"
	}
	return f, true
}

// machineOf returns the host in a node's address.
func machineOf(address string) string {
	if address == embedded {
		return embedded
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	switch {
	case strings.HasPrefix(address, "unix:"), host == "localhost", ip != nil && ip.IsLoopback():
		return thisMachine
	case err != nil:
		return address
	case host == "":
		return thisMachine
	}
	return host
}

// checkLatency compares how long the nodes take with node_timeout, for reads and for writes: a vote is a
// write. The daemon reports milliseconds, rounded up.
func (p *snapshot) checkLatency() (findings []Finding) {
	most := p.hello.NodeTimeout
	var slowest time.Duration
	for _, n := range p.status.Nodes {
		if n.State == "down" { // its times are of earlier, and its own finding says more
			continue
		}
		took := max(n.RTT, n.Write)
		slowest = max(slowest, took)
		switch {
		case took <= most/2:
		case n.RTT <= most/2:
			findings = append(findings, Finding{"latency", Warning,
				fmt.Sprintf("%s took %v to write, and after %v (node_timeout) its vote does not count; reads took %v", n.Name, took, most, n.RTT),
				"raise node_timeout, or find out what delays its writes (its disk, if appendfsync is always)"})
		default:
			findings = append(findings, Finding{"latency", Warning,
				fmt.Sprintf("%s took %v to answer, and after %v (node_timeout) its vote does not count", n.Name, took, most),
				"find out what slows it down (redis-cli --latency, SLOWLOG GET), or raise node_timeout"})
		}
	}
	if findings != nil || slowest == 0 {
		return findings
	}
	return []Finding{{"latency", OK, fmt.Sprintf("nodes take up to %v of %v (node_timeout) to answer", slowest, most), ""}}
}

func (p *snapshot) checkWakeups() []Finding {
	names := describe.PollingNodes(p.status.Nodes)
	switch {
	case len(names) == 0:
		return nil
	case slices.ContainsFunc(p.status.Nodes, func(n client.Node) bool { return n.Address == embedded }):
		return nil // reported by same-host
	}
	return []Finding{{"wake-ups", Warning, strings.Join(names, ", ") + ": it does not call waiters, so they ask at random intervals",
		"Redis 7 itself, not a proxy, and a Redis user with the rights +publish +subscribe &redlockd:*"}}
}
