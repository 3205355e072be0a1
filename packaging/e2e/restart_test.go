//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// underLoad ends the daemon repeatedly in every way, while 200 clients hold locks and wait for
// them. No connection breaks, no lease is lost, no lock is held twice, and requests are only
// delayed a little.
func (i *installation) underLoad(newer string) {
	i.t.Helper()
	l := startLoad(i.t, i.host.socket)
	l.through("restart with others coming", 1, func() { i.restart("systemctl", "restart", "redlockd") })
	for range rounds(3, 100) {
		l.through("restart", 1, func() { i.run("systemctl", "restart", "redlockd") })
	}
	for range rounds(3, 50) {
		l.through("kill -9", 1, func() { i.signal("KILL") })
	}
	i.upgrade(l, newer)
	l.through("hang", 1, i.hang)
	l.end()
	i.judge(l)
}

// judge checks the pause. The documents promise a second, on an idle machine.
func (i *installation) judge(l *load) {
	i.t.Helper()
	const promised, busy = time.Second, 50 * time.Millisecond
	bound := promised
	if l.quiet() > busy {
		bound *= 10
		i.t.Logf("this machine is busy: pauses are held to %v", bound)
	}
	for _, what := range []string{"restart", "kill -9"} {
		if p99 := l.pause(what); p99 >= bound {
			i.t.Errorf("%s: p99 of the pauses is %v, want less than %v", what, p99, bound)
		}
	}
	l.pause("upgrade")
	l.pause("hang")
}

// signal sends a signal to the daemon.
func (i *installation) signal(name string) {
	i.t.Helper()
	i.run("systemctl", "kill", "--signal="+name, "--kill-whom=main", "redlockd")
}

// startWithNodesDown: if a daemon is restarted while most nodes hang, it keeps the connections. It
// continues the leases as soon as the nodes answer again.
func (i *installation) startWithNodesDown(cluster *redlocktest.Cluster) {
	i.t.Helper()
	holder := i.host.nc()
	granted := holder.expect("LOCK down ttl=30s guard=1s", "OK lock=down")
	stop(i.t, cluster.Servers[2:])
	defer cont(i.t, cluster.Servers[2:])
	i.signal("KILL")
	holder.comes("BACK")
	holder.expect("PING", "OK")
	holder.expect("LOCK other wait=0", "ERR NOQUORUM lock=other")
	i.journalHas("no quorum yet")
	i.warnsOf("no quorum yet")
	cont(i.t, cluster.Servers[2:])
	waitFor(i.t, "the lease is extended", func() bool {
		return number(i.t, sameLease(holder, "CHECK down", granted), "ttl") > 28_000
	})
	holder.expect("UNLOCK down", "OK lock=down")
}

// sameLease checks that an answer is about a lease that was granted before.
func sameLease(n *terminal, request, granted string) string {
	n.t.Helper()
	answer := n.expect(request, "OK lock=")
	same(n.t, answer, granted)
	return answer
}

func (i *installation) journalHas(want string) {
	i.t.Helper()
	waitFor(i.t, "the journal says "+want, func() bool { return strings.Contains(i.journal("redlockd"), want) })
}

// warnsOf checks that the journal has that text as a warning, and no text of lower priority in that
// list.
func (i *installation) warnsOf(want string) {
	i.t.Helper()
	warnings := i.run("journalctl", "-b", "--no-pager", "-o", "cat", "-p", "warning", "-u", "redlockd")
	if !strings.Contains(warnings, "[WARN]  "+want) || strings.Contains(warnings, "[INFO]") {
		i.t.Errorf("journalctl -p warning has\n%s\nwant a line with %q, and none with [INFO]", warnings, want)
	}
}

