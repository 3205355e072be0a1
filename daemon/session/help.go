package session

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// protocolVersion is what HELLO shows. Words and codes never change within a version.
const protocolVersion = "1"

func (s *session) hello(call *server.Call) server.Work {
	if len(call.Words) > 0 && call.Words[0] != protocolVersion {
		return s.refuse(call, badOption("HELLO %s: this daemon speaks version %s of the protocol", call.Words[0], protocolVersion))
	}
	cfg := s.host.Cfg
	return reply(call, call.OK().Str("protocol", protocolVersion).Str("version", s.host.version).
		Ms("ttl", cfg.Lease.TTL).Ms("min_ttl", redlock.MinTTL).Ms("max_ttl", cfg.Quorum.MaxTTL).
		Ms("node_timeout", cfg.Quorum.NodeTimeout).Ms("clock", s.host.Clock()).
		Int("max_line", ipc.MaxLine).Int("max_name", ipc.MaxName))
}

// helpLine is one verb of HELP.
type helpLine struct {
	verb  ipc.Verb
	usage string
	does  []string
}

var helpLines = []helpLine{
	{ipc.VerbLock, "LOCK name[,name...] [ttl=] [wait=forever] [mode=shared] [slots=K] [hold=conn|pid|ttl] [pid=] [max=] [min=] [guard=] [linger=] [beat=] [note=] [owner=] [id=] [reentrant=yes]", []string{
		"takes the lock, or waits for it, and extends it while this connection is open",
		"ttl=: lease time: how soon others get the lock if this host dies; from min_ttl= to max_ttl= of HELLO; default: lease.ttl of the config (ttl= of HELLO)",
		"wait=: how long to wait: 0, a duration (250ms, 10s, 2m; a bare number is ms), or forever (the default)",
		"several names, at most 100 (3,000 bytes): all of them or none; UNLOCK and CHECK need the same list",
		"mode=shared: held together with others that use mode=shared (readers), but not with one that does not (a writer); no client overtakes a waiting one",
		"slots=K: K holders at a time, at most 1000; slot= of the answer is the number of the slot, from 1 to K; all clients must use the same K",
		"hold=: until when it is held: conn, until the connection closes (the default); pid, until a process ends (pid=, or the client itself); ttl, until the ttl ends",
		"beat=: the lock is lost if no BEAT comes for this time, at least 100 ms; default: no BEAT is needed",
		"max=: the longest time that the lock is held, at least 100 ms, at most lease.max_hold of the config",
		"min=: how long the lock stays taken from the grant on, even if UNLOCK, or the end of the connection or process, comes earlier; at most max= and lease.max_hold; not with hold=ttl or beat=",
		"guard=: how long before the deadline LOST is sent, at most half of ttl= and of max=; default: a fifth of the smaller one",
		"linger=: how long the lock stays taken after its client died, at most max_ttl (UNLOCK releases immediately; no effect with hold=ttl); default: lease.linger of the config",
		"note=: a text for people, at most 200 bytes: LIST shows it, and so does WHO if the lock is held through this daemon",
		"fence= of the answer (fencing token) grows with every grant: the storage should refuse a smaller one than it has seen",
		"owner=: the part of your program that asks, if several share this connection; id=: a random word: a repeated LOCK with the same id= gets the same grant, after a restart also on another connection; each 1 to 64 bytes",
		"reentrant=yes: another LOCK by the same owner counts up (count=), and as many UNLOCKs release it",
	}},
	{ipc.VerbTry, "TRY name[,name...] [options of LOCK except wait=]", []string{"LOCK with wait=0"}},
	{ipc.VerbUnlock, "UNLOCK name[,name...] [owner=] [wait=] | UNLOCK lease=ID [wait=] | UNLOCK [name] pid=N [wait=]", []string{
		"releases the lock; pending=1: too few nodes have answered yet, and the daemon repeats the release",
		"wait=: how long to wait for the nodes, at most node_timeout (the default); wait=0 answers when the release is in the state file",
		"kept=: the lock stays taken for this time (min= of its LOCK), but nobody holds it",
		"count=: the lock is still held: this many LOCKs with reentrant=yes are left",
	}},
	{ipc.VerbCancel, "CANCEL tag", []string{"cancels the request with that tag, which is answered ERR CANCELLED, or OK if it was already done; CANCEL is answered OK even if there is no such request"}},
	{ipc.VerbAdmit, "ADMIT node|all", []string{"ends a quarantine early: for new nodes, on which no lock can be held (for root and the daemon's user or, with access rules, users with admin for every lock)"}},
	{ipc.VerbNodes, "NODES [commit|undo]", []string{
		"shows how far a change of the nodes is, which hosts use them, and what to do next (for the users that may ADMIT all)",
		"commit: from now on, hosts with the old list get no vote; refused while such a host is at work. undo: ends a change that is not committed, on a host with the old list",
		"step= of a node: begun, committed or done; list= of a host: old, joint, new or other; seen=: how long ago it was seen",
	}},
	{ipc.VerbExtend, "EXTEND name[,name...] [ttl=] [mode=shared] [owner=] | EXTEND lease=ID [ttl=] [mode=shared] | EXTEND [name] pid=N [ttl=] [mode=shared]", []string{
		"extends the lease now: for leases with hold=ttl, or to change the ttl; default of ttl=: the ttl that it has",
		"a smaller ttl= does not move the deadline back: it applies from the next extension on",
		"mode=shared: makes an exclusive lease a shared one, without a gap; stop writing first",
	}},
	{ipc.VerbCheck, "CHECK name[,name...] [owner=] | CHECK lease=ID | CHECK [name] pid=N", []string{
		"says whether the lock is still held, and for how long; it asks no node",
		"pid=: the process that holds it (hold=pid); works from any connection of the same user",
	}},
	{ipc.VerbResume, "RESUME name[,name...] lease=ID [owner=]", []string{
		"continues a lease on this connection, after BYE, or after another connection ended but not the lease; OK when a quorum has confirmed it",
		"only for the user that took it; owner= as in its LOCK",
		"count=: with reentrant=yes: this many UNLOCKs release it",
	}},
	{ipc.VerbBeat, "BEAT name[,name...] [owner=] | BEAT lease=ID | BEAT [name] pid=N", []string{"reports that the work continues, for locks with beat="}},
	{ipc.VerbWho, "WHO name", []string{
		"asks the nodes who holds it: a line for each holder (mode=shared; slots= and slot=); n=0: nobody",
		"waiting=yes: nobody holds it, and the nodes keep it for this client, which waits and is next",
		"note=: of a holder through this daemon, if you may see it",
		"kept=: it was taken through this daemon with min=, and stays taken for at least this time",
		"of OK: waiting_hosts=: the hosts that wait, in the order in which they get the lock; waiting_ms=: for how long each has waited; position=: the position of this host among them",
	}},
	{ipc.VerbList, "LIST [all=yes] [from=]", []string{
		"shows the leases and waiters of this daemon that you may see",
		"state=kept: nobody holds it, but it stays taken for kept= (min=)",
		"all=yes: the locks of all hosts that you may inspect, as the nodes store them, in pages; next= is the from= of the next page, and is missing from the last one",
		"a lock that is held from the first page to the last is on at least one page, and usually on several: the same lock= is the same lock",
		"wanted=yes: a client waits for it; waiting_hosts=: the hosts that wait, in the order in which they get the lock; waiting_ms=: for how long each has waited",
		"state=turn, with all=yes: nobody holds it, and the nodes keep it for this client, which waits and is next",
		"state=lost: the lease is lost, but for at most ttl= others cannot get all of its names",
	}},
	{ipc.VerbStatus, "STATUS", []string{
		"shows the nodes; spare=: how many more may fail",
		"left=: no lock can be taken for this time, because too many nodes are in quarantine: new or restarted nodes may have forgotten locks",
	}},
	{ipc.VerbForce, "FORCE name", []string{
		"revokes the lock from all holders (n=), which may still be working (for root and the daemon's user or, with access rules, users with admin for it)",
		"also=: other names of the same LOCK, which are lost as well: nobody can get them until their client sends UNLOCK or ends, or until its deadline",
	}},
	{ipc.VerbPing, "PING", []string{"OK"}},
	{ipc.VerbHello, "HELLO [1]", []string{
		"shows versions and limits",
		"a line has at most 4096 bytes (max_line=), and must end within 30 s after it began: otherwise ERR SYNTAX and BYE follow, and the connection ends",
	}},
	{ipc.VerbHelp, "HELP [verb]", []string{"lists the verbs, or explains one"}},
	{ipc.VerbQuit, "QUIT", []string{"answers earlier requests, ignores later ones, and closes the connection; locks with hold=conn are released"}},
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
	return reply(call, call.OK().Int("n", int64(n)))
}

// VerbHelp is the help text of a verb.
type VerbHelp struct {
	Usage string
	Does  []string // one string a line
}

// Help returns the help text of all verbs, in the order of the protocol. The manual is made from
// it.
func Help() (verbs []VerbHelp) {
	for _, line := range helpLines {
		verbs = append(verbs, VerbHelp{Usage: line.usage, Does: slices.Clone(line.does)})
	}
	return verbs
}
