//go:build linux

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Three of five nodes hang. The holder gets LOST before its last stated deadline, measured on
// CLOCK_BOOTTIME from outside, and the lease never becomes valid again.
func TestLostBeforeDeadline(t *testing.T) {
	t.Parallel()
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
