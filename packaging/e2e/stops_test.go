//go:build linux

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// On SIGTERM the daemon refuses its waiters, sends BYE to all clients, and leaves the locks of
// living clients on the nodes.
func TestTerminated(t *testing.T) {
	together(t)
	cluster, h, d := five(t)
	holder, waiter, idle, watch := h.nc(), h.nc(), h.nc(), h.nc()
	holder.expect("LOCK job ttl=20s", "OK lock=job")
	idle.expect("PING", "OK")
	waiter.send("LOCK job")
	waitFor(t, "the client waits", func() bool { return watch.waiters() == 1 })
	awaitKeys(t, cluster.Servers, "redlock:job")

	d.signal(syscall.SIGTERM)
	waiter.comes("ERR SHUTDOWN lock=job")
	waiter.comes("BYE resume=0")
	idle.comes("BYE resume=0")
	if resume := number(t, holder.comes("BYE resume="), "resume"); resume <= 0 || resume > 20_000 {
		t.Errorf("a holder got BYE resume=%d, expected 1 to 20000", resume)
	}
	if code := d.wait(); code != 0 {
		t.Errorf("exit code %d, expected 0; its log:\n%s", code, d.stderr.text())
	}
	awaitKeys(t, cluster.Servers, "redlock:job")

	h.serve()
	h.nc().expect("LOCK job wait=0", "ERR HELD lock=job")
}

// A second daemon does not take the socket from the first.
func TestSecondDaemonOnSocket(t *testing.T) {
	_, h, first := five(t)
	second := h.launch()
	if code := second.wait(); code != 1 {
		t.Errorf("the second daemon ends with %d, expected 1", code)
	}
	if _, stderr := second.rest(); !strings.Contains(stderr, fmt.Sprintf("another redlockd (pid %d) serves it", first.cmd.Process.Pid)) || strings.Contains(stderr, "temporarily") {
		t.Errorf("it does not say why it does not start:\n%s", stderr)
	}
	h.nc().expect("LOCK job wait=0", "OK lock=job")
}

// The next daemon replaces the socket of a killed one. The leases of its clients end with their
// ttl, because no daemon extends them.
func TestKilledDaemonLeavesSocket(t *testing.T) {
	_, h, d := five(t)
	holder := h.nc()
	holder.expect("LOCK job ttl=1s", "OK lock=job")
	d.kill()
	if _, more := holder.next(holder.stdout); more {
		t.Error("a killed daemon sent something")
	}
	left, err := filepath.Glob(h.socket)
	if err != nil || len(left) != 1 {
		t.Fatalf("found %v (%v), expected the socket that the killed daemon left", left, err)
	}
	h.serve()
	h.nc().expect("LOCK job wait=20s", "OK lock=job")
}

// If a daemon ends normally, it removes its socket.
func TestSocketIsRemoved(t *testing.T) {
	_, h, d := five(t)
	d.signal(syscall.SIGINT)
	if code := d.wait(); code != 0 {
		t.Errorf("exit code %d, expected 0", code)
	}
	left, err := filepath.Glob(filepath.Join(h.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(left, h.socket) {
		t.Errorf("the socket is still there: %v", left)
	}
}
