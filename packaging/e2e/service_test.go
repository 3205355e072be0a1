//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The command of redlock run is a service of systemd: systemd takes its READY=1, and LISTEN_PID and
// WATCHDOG_PID name it. With --exec it is the main process. When the service is stopped, its lock is
// free.
func TestServiceUnderLock(t *testing.T) {
	t.Parallel() // beside other tests, because it mostly waits
	m := boot(t)
	for _, program := range []string{"redlock", "redlockd"} {
		text, err := os.ReadFile(filepath.Join(binaries, program))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.path("/usr/bin/"+program), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const socket = "/run/dev.sock"
	m.run("systemd-run", "--unit=dev", "redlockd", "-dev", "-socket", socket)
	waitFor(t, "redlockd listens", func() bool { _, err := os.Stat(m.path(socket)); return err == nil })
	if err := os.MkdirAll(m.path("/usr/local/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, m.path("/usr/local/bin/lead"), `#!/bin/sh
test "$LISTEN_PID" = $$ && test -S /proc/$$/fd/3 && echo "listens"
test "$WATCHDOG_PID" = $$ && echo "is watched"
systemd-notify --ready
exec sleep infinity
`)
	m.run("chmod", "755", "/usr/local/bin/lead")
	for name, service := range map[string]struct{ command, access, main string }{
		"below": {"redlock run lead -- /usr/local/bin/lead", "all", "redlock"},
		"exec":  {"redlock run --exec lead -- /usr/local/bin/lead", "main", "sleep"},
	} {
		writeFile(t, m.path("/etc/systemd/system/"+name+".socket"), "[Socket]\nListenStream=/run/"+name+".sock\n")
		writeFile(t, m.path("/etc/systemd/system/"+name+".service"), strings.Join([]string{
			"[Service]", "Type=notify", "NotifyAccess=" + service.access, "TimeoutStartSec=infinity", "WatchdogSec=1h", "KillMode=mixed",
			"Environment=REDLOCK_SOCKET=" + socket, "ExecStart=/usr/bin/" + service.command, "",
		}, "\n"))
		m.run("systemctl", "daemon-reload")
		m.run("systemctl", "start", name+".socket")
		m.run("systemctl", "start", "--no-block", name+".service")
		waitFor(t, name+": systemd got READY=1 from the command", func() bool { return m.property(name+".service", "ActiveState") == "active" })
		waitFor(t, name+": the command runs", func() bool { return strings.Contains(m.journal(name), "is watched") })
		if log := m.journal(name); !strings.Contains(log, "listens") {
			t.Errorf("%s: LISTEN_PID does not name the command:\n%s", name, log)
		}
		main := "/proc/" + m.property(name+".service", "MainPID") + "/comm"
		waitFor(t, name+": the main process is "+service.main, func() bool { return m.run("cat", main) == service.main })
		m.run("systemctl", "stop", name+".socket", name+".service")
		waitFor(t, name+": the lock is free", func() bool { return m.run("redlock", "--socket", socket, "who", "lead") == "free" })
	}
}