// fullStore: if there are more connections than the service manager keeps, those with leases are
// kept. The other clients are told how long they can resume their leases.
func (i *installation) fullStore() {
	i.t.Helper()
	const most, idle, holding = 20, 30, 24
	i.dropIn("[Service]", "FileDescriptorStoreMax=21", "Environment=FDSTORE=21") // one for the daemon's mark
	defer i.dropIn()
	var idlers, holders []*terminal
	granted := map[*terminal]string{}
	for range idle {
		idlers = append(idlers, i.host.nc())
	}
	for _, n := range idlers {
		n.expect("PING", "OK")
	}
	for k := range holding {
		n := i.host.nc()
		lock := "full-" + string(rune('a'+k))
		granted[n] = n.expect("LOCK "+lock+" ttl=30s", "OK lock="+lock)
		holders = append(holders, n)
	}
	i.run("systemctl", "restart", "redlockd")

	kept, left := split(holders)
	if len(kept) < most-2 || len(kept) > most { // clients that have just disconnected may take one or two of the places
		i.t.Errorf("%d connections with leases were kept, want %d, which the service manager has places for", len(kept), most)
	}
	for n := range kept {
		sameLease(n, "CHECK "+field(granted[n], "lock"), granted[n])
	}
	for n, bye := range left {
		if resume := number(i.t, bye, "resume"); resume <= 0 || resume > 30_000 {
			i.t.Errorf("%s: want up to 30000 for a lease that goes on", bye)
		}
		sameLease(i.host.nc(), "RESUME "+field(granted[n], "lock")+" lease="+field(granted[n], "lease"), granted[n])
	}
	keptIdle, leftIdle := split(idlers)
	if len(kept)+len(keptIdle) > most {
		i.t.Errorf("%d connections were kept, want %d at most", len(kept)+len(keptIdle), most)
	}
	for _, bye := range leftIdle {
		if field(bye, "resume") != "0" {
			i.t.Errorf("%s: want resume=0 where nothing is held", bye)
		}
	}
}

// dropIn changes the service with lines of a unit file, or removes that change, and restarts it.
func (i *installation) dropIn(lines ...string) {
	i.t.Helper()
	const dir = "/etc/systemd/system/redlockd.service.d"
	i.run("rm", "-rf", dir)
	if len(lines) > 0 {
		i.run("mkdir", dir)
		writeFile(i.t, i.path(dir+"/test.conf"), strings.Join(append(lines, ""), "\n"))
	}
	i.run("systemctl", "daemon-reload")
	i.run("systemctl", "restart", "redlockd")
}

// split waits for the restart's line on each connection: BACK, or BYE and the end.
func split(all []*terminal) (kept, left map[*terminal]string) {
	kept, left = map[*terminal]string{}, map[*terminal]string{}
	for _, n := range all {
		n.t.Helper()
		switch line := n.line(); {
		case strings.HasPrefix(line, "BACK"):
			kept[n] = line
		case strings.HasPrefix(line, "BYE resume="):
			left[n] = line
			if more, open := n.next(n.stdout); open {
				n.t.Errorf("after %s: got %s, want the end", line, more)
			}
		default:
			n.t.Errorf("got %s, want BACK or BYE", line)
		}
	}
	return kept, left
}

// stopped: if the service is stopped, systemd closes the connections that it keeps. The next daemon
// does not release their leases, because their clients live and can resume them.
func (i *installation) stopped() {
	i.t.Helper()
	holder := i.host.nc()
	granted := holder.expect("LOCK stopped ttl=30s", "OK lock=stopped")
	waitFor(i.t, "connections are stored, and the mark", func() bool {
		status := holder.lines("STATUS")
		want := number(i.t, status[len(status)-1], "connections") + 1
		return i.property("redlockd", "NFileDescriptorStore") == strconv.FormatInt(want, 10)
	})
	i.run("systemctl", "stop", "redlockd")
	if line, open := holder.next(holder.stdout); open {
		i.t.Errorf("got %s, want the end of the connection", line)
	}
	n := i.host.nc()
	n.expect("LOCK stopped wait=0", "ERR HELD lock=stopped")
	sameLease(n, "RESUME stopped lease="+field(granted, "lease"), granted)
	n.expect("UNLOCK stopped", "OK lock=stopped")
	n.kill()
}

