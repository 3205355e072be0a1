//go:build linux

package e2e

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Three of five nodes hang. The holder gets LOST before its last stated deadline, measured on
// CLOCK_BOOTTIME from outside, and the lease never becomes valid again.
func TestLostBeforeDeadline(t *testing.T) {
	cluster, h, _ := five(t)
	holder, watch := h.nc(), h.nc()
	lease := field(holder.expect("LOCK job ttl=5s guard=2s", "OK lock=job"), "lease")
	stop(t, cluster.Servers[2:])
	defer cont(t, cluster.Servers[2:])

	stated := number(t, watch.expect("CHECK lease="+lease, "OK lock=job"), "deadline")
	var lost string
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for giveUp := time.After(patience); lost == ""; {
		select {
		case <-holder.stdout.grown:
			lost, _, _ = holder.stdout.take()
		case <-tick.C:
			if checked := watch.ask("CHECK lease=" + lease); strings.HasPrefix(checked, "OK") {
				stated = max(stated, number(t, checked, "deadline"))
			}
		case <-giveUp:
			t.Fatalf("no LOST within %v; the last deadline stated is %d", patience, stated)
		}
	}
	left := time.Duration(stated)*time.Millisecond - bootTime(t)
	t.Logf("measured: LOST %v before the stated deadline (guard 2s)", left)
	if !strings.HasPrefix(lost, "LOST lock=job lease="+lease+" reason=quorum") {
		t.Errorf("got %s, want LOST of lease %s", lost, lease)
	}
	if left <= 0 {
		t.Errorf("LOST came %v after the stated deadline, expected it before", -left)
	}

	cont(t, cluster.Servers[2:])
	holder.expect("CHECK job", "ERR LOST lock=job")
	watch.expect("LOCK job wait=20s", "OK lock=job")
	holder.expect("CHECK job", "ERR LOST lock=job")
	holder.expect("UNLOCK job", "ERR LOST lock=job")
}

// Three of five nodes are dead. The refusal names them, comes soon, and leaves no key on any node,
// then or later.
func TestNoQuorumOfDeadNodes(t *testing.T) {
	together(t)
	cluster, h, _ := five(t)
	n := h.nc()
	n.expect("LOCK before", "OK lock=before")
	n.expect("UNLOCK before", "OK lock=before")
	for _, server := range cluster.Servers[2:] {
		server.Kill()
	}
	refused(t, n, "LOCK job wait=0", 0)
	refused(t, n, "LOCK job wait=500ms", 500*time.Millisecond)
	if status := n.lines("STATUS"); number(t, status[len(status)-1], "spare") != -1 {
		t.Errorf("STATUS answers %q, expected spare=-1", status)
	}
	awaitKeys(t, cluster.Servers[:2])
	restart(t, cluster, cluster.Servers[2:])
	n.expect("LOCK job wait=20s", "OK lock=job")
	n.expect("UNLOCK job", "OK lock=job")
	awaitKeys(t, cluster.Servers)
}

// Three of five nodes hang. When they continue, they execute the pending requests, and no key is
// left then.
func TestNoQuorumOfHungNodes(t *testing.T) {
	cluster, h, _ := five(t)
	n := h.nc()
	stop(t, cluster.Servers[2:])
	defer cont(t, cluster.Servers[2:])
	refused(t, n, "LOCK job wait=0 ttl=30s", 0)
	cont(t, cluster.Servers[2:])
	awaitKeys(t, cluster.Servers)
	n.expect("LOCK job wait=20s", "OK lock=job")
}

// Nodes that kept their data are used again within a second, without ADMIT. Three of five were
// stopped until the daemon had closed their connections.
func TestHungNodesAreUsedAgainSoon(t *testing.T) {
	needNC(t)
	cluster := redlocktest.StartRedis(t, 5)
	cluster.Admit(t)
	h := newHost(t, cluster)
	writeFile(t, h.config, strings.Replace(readFile(t, h.config), `"500ms"`, `"100ms"`, 1)) // silent for 0.8 s, the connection is closed
	h.serve()
	n := h.nc()
	var took []time.Duration
	for range 3 { // the machine may be busy
		took = append(took, backAfter(t, n, cluster.Servers[2:]))
	}
	slices.Sort(took)
	t.Logf("measured: a quorum that was stopped grants again after %v", took)
	if took[1] > time.Second {
		t.Errorf("a quorum that was stopped grants again after %v (median of %v), expected a second at most", took[1], took)
	}
}

