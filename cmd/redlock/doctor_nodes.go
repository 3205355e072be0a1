package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/client"
)

// findings are of the daemon and its nodes, as it tells of them.
func (p *patient) findings() []finding {
	return slices.Concat(
		p.checkDaemon(), p.checkVersion(),
		p.checkTable(), p.checkQuorum(), p.checkNodeCount(), p.checkNodes(), p.checkSameHost(),
		p.checkLatency(), p.checkWakeups(),
		p.checkMaxTTL(), p.checkLeaseTime(),
		p.checkCounts(),
	)
}

// slowAnswer is far more than an answer from memory takes.
const slowAnswer = 250 * time.Millisecond

func (p *patient) checkDaemon() []finding {
	text := fmt.Sprintf("redlockd answers in %s", fine(p.answered))
	if p.answered > slowAnswer {
		return []finding{{"daemon", warning, text, "find out what keeps this host busy: a host that stands still loses its locks"}}
	}
	return []finding{{"daemon", ok, text, ""}}
}

// checkVersion says nothing of what is no release.
func (p *patient) checkVersion() []finding {
	daemon, own := p.hello.Version, buildVersion()
	if daemon == own || strings.HasPrefix(daemon, "devel") || strings.HasPrefix(own, "devel") {
		return []finding{{"version", ok, fmt.Sprintf("redlockd is %s", daemon), ""}}
	}
	return []finding{{"version", warning, fmt.Sprintf("redlockd is %s, this command %s", daemon, own),
		"systemctl restart redlockd, which keeps running the version that it was started with"}}
}

// checkQuorum goes by numbers: the daemon's text tells more, which other checks find.
func (p *patient) checkQuorum() []finding {
	s := p.status
	text := readiness(s)
	switch {
	case s.Spare < 0 && s.Left > 0 && !slices.ContainsFunc(s.Nodes, wantsOthers):
		return []finding{{"quorum", bad, fmt.Sprintf("%s: no lock can be taken for %s, until quarantines are over", text, short(s.Left)),
			"wait; where the nodes are brand-new: redlock admit all"}}
	case s.Spare < 0:
		return []finding{{"quorum", bad, text + ": no lock can be taken", "what is said of the nodes below"}}
	case s.Spare == 0 && len(s.Nodes) > 2:
		return []finding{{"quorum", warning, text + ": no further node may fail", "what is said of the nodes below"}}
	case s.Spare == 0:
		return []finding{{"quorum", ok, text + ": none may fail", ""}}
	}
	return []finding{{"quorum", ok, fmt.Sprintf("%s: %d more may fail", text, s.Spare), ""}}
}

// tableFaults are why nothing is noted, by the daemon's words for it.
var tableFaults = map[string]struct{ text, fix string }{
	"unwritten": {"its table, beside its socket, cannot be written",
		"make room there (df); its log says whether that is enough (journalctl -u redlockd); no restart while locks are held"},
	"removed": {"files of its table, beside its socket, were removed or cut short by somebody",
		"a restart begins a new one, and loses what is held: when little is (systemctl restart redlockd)"},
	"unopened": {"when it was started its table, beside its socket, could not be begun",
		"its log says why (journalctl -u redlockd): make room there (df), or let its user write there; and when little is held, systemctl restart redlockd"},
	"boot": {"it cannot read which boot this is (/proc/sys/kernel/random/boot_id)",
		"have /proc where redlockd runs (a chroot, a container), and when little is held, start it again"},
}

// checkTable: what is not noted is lost with the process.
func (p *patient) checkTable() []finding {
	if !p.status.Unnoted {
		return nil
	}
	why, isTold := tableFaults[p.status.Table]
	if !isTold {
		why = tableFaults["unwritten"]
	}
	return []finding{{"table", bad, "a restart of redlockd would lose what is held and waited for: " + why.text, why.fix}}
}

func readiness(s *client.Status) string {
	switch {
	case len(s.Nodes) != 1:
		return fmt.Sprintf("%d of %d nodes are ready, and %d are needed", s.Quorum+s.Spare, len(s.Nodes), s.Quorum)
	case ready(s):
		return "the only node is ready"
	}
	return "the only node is not ready"
}