// damagedTables: the state file is damaged at the moment when the daemon is killed. The next daemon
// uses every readable record, and invents nothing for the others: the nodes keep the lock until its
// validity ends.
func (i *installation) damagedTables() {
	i.t.Helper()
	i.damagedTable("flipped", true, func(content []byte) []byte {
		end := len(strings.TrimRight(string(content), "\x00"))
		content[end-10] ^= 0xff
		return content
	})
	i.damagedTable("cut", false, func(content []byte) []byte { return content[:len("redlock")] })
	i.damagedTable("emptied", false, func([]byte) []byte { return nil })
}

// damagedTable damages the last state file. readable says whether the record of a lease stays
// readable.
func (i *installation) damagedTable(how string, readable bool, damage func([]byte) []byte) {
	i.t.Helper()
	lock := "table-" + how
	holder, other := i.host.nc(), i.host.nc()
	ttl := "5s"
	if readable {
		ttl = "30s" // longer than this takes
	}
	granted := holder.expect("LOCK "+lock+" ttl="+ttl, "OK lock="+lock)
	for _, n := range []*terminal{other, holder} { // more records after the lease's
		n.expect("LOCK behind", "OK lock=behind")
		n.expect("UNLOCK behind", "OK lock=behind")
	}
	before := strings.Count(i.journal("redlockd"), "the state file was damaged")
	i.signal("STOP")
	i.rewriteTable(damage)
	i.signal("KILL")
	left := holder.comes("BYE resume=")
	if _, open := holder.next(holder.stdout); open {
		i.t.Errorf("%s: the connection goes on, although its last answers are unknown", how)
	}
	n := i.host.nc()
	n.expect("LOCK "+lock+" wait=0", "ERR HELD lock="+lock)
	waitFor(i.t, how+": the journal says so", func() bool {
		return strings.Count(i.journal("redlockd"), "the state file was damaged") > before
	})
	if readable {
		if number(i.t, left, "resume") <= 0 {
			i.t.Errorf("%s: %s: want how long the lease can be resumed", how, left)
		}
		sameLease(n, "RESUME "+lock+" lease="+field(granted, "lease"), granted)
		n.expect("UNLOCK "+lock, "OK lock="+lock)
		return
	}
	n.expect("RESUME "+lock+" lease="+field(granted, "lease"), "ERR NOTHELD")
	again := n.expect("LOCK "+lock+" wait=20s", "OK lock="+lock)
	if now, then := number(i.t, again, "fence"), number(i.t, granted, "fence"); now <= then {
		i.t.Errorf("%s: the fencing token is %d, it was %d", how, now, then)
	}
}

// rewriteTable changes the last state file in place. The daemon, which maps it, does not run.
func (i *installation) rewriteTable(change func([]byte) []byte) {
	i.t.Helper()
	files, err := filepath.Glob(i.path(installedSocket + ".table.*"))
	if err != nil || len(files) == 0 {
		i.t.Fatalf("no table: %v, %v", files, err)
	}
	file := slices.MaxFunc(files, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		i.t.Errorf("%s: mode %v (%v), want 0600: leases are as good as passwords", file, info.Mode(), err)
	}
	if err := os.WriteFile(file, change(readBytes(i.t, file)), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

// otherBoot: a state file from an earlier boot is ignored.
func (i *installation) otherBoot() {
	i.t.Helper()
	const file = "/proc/sys/kernel/random/boot_id"
	holder := i.host.nc()
	granted := holder.expect("LOCK boot ttl=3s", "OK lock=boot")
	i.run("sh", "-c", "umask 022 && echo 01234567-89ab-4cde-8f01-23456789abcd >/run/other-boot")
	i.dropIn("[Service]", "BindReadOnlyPaths=/run/other-boot:"+file)
	defer func() {
		i.dropIn()
		i.run("rm", "/run/other-boot")
	}()
	holder.comes("BYE resume=0")
	i.journalHas("the host was rebooted after it was written")
	n := i.host.nc()
	n.expect("RESUME boot lease="+field(granted, "lease"), "ERR NOTHELD")
	n.expect("LOCK boot wait=20s", "OK lock=boot")
}
