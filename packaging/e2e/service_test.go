//go:build linux

package e2e

import (
	"os"
	"strings"
)

// serviceUnderLock: the command of redlock run is a service of systemd: systemd takes its READY=1, and
// LISTEN_PID and WATCHDOG_PID name it. With --exec it is the main process. When the service is stopped,
// its lock is free.
func (i *installation) serviceUnderLock() {
	t := i.t
	t.Helper()
	const socket, lead = "/run/dev.sock", "/root/lead"
	i.run("systemd-run", "--unit=dev", "redlockd", "-dev", "-socket", socket)
	waitFor(t, "redlockd listens", func() bool { _, err := os.Stat(i.path(socket)); return err == nil })
	writeFile(t, i.path(lead), `#!/bin/sh
test "$LISTEN_PID" = $$ && test -S /proc/$$/fd/3 && echo "listens"
test "$WATCHDOG_PID" = $$ && echo "is watched"
systemd-notify --ready
exec sleep infinity
`)
	i.run("chmod", "755", lead)
	for name, service := range map[string]struct{ command, access, main string }{
		"below": {"redlock run lead -- " + lead, "all", "redlock"},
		"exec":  {"redlock run --exec lead -- " + lead, "main", "sleep"},
	} {
		writeFile(t, i.path("/etc/systemd/system/"+name+".socket"), "[Socket]\nListenStream=/run/"+name+".sock\nRemoveOnStop=yes\n")
		writeFile(t, i.path("/etc/systemd/system/"+name+".service"), strings.Join([]string{
			"[Service]", "Type=notify", "NotifyAccess=" + service.access, "TimeoutStartSec=infinity", "WatchdogSec=1h", "KillMode=mixed",
			"Environment=REDLOCK_SOCKET=" + socket, "ExecStart=/usr/bin/" + service.command, "",
		}, "\n"))
		i.run("systemctl", "daemon-reload")
		i.run("systemctl", "start", name+".socket")
		i.run("systemctl", "start", "--no-block", name+".service")
		waitFor(t, name+": systemd got READY=1 from the command", func() bool { return i.property(name+".service", "ActiveState") == "active" })
		waitFor(t, name+": the command runs", func() bool { return strings.Contains(i.journal(name), "is watched") })
		if log := i.journal(name); !strings.Contains(log, "listens") {
			t.Errorf("%s: LISTEN_PID does not name the command:\n%s", name, log)
		}
		main := "/proc/" + i.property(name+".service", "MainPID") + "/comm"
		waitFor(t, name+": the main process is "+service.main, func() bool { return i.run("cat", main) == service.main })
		i.run("systemctl", "stop", name+".socket", name+".service")
		waitFor(t, name+": the lock is free", func() bool { return i.run("redlock", "--socket", socket, "who", "lead") == "free" })
		i.run("rm", "/etc/systemd/system/"+name+".socket", "/etc/systemd/system/"+name+".service")
	}
	i.run("systemctl", "stop", "dev")
	i.run("sh", "-c", "rm -f "+lead+" "+socket+"*")
}
