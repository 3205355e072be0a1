//go:build linux

package e2e

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// At the first start over new nodes, a client is told what the daemon waits for, and how long.
// ADMIT ends the wait.
func TestFreshNodesAdmitted(t *testing.T) {
	t.Parallel()
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

// wants checks that a line contains words.
func wants(t *testing.T, line string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(line, word) {
			t.Errorf("expected %q in: %s", word, line)
		}
	}
}
