package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

// findings runs the checks of the daemon and its nodes.
func (p *snapshot) findings() []Finding {
	return slices.Concat(
		p.checkDaemon(), p.checkVersion(),
		p.checkTable(), p.checkReload(), p.checkQuorum(), p.checkChange(), p.checkNodeCount(), p.checkNodes(), p.checkPersistence(), p.checkSameHost(),
		p.checkLatency(), p.checkWakeups(),
		p.checkMaxTTL(), p.checkLeaseTime(),
		p.checkCounts(), p.checkNames(),
	)
}

// checkNames finds locks of this host whose names look alike. It finds nothing if all is well.
func (p *snapshot) checkNames() (findings []Finding) {
	var names []string
	for _, e := range p.entries {
		names = append(names, e.Names...)
	}
	for _, text := range lockname.LookAlikes(names) {
		findings = append(findings, Finding{"names", Warning, text, lockname.FixLookAlikes})
	}
	return findings
}

// slowAnswer is much longer than an answer from memory takes.
const slowAnswer = 250 * time.Millisecond

func (p *snapshot) checkDaemon() []Finding {
	text := fmt.Sprintf("redlockd answers in %s", output.PreciseDuration(p.answered))
	if p.answered > slowAnswer {
		return []Finding{{"daemon", Warning, text, "find out what keeps this host busy: a host that hangs loses its locks"}}
	}
	return []Finding{{"daemon", OK, text, ""}}
}

// checkVersion compares versions, if both are releases.
func (p *snapshot) checkVersion() []Finding {
	daemon, own := p.hello.Version, p.version
	if daemon == own || strings.HasPrefix(daemon, "devel") || strings.HasPrefix(own, "devel") {
		return []Finding{{"version", OK, fmt.Sprintf("redlockd is %s", daemon), ""}}
	}
	return []Finding{{"version", Warning, fmt.Sprintf("redlockd is %s, this command %s", daemon, own),
		"systemctl restart redlockd, which still runs the version that it was started with"}}
}

// tableFaults explain why the state file is not written, by the daemon's word for the reason.
var tableFaults = map[string]struct{ text, fix string }{
	"unwritten": {"its state file, beside its socket, cannot be written",
		"make room there (df); its log says whether that is enough (journalctl -u redlockd); no restart while locks are held"},
	"removed": {"its state file, beside its socket, was removed or truncated",
		"a restart creates a new one, and loses leases: do it when few locks are held (systemctl restart redlockd)"},
	"unopened": {"at its start its state file, beside its socket, could not be opened",
		"its log says why (journalctl -u redlockd): make room there (df), or let its user write there; and when few locks are held, systemctl restart redlockd"},
	"boot": {"it cannot read which boot this is (/proc/sys/kernel/random/boot_id)",
		"mount /proc where redlockd runs (a chroot, a container), and restart it when few locks are held"},
}

// checkTable reports a state file that is not written: if the process ends, the held locks are
// lost.
func (p *snapshot) checkTable() []Finding {
	if !p.status.Unnoted {
		return nil
	}
	why := tableFaults[p.status.Table]
	return []Finding{{"table", Bad, "a restart of redlockd would lose leases and waiters: " + why.text, why.fix}}
}

// checkReload reports a new config that the daemon does not use.
func (p *snapshot) checkReload() []Finding {
	if !p.status.Unreloaded {
		return nil
	}
	return []Finding{{"daemon", Warning, "redlockd did not reload its new config, and continues with the old one",
		"redlock status says why; then systemctl reload redlockd"}}
}

func (p *snapshot) checkMaxTTL() []Finding {
	own, fleet := p.hello.MaxTTL, p.status.MaxTTL
	if fleet <= own {
		return []Finding{{"max-ttl", OK, fmt.Sprintf("max_ttl is %v", own), ""}}
	}
	return []Finding{{"max-ttl", Warning, fmt.Sprintf("max_ttl is %v here, and %v on another host that uses these nodes (or was, recently): quarantines take that long", own, fleet),
		"the same max_ttl in the config of every host"}}
}

// extensions is how often a lease is extended during its ttl. tries is how many answers of nodes
// should fit between two extensions.
const (
	extensions = 3
	tries      = 3
)

func (p *snapshot) checkLeaseTime() []Finding {
	ttl, answer := p.hello.TTL, p.hello.NodeTimeout
	if least := extensions * tries * answer; ttl < least {
		return []Finding{{"lease-time", Warning, fmt.Sprintf("the default ttl is %v, and a node that hangs for %v (node_timeout) takes much of it", ttl, answer),
			fmt.Sprintf("lease.ttl of %v or more, or a smaller node_timeout", least)}}
	}
	return []Finding{{"lease-time", OK, fmt.Sprintf("the default ttl is %v", ttl), ""}}
}

// checkCounts warns of events that may have let two processes hold a lock.
func (p *snapshot) checkCounts() []Finding {
	count := p.status.Counts
	return []Finding{
		countFinding("clock-jumps", count["clock_jumps"], "no clock has jumped", "clocks jumped %s, of nodes or of this host; locks may have expired early there",
			"slew clocks instead of stepping them (chronyd with maxslewrate 5000, ntpd -x); redlockd's log says which clock it was"),
		countFinding("withdrawals", count["withdrawals"], "no running node has lost its vote", "a node that was running lost its vote %s, because its data had changed",
			"redlockd's log says which node and why; make sure that nobody flushes, restores or replicates over the nodes"),
		countFinding("fencing", count["counter_losses"], "no fencing counters were lost", "a quorum of nodes began without fencing counters %s: unless the nodes were new, earlier tokens may be larger",
			"if the nodes were new, nothing; else check that the stores that compare tokens accept the new ones. A restart of redlockd clears this"),
	}
}

// countFinding reports how often an event was counted: none is the text for 0.
func countFinding(check string, n int64, none, text, fix string) Finding {
	if n == 0 {
		return Finding{check, OK, none + " since redlockd was started", ""}
	}
	return Finding{check, Warning, fmt.Sprintf(text, output.Times(n)), fix}
}
