//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// shortMaxTTL is for tests that wait until a quarantine ends.
const shortMaxTTL = `max_ttl = "2500ms"`

// At the first start over new nodes, a client is told what the daemon waits for, and how long.
// ADMIT ends the wait.
func TestFreshNodesAdmitted(t *testing.T) {
	together(t)
	needNC(t)
	h := newHost(t, redlocktest.StartRedis(t, 5)) // max_ttl is 30 s
	d := h.launch()
	logged := awaitLog(d, "no quorum yet")
	wants(t, logged, "new or were restarted", "left=", "ADMIT all", "redlock admit all")
	awaitLog(d, "serving: ")

	n, waiter := h.nc(), h.nc()
	waiter.send("LOCK waited wait=forever")
	refused := n.expect("LOCK job wait=0", "ERR NOQUORUM lock=job granted=0 needed=3 failed=a:quarantined,")
	wants(t, refused, "new or restarted")
	retry := number(t, refused, "retry")
	status := n.lines("STATUS")
	whole := status[len(status)-1]
	wants(t, whole, "spare=-3", "new or were restarted", "ADMIT all", "redlock admit all")
	if left := number(t, whole, "left"); left <= 0 || left > retry || retry > 30_000 {
		t.Errorf("LOCK has retry=%d, then STATUS left=%d: expected the rest of 30000", retry, left)
	}
	for _, line := range status[:5] {
		wants(t, line, "state=quarantined", " left=", "may have forgotten locks")
	}
	run := start(t, h.dir, "env", "REDLOCK_SOCKET="+h.socket, filepath.Join(binaries, "redlock"), "run", "third", "true")
	said, _ := run.next(run.stderr)
	wants(t, said, `lock "third": waiting: no quorum for another `)

	n.expect("ADMIT f", "ERR OPTION ")
	n.send("ADMIT all")
	for _, node := range []string{"a", "b", "c", "d", "e"} {
		n.comes("- node=" + node + " state=ready")
	}
	n.comes("OK n=5")
	n.expect("LOCK job wait=0", "OK lock=job")
	waiter.comes("OK lock=waited")
	if code := run.wait(); code != 0 {
		t.Errorf("redlock run ends with %d, expected 0", code)
	}
	if log := d.stderr.text(); strings.Contains(log, "no persistence") || strings.Contains(log, "could be safer") {
		t.Errorf("the log warns of missing persistence, which redlock doctor finds:\n%s", log)
	}
	wants(t, d.stderr.text(), "[INFO]  the nodes are new", "fencing tokens begin at the nodes' clocks", "quarantine ended early by ADMIT: node=a")
	n.expect("ADMIT all", "OK n=0")
	n.expect("ADMIT a", "ERR ")
}

// Only root and the daemon's own user may admit nodes.
func TestAdmitByOtherUsers(t *testing.T) {
	needNC(t)
	nobody := another(t)
	h := newHost(t, redlocktest.StartRedis(t, 3))
	if err := os.Chmod(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.serve()
	cmd := exec.Command("nc", "-U", h.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: nobody}
	n := &terminal{startCommand(t, cmd)}
	n.expect("ADMIT all", "ERR DENIED : ")
	n.expect("ADMIT a", "ERR DENIED : ")
	n.expect("LOCK job wait=0", "ERR NOQUORUM ")
}

// another returns a user other than the daemon's.
func another(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to speak as another user, root is needed")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
}

// A quarantine ends after max_ttl, once for all daemons. A daemon that starts later does not wait
// again.
func TestQuarantineIsWaitedOut(t *testing.T) {
	together(t)
	needNC(t)
	cluster := redlocktest.StartRedis(t, 3)
	launched := time.Now()
	h := newHost(t, cluster, shortMaxTTL)
	h.serve()
	n := h.nc()
	granted := n.expect("LOCK job wait=forever", "OK lock=job")
	took := time.Since(launched)
	t.Logf("measured: the first grant on new nodes %v after the start (max_ttl is 2.5s)", took)
	if took < 2500*time.Millisecond {
		t.Errorf("granted after %v, expected not before max_ttl, 2.5s", took)
	}
	if number(t, granted, "fence") <= 0 {
		t.Errorf("no fencing token: %s", granted)
	}
	waitFor(t, "all nodes are ready", func() bool { return spare(n) == 1 })

	second := newHost(t, cluster, shortMaxTTL)
	second.serve()
	other := second.nc()
	if status := other.lines("STATUS"); number(t, status[3], "spare") != 1 || field(status[3], "left") != "" {
		t.Errorf("the second daemon does not follow: %q", status)
	}
	other.expect("LOCK job wait=0", "ERR HELD lock=job")
	other.expect("LOCK job2 wait=0", "OK lock=job2")
}

// One node of three restarts empty. Clients keep their locks, STATUS shows the reason, and the node
// votes again after max_ttl.
func TestRestartedNode(t *testing.T) {
	together(t)
	needNC(t)
	cluster := redlocktest.StartRedis(t, 3)
	cluster.Admit(t)
	h := newHost(t, cluster, shortMaxTTL)
	h.serve()
	n, other := h.nc(), h.nc()
	n.expect("LOCK job", "OK lock=job")
	waitFor(t, "all nodes are ready", func() bool { return spare(n) == 1 })
	restarted := time.Now()
	if err := cluster.Servers[2].Restart(); err != nil {
		t.Fatal(err)
	}
	var line string
	waitFor(t, "the node is in quarantine", func() bool {
		line = nodeLine(other, "c")
		return field(line, "state") == "quarantined"
	})
	wants(t, line, "restarted")
	other.expect("LOCK more wait=0", "OK lock=more")
	waitFor(t, "the node votes", func() bool { return field(nodeLine(other, "c"), "state") == "ready" })
	if took := time.Since(restarted); took < 2500*time.Millisecond {
		t.Errorf("it votes after %v, expected not before max_ttl, 2.5s", took)
	}
	n.expect("CHECK job", "OK lock=job")
	awaitKeys(t, cluster.Servers, "redlock:job", "redlock:more") // until its keys are repaired
}

// wants checks that a line contains words.
func wants(t *testing.T, line string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(line, word) {
			t.Errorf("expected %q in: %s", word, line)
		}
	}
}

// A daemon with another node list is refused by the nodes, and says why and what to do.
func TestOtherNodeList(t *testing.T) {
	needNC(t)
	cluster := redlocktest.StartRedis(t, 3)
	cluster.Admit(t)
	h := newHost(t, cluster, fmt.Sprintf("node %q { address = %q }", "d", "unix:/nowhere"))
	h.serve()
	n := h.nc()
	refused := n.expect("LOCK job wait=0", "ERR NOQUORUM lock=job granted=0 needed=3 failed=")
	wants(t, refused, "a:refused", "b:refused", "c:refused", "d:down")
	wants(t, nodeLine(n, "a"), "state=refused", "another node list", "HDEL redlockd:node epoch")
}