// backAfter stops the servers until their connections are closed. It returns how long after they
// continue a lock is granted.
func backAfter(t *testing.T, n *terminal, servers []*redlocktest.Server) time.Duration {
	t.Helper()
	stop(t, servers)
	defer cont(t, servers)
	for _, server := range servers {
		waitFor(t, "the daemon dials again", func() bool {
			line := nodeLine(n, server.Name())
			return field(line, "state") == "down" && strings.Contains(line, "login")
		})
	}
	cont(t, servers)
	back := time.Now()
	n.expect("LOCK job wait=20s", "OK lock=job")
	defer n.expect("UNLOCK job", "OK lock=job")
	return time.Since(back)
}

// With two of five nodes dead, and then two of five hung, everything works.
func TestTwoOfFiveNodesFail(t *testing.T) {
	together(t)
	cluster, h, _ := five(t)
	holder, other := h.nc(), h.nc()
	check := func(what string) {
		t.Helper()
		holder.expect("LOCK job wait=20s", "OK lock=job")
		other.expect("LOCK job wait=0", "ERR HELD lock=job")
		holder.expect("EXTEND job ttl=20s", "OK lock=job")
		if ttl := number(t, holder.expect("CHECK job", "OK lock=job"), "ttl"); ttl < 15_000 {
			t.Errorf("%s: the extension to 20 s left a ttl of %d ms", what, ttl)
		}
		holder.expect("UNLOCK job", "OK lock=job")
	}
	for _, server := range cluster.Servers[:2] {
		server.Kill()
	}
	check("two dead")
	restart(t, cluster, cluster.Servers[:2])
	waitFor(t, "all nodes are ready", func() bool { return spare(other) == 2 })
	stop(t, cluster.Servers[3:])
	defer cont(t, cluster.Servers[3:])
	check("two hung")
}

// A daemon starts without its nodes, says so, and uses them when they start.
func TestStartWithNodesDown(t *testing.T) {
	together(t)
	needNC(t)
	cluster := redlocktest.StartRedis(t, 5)
	cluster.Admit(t)
	for _, server := range cluster.Servers[2:] {
		server.Kill()
	}
	h := newHost(t, cluster)
	d := h.launch()
	awaitLog(d, "no quorum yet")
	awaitLog(d, "serving: ")
	n := h.nc()
	refused(t, n, "LOCK job wait=0", 0)

	if err := cluster.Servers[2].Restart(); err != nil {
		t.Fatal(err)
	}
	returned := time.Now()
	waitFor(t, "the node that came back is in quarantine", func() bool { return field(nodeLine(n, "c"), "state") == "quarantined" })
	n.expect("ADMIT c", "- node=c state=ready")
	n.comes("OK n=1")
	t.Logf("measured: a restarted node is used after %v", time.Since(returned)) // about a second, on an idle machine
	n.expect("LOCK job wait=5s", "OK lock=job")
}

// refused checks that the answer is NOQUORUM with the nodes c, d and e, after wait and not much
// later.
func refused(t *testing.T, n *terminal, request string, wait time.Duration) {
	t.Helper()
	const slack = 5 * time.Second // a node's timeout is 500 ms; the machine may be busy
	asked := time.Now()
	answer := n.expect(request, "ERR NOQUORUM lock=job")
	if took := time.Since(asked); took < wait || took > wait+slack {
		t.Errorf("%s: refused after %v, expected %v", request, took, wait)
	}
	var failed []string
	for word := range strings.SplitSeq(field(answer, "failed"), ",") {
		node, _, _ := strings.Cut(word, ":")
		failed = append(failed, node)
	}
	if strings.Join(failed, "") != "cde" || field(answer, "needed") != "3" {
		t.Errorf("%s: got %s, want needed=3 and the nodes c, d and e", request, answer)
	}
}