// checkNodeCount: of 2 nodes one more than of 1 must work, and so on.
func (p *patient) checkNodeCount() []finding {
	switch n := len(p.status.Nodes); {
	case n == 1:
		return []finding{{"node-count", warning, "there is one node: without it no lock can be taken", "3 nodes bear the loss of one, 5 of two: see Changing the nodes in OPERATING.md"}}
	case n%2 == 0:
		return []finding{{"node-count", warning, fmt.Sprintf("%d nodes bear no more failures than %d", n, n-1), "one node more, or one less: see Changing the nodes in OPERATING.md"}}
	default:
		return []finding{{"node-count", ok, fmt.Sprintf("%d nodes bear the failure of %d", n, n/2), ""}}
	}
}

// checkNodes: a node that has no vote is no danger, as long as a quorum has. Its
// reason says what to do about it. Several nodes often have the same.
func (p *patient) checkNodes() (findings []finding) {
	for _, g := range grouped(p.status.Nodes, howItIs) {
		f := finding{"node", ok, strings.Join(g.names, ", ") + ": " + g.what, ""}
		if g.first.State != "ready" || g.first.Reason != "" {
			f.result, f.fix = warning, nodeFix(g.first)
		}
		findings = append(findings, f)
	}
	return findings
}

// howItIs is what nodes have in common that are one finding.
func howItIs(n client.Node) string {
	if n.Reason == "" {
		return n.State
	}
	return n.State + ": " + n.Reason
}

func nodeFix(n client.Node) string {
	for _, word := range []string{"NOPERM", "WRONGPASS", "NOAUTH"} {
		if strings.Contains(n.Reason, word) {
			return "give the user that redlockd logs in as the rights in OPERATING.md (ACL SETUSER), and username and password_file in the config"
		}
	}
	if wantsOthers(n) {
		return "time does not end it: bring up the nodes that are down, or an empty Redis in their place; where none can be, and fencing tokens may begin anew: redlock admit and its name" + onceOver(n)
	}
	return nodeFixes[n.State]
}

// wantsOthers tells a quarantine which time alone does not end. While there is time left
// nothing but its text tells.
func wantsOthers(n client.Node) bool {
	return n.State == "quarantined" && (n.Left == 0 || strings.Contains(n.Reason, "counters are to be copied from"))
}

// onceOver: before that it may have forgotten locks that are held.
func onceOver(n client.Node) string {
	if n.Left > 0 {
		return ", when its time is over and not before"
	}
	return ""
}

// nodeFixes are for states whose reason does not say what to do.
var nodeFixes = map[string]string{
	"down":        "start Redis there, and see that nothing is in the way (address, firewall, password, certificate)",
	"connecting":  "wait; if it stays so, see that Redis runs there and nothing is in the way",
	"quarantined": "wait (redlock status tells how long); where it is brand-new: redlock admit and its name",
}

// thisMachine stands for all addresses that are this host's own.
const thisMachine = "this machine"

// embedded is the address of a node that is in the daemon itself.
const embedded = "embedded"

// checkSameHost finds nodes that fail together.
func (p *patient) checkSameHost() (findings []finding) {
	for _, g := range grouped(p.status.Nodes, func(n client.Node) string { return machineOf(n.Address) }) {
		if f, found := p.together(g.what, g.names); found {
			findings = append(findings, f)
		}
	}
	if findings == nil {
		return []finding{{"same-host", ok, "each node has a host of its own, going by its address", ""}}
	}
	return findings
}

