package session

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// protocolVersion is what HELLO speaks of. Words and codes never change within it.
const protocolVersion = "1"

func (s *session) hello(call *server.Call) server.Work {
	if len(call.Words) > 0 && call.Words[0] != protocolVersion {
		return s.refuse(call, badOption("HELLO %s: this daemon speaks version %s of the protocol", call.Words[0], protocolVersion))
	}
	cfg := s.host.Cfg
	return reply(call, ok(call).Str("protocol", protocolVersion).Str("version", s.host.version).
		Ms("ttl", cfg.Lease.TTL).Ms("min_ttl", redlock.MinTTL).Ms("max_ttl", cfg.Quorum.MaxTTL).
		Ms("node_timeout", cfg.Quorum.NodeTimeout).
		Int("max_line", ipc.MaxLine).Int("max_name", ipc.MaxName))
}

// helpLine is one verb of HELP.
type helpLine struct {
	verb  ipc.Verb
	usage string
	does  []string
}

var helpLines = []helpLine{
	{ipc.VerbLock, "LOCK name[,name...] [ttl=] [wait=forever] [mode=shared] [slots=K] [hold=conn|pid|ttl] [pid=] [max=] [min=] [guard=] [linger=] [retain=] [beat=] [note=] [owner=] [id=] [reentrant=yes]", []string{
		"takes the lock, or waits for it; keeps it extended while this connection is open",
		"ttl=: lease time, and how soon others get the lock if this host dies, min_ttl to max_ttl of HELLO; without it the config's lease.ttl (ttl= of HELLO)",
		"wait=: 0, a duration (250ms, 10s, 2m; a bare number is ms), or forever",
		"several names, at most 100 (3,000 bytes): all of them or none; the list, as it is written here, is what UNLOCK and CHECK want",
		"mode=shared: together with others who say so (readers), and not with those who do not (a writer); who waits is not overtaken",
		"slots=K: for so many at a time, at most 1000; slot= of the answer is which of 1 to K it is; all must say the same K",
		"hold=: conn, until the connection closes, as without hold=; pid, until a process ends (pid=, or the one that asks); or ttl, for just that long",
		"beat=: lost if no BEAT comes for so long, at least 100 ms; without it none is wanted",
		"max=: longest total holding time, at least 100 ms, which can only lower the config's lease.max_hold",
		"min=: how long the lock stays taken from the grant on, however its holder ends: UNLOCK, its connection, its process; at most max= and lease.max_hold, not with hold=ttl and beat=",
		"guard=: how long before the deadline LOST is said, at most half of ttl= and of max=; without it a fifth of the smaller one",
		"linger=: how long the lock stays taken after its client dies, at most max_ttl (UNLOCK is immediate, and with hold=ttl it has no effect); without it the config's lease.linger",
		"retain=: how long this host keeps the lock after its holder has ended, for its next client, unless another host waits: at most 1s; exclusive, hold=conn or hold=pid; without it the config's lease.retain",
		"note=: a text for people, at most 200 bytes: LIST shows it, and WHO where the lock is held through this daemon",
		"fence= of the answer grows with every grant: have what you write to refuse a smaller one than it has seen",
		"owner=: who on this connection asks; id=: a random word: a repeat with the same one gets the same grant, after a restart also on another connection; 1 to 64 bytes",
		"reentrant=yes: a further LOCK of the same owner counts up (count=), and as many UNLOCKs release",
	}},
	{ipc.VerbTry, "TRY name[,name...] [options of LOCK but wait=]", []string{"LOCK with wait=0"}},
	{ipc.VerbUnlock, "UNLOCK name[,name...] [owner=] [wait=] | UNLOCK lease=ID [wait=] | UNLOCK [name] pid=N [wait=]", []string{
		"releases; pending=1: too few nodes answered yet, it is repeated",
		"wait=: how long to wait for the nodes, at most node_timeout, the default; wait=0 answers when the release is written down",
		"kept=: it stays taken for so long (min= of its LOCK), but nobody holds it any more",
		"count=: not yet, as so many LOCKs with reentrant=yes are left",
	}},
	{ipc.VerbCancel, "CANCEL tag", []string{"gives up the request with that tag: it answers ERR CANCELLED, or its OK; OK also where there is none (any more)"}},
	{ipc.VerbAdmit, "ADMIT node|all", []string{"ends a quarantine early: for brand-new nodes, on which no lock can be held (for root and the daemon's user or, with access rules, who has admin for every lock)"}},
	{ipc.VerbExtend, "EXTEND name[,name...] [ttl=] [mode=shared] [owner=] | EXTEND lease=ID [ttl=] [mode=shared] | EXTEND [name] pid=N [ttl=] [mode=shared]", []string{
		"extends now: for hold=ttl leases, or to change the ttl; without ttl= by the one it has",
		"a smaller ttl= does not shorten the lease now, as no deadline is moved back: it counts from then on",
		"mode=shared: makes an exclusive lease a shared one, without a gap; stop writing before",
	}},
	{ipc.VerbCheck, "CHECK name[,name...] [owner=] | CHECK lease=ID | CHECK [name] pid=N", []string{
		"is it still mine, and for how long: from memory",
		"pid=: of the process that holds it (hold=pid), from any connection of the same user",
	}},
	{ipc.VerbResume, "RESUME name[,name...] lease=ID [owner=]", []string{
		"goes on with a lease on this connection: after BYE, or where another one ended and the lease has not; OK once a quorum has confirmed it",
		"for the user that took it; owner= as its LOCK said it",
		"count=: of reentrant=yes, taken over with it: as many UNLOCKs release",
	}},
	{ipc.VerbBeat, "BEAT name[,name...] [owner=] | BEAT lease=ID | BEAT [name] pid=N", []string{"a sign of life, for locks with beat="}},
	{ipc.VerbWho, "WHO name", []string{
		"who holds it, asked of the nodes, a line each (mode=shared; slots= and slot=); n=0: nobody",
		"waiting=yes: nobody holds it, and it is kept for him, who has waited and is next",
		"note=: of who holds it through this daemon, and you may see it",
		"kept=: taken through this daemon with min=: it stays taken for so long at least",
		"retained=: nobody holds it; this host retains it for its next client, for so long at most (retain=)",
	}},
	{ipc.VerbList, "LIST [all=yes] [from=]", []string{
		"leases and waiters of this daemon, as far as you may see them",
		"state=kept: nobody holds it any more, and it stays taken for kept= (min=)",
		"state=retained: nobody holds it, and this host has it for its next client, for retained= at most (retain=)",
		"all=yes: the locks of all hosts that you may inspect, as the nodes store them, in pages; next= is the from= of the next page, and is missing from the last one",
		"a lock that is held all the time is on at least one page, and on several as a rule: the same lock= is the same lock",
		"wanted=yes: a client waits for it; waiting_hosts=: the hosts of these clients, as far as the nodes and this daemon know them",
		"state=lost: it is over, but others cannot have it, or not all of its names, for ttl= at most",
	}},
	{ipc.VerbStatus, "STATUS", []string{
		"the nodes; spare: how many more may fail",
		"left: no lock for so long yet, as nodes are in quarantine: new or restarted, they may have forgotten locks",
	}},
	{ipc.VerbForce, "FORCE name", []string{
		"takes the lock from all who hold it (n=), who may still be at work (for root and the daemon's user or, with access rules, who has admin for it)",
		"also=: other names of the same LOCK, lost as well: nobody can have them before their client says UNLOCK or is gone, or until its deadline",
	}},
	{ipc.VerbPing, "PING", []string{"OK"}},
	{ipc.VerbHello, "HELLO [1]", []string{
		"versions and limits",
		"a line is at most 4096 bytes (max_line=), and ends within 30 s of its beginning: otherwise the connection does, with ERR SYNTAX and BYE",
	}},
	{ipc.VerbHelp, "HELP [verb]", []string{"this"}},
	{ipc.VerbQuit, "QUIT", []string{"answers what came before, begins nothing that comes after, and closes; locks with hold=conn are released"}},
}

// help lists the verbs, or explains one.
func (s *session) help(call *server.Call) server.Work {
	n := 0
	for _, h := range helpLines {
		if len(call.Words) > 0 && !strings.EqualFold(call.Words[0], h.verb.String()) {
			continue
		}
		lines := []string{h.usage}
		if len(call.Words) > 0 {
			lines = append(lines, h.does...)
		}
		for _, line := range lines {
			call.Line(new(ipc.Response).Line(call.Tag).Say(line))
			n++
		}
	}
	if n == 0 {
		return s.refuse(call, fmt.Errorf("HELP %s: %w; HELP alone lists the verbs", call.Words[0], errVerb))
	}
	return reply(call, ok(call).Int("n", int64(n)))
}

// VerbHelp is what HELP says of a verb.
type VerbHelp struct {
	Usage string
	Does  []string // a line each
}

// Help is what HELP says of all verbs, in the order of the protocol: for the manual.
func Help() (verbs []VerbHelp) {
	for _, line := range helpLines {
		verbs = append(verbs, VerbHelp{Usage: line.usage, Does: slices.Clone(line.does)})
	}
	return verbs
}
