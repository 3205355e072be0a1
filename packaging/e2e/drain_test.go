//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// drainAtShutdown shuts down the host. With drain in the config, a job that needs longer than its ttl
// to end keeps its lock until then, although systemd tells redlockd and the job to end together. A
// restart of redlockd with the same config refuses nobody. out is /srv/out.
func (i *installation) drainAtShutdown(out string) {
	t := i.t
	t.Helper()
	config := i.path("/etc/redlockd/redlockd.hcl")
	writeFile(t, config, "drain = \"60s\"\n"+readFile(t, config))
	i.dropIn("[Service]", "TimeoutStopSec=90")
	i.run("systemctl", "start", "redlockd")

	const job = `trap 'sleep 8; echo done >/srv/out/done; exit' TERM; echo up >/srv/out/up; while :; do sleep 0.1; done`
	i.run("systemd-run", "--quiet", "--unit=job", "-p", "KillMode=mixed", "redlock", "run", "-t", "5s", "job", "--", "sh", "-c", job)
	up := filepath.Join(out, "up")
	waitFor(t, "the job runs", func() bool { _, err := os.Stat(up); return err == nil })

	n := i.host.nc()
	n.send("LOCK job wait=90s")
	other := i.host.nc()
	waitFor(t, "it waits", func() bool { return other.waiters() == 1 })
	earlier := i.journal("redlockd")
	i.run("systemctl", "restart", "redlockd")
	n.comes("BACK") // and not SHUTDOWN: its connection was kept
	if log := strings.TrimPrefix(i.journal("redlockd"), earlier); strings.Contains(log, "drain") {
		t.Errorf("a restart drained:\n%s", log)
	}

	if err := syscall.Kill(i.leader, sigPowerOff); err != nil {
		t.Fatal(err)
	}
	n.comes("ERR SHUTDOWN lock=job drain=")
	select {
	case <-i.nspawn.exited:
	case <-time.After(2 * patience):
		t.Fatal("the host still runs")
	}
	if got, err := os.ReadFile(filepath.Join(out, "done")); err != nil || string(got) != "done\n" {
		t.Errorf("the job did not end by itself: %q, %v", got, err)
	}
}