// together is the finding that nodes are on one machine, if it is one.
func (p *patient) together(machine string, nodes []string) (f finding, found bool) {
	who := strings.Join(nodes, ", ")
	rest := len(p.status.Nodes) - len(nodes)
	f = finding{"same-host", warning, "", "put each node on a machine of its own"}
	switch {
	case machine == embedded:
		f.text = "this is redlockd -dev: its nodes are in the process itself, and locks mean nothing beyond it"
		f.fix = "a config with real nodes, where locks are to mean something"
	case machine == thisMachine:
		f.text = who + " can be reached from this host alone: others cannot share locks through them, or have nodes of their own under these names"
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

// machineOf is the host of a node's address.
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

// checkLatency holds the nodes' round trips against what they may take. The
// daemon tells milliseconds, rounded up.
func (p *patient) checkLatency() (findings []finding) {
	most := p.hello.NodeTimeout
	var slowest time.Duration
	for _, n := range p.status.Nodes {
		if slowest = max(slowest, n.RTT); most > 0 && n.RTT > most/2 {
			findings = append(findings, finding{"latency", warning,
				fmt.Sprintf("%s took %v to answer, and after %v (node_timeout) it has no vote", n.Name, n.RTT, most),
				"find out what slows it down (redis-cli --latency, SLOWLOG GET), or raise node_timeout"})
		}
	}
	switch {
	case findings != nil || slowest == 0:
		return findings
	case most == 0:
		return []finding{{"latency", ok, fmt.Sprintf("nodes take up to %v to answer; this redlockd does not tell its node_timeout", slowest), ""}}
	}
	return []finding{{"latency", ok, fmt.Sprintf("nodes take up to %v of %v (node_timeout) to answer", slowest, most), ""}}
}

func (p *patient) checkWakeups() []finding {
	names := polling(p.status.Nodes)
	switch {
	case len(names) == 0:
		return nil
	case slices.ContainsFunc(p.status.Nodes, func(n client.Node) bool { return n.Address == embedded }):
		return nil // said by same-host: nothing can be done about it
	}
	return []finding{{"wake-ups", warning, strings.Join(names, ", ") + ": CLIENT TRACKING does not work there, so waiters ask at random intervals",
		"Redis 7 itself, not a proxy, and a user who may do CLIENT TRACKING and CLIENT CACHING"}}
}

func (p *patient) checkMaxTTL() []finding {
	own, fleet := p.hello.MaxTTL, p.status.MaxTTL
	if fleet <= own {
		return []finding{{"max-ttl", ok, fmt.Sprintf("max_ttl is %v", own), ""}}
	}
	return []finding{{"max-ttl", warning, fmt.Sprintf("max_ttl is %v here, and %v on another host that uses these nodes (or was, lately): so long take quarantines", own, fleet),
		"the same max_ttl in the config of every host"}}
}

// extensions is how often a lease is extended in its time, and tries is how many
// answers of nodes should fit between two extensions.
const (
	extensions = 3
	tries      = 3
)

func (p *patient) checkLeaseTime() []finding {
	ttl, answer := p.hello.TTL, p.hello.NodeTimeout
	if least := extensions * tries * answer; ttl < least {
		return []finding{{"lease-time", warning, fmt.Sprintf("leases take %v unless asked otherwise, which a node that hangs for %v (node_timeout) brings near its end", ttl, answer),
			fmt.Sprintf("lease.ttl of %v or more, or a smaller node_timeout", least)}}
	}
	return []finding{{"lease-time", ok, fmt.Sprintf("leases take %v unless asked otherwise", ttl), ""}}
}

// checkCounts: what has happened once may have been the reason why two held a lock.
func (p *patient) checkCounts() []finding {
	count := p.status.Counts
	return []finding{
		counted("clock-jumps", count["clock_jumps"], "clocks jumped %s, of nodes or of this host; locks may have expired early there",
			"slew clocks instead of stepping them (chronyd with maxslewrate 5000, ntpd -x); redlockd's log says whose it was"),
		counted("withdrawals", count["withdrawals"], "a node that was running lost its vote %s, as its data were not what they had been",
			"redlockd's log says which node and why; see to it that nobody flushes, restores or replicates over the nodes"),
		counted("fencing", count["counter_losses"], "a quorum of nodes began without fencing counters %s: unless the nodes were new, tokens of before may be larger",
			"where the nodes were new, nothing; where they were not, and something compares tokens, see that it takes the new ones. A restart of redlockd has this forgotten"),
	}
}

func counted(check string, n int64, text, fix string) finding {
	if n == 0 {
		return finding{check, ok, "none since redlockd was started", ""}
	}
	return finding{check, warning, fmt.Sprintf(text, times(n)), fix}
}