// restart starts killed servers again, and lets them vote at once.
func restart(t *testing.T, cluster *redlocktest.Cluster, servers []*redlocktest.Server) {
	t.Helper()
	for _, server := range servers {
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Admit(t)
}

// nodeLine returns the line of STATUS for a node.
func nodeLine(n *terminal, name string) string {
	n.t.Helper()
	for _, line := range n.lines("STATUS") {
		if field(line, "node") == name {
			return line
		}
	}
	n.t.Fatalf("STATUS does not know node %s", name)
	return ""
}

// spare returns how many more node failures the daemon tolerates.
func spare(n *terminal) int64 {
	n.t.Helper()
	status := n.lines("STATUS")
	return number(n.t, status[len(status)-1], "spare")
}

func stop(t *testing.T, servers []*redlocktest.Server) {
	t.Helper()
	for _, server := range servers {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func cont(t *testing.T, servers []*redlocktest.Server) {
	t.Helper()
	for _, server := range servers {
		if err := server.Cont(); err != nil {
			t.Fatal(err)
		}
	}
}

// One of five nodes is hostile, in a different way each time. STATUS shows the node and its fault.
// Clients notice nothing.
func TestHostileNodeBesideOthers(t *testing.T) {
	needNC(t)
	for name, row := range map[string]struct {
		ballots func(q *redlocktest.Question) string // returns the answer
		reason  string                               // text in STATUS
	}{
		"an error": {func(*redlocktest.Question) string { return "-LOADING Redis is loading the dataset in memory\r\n" }, "LOADING Redis is loading"},
		"no Redis": {func(*redlocktest.Question) string { return "HTTP/1.1 400 Bad Request\r\n\r\n" }, "something that begins with"},
		"a lie": {func(q *redlocktest.Question) string {
			n, _ := strconv.Atoi(q.Command[2])
			if !strings.EqualFold(q.Command[3+n+2], strings.Repeat("a", n-1)) {
				return string(q.Reply)
			}
			return fmt.Sprintf("*%d\r\n%s", n-1, strings.Repeat(":9006099743113215\r\n", n-1))
		}, "days ahead of most nodes' clocks"},
	} {
		t.Run(name, func(t *testing.T) { hostileBesideOthers(t, row.ballots, row.reason) })
	}
}

func hostileBesideOthers(t *testing.T, ballots func(*redlocktest.Question) string, reason string) {
	cluster := redlocktest.StartRedis(t, 5)
	cluster.Admit(t)
	hostile := cluster.Servers[4]
	impostor := redlocktest.StartImpostor(t, hostile, func(q *redlocktest.Question) bool {
		if q.Command[0] != "EVALSHA" || len(q.Command) < 3 || q.Command[2] == "0" || q.Command[2] == "1" { // not a ballot
			return redlocktest.PassOn(q)
		}
		_, err := io.WriteString(q.Conn, ballots(q))
		return err == nil
	})
	h := newHost(t, cluster)
	writeFile(t, h.config, strings.Replace(readFile(t, h.config), hostile.Addr(), impostor.Addr(), 1))
	h.serve()
	n, other := h.nc(), h.nc()
	for range 20 {
		n.expect("LOCK job wait=5s", "OK lock=job")
		other.expect("LOCK job wait=0", "ERR HELD lock=job")
		n.expect("EXTEND job ttl=20s", "OK lock=job")
		n.expect("UNLOCK job", "OK lock=job")
	}
	waitFor(t, "STATUS says what the node did", func() bool {
		n.expect("LOCK job wait=5s", "OK lock=job")
		n.expect("UNLOCK job", "OK lock=job")
		return strings.Contains(nodeLine(other, "e"), reason)
	})
	for _, name := range []string{"a", "b", "c", "d"} {
		if line := nodeLine(other, name); field(line, "state") != "ready" {
			t.Errorf("STATUS shows %q for a good node", line)
		}
	}
}
