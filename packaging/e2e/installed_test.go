//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

const installedSocket = "/run/redlockd/redlockd.sock"

// TestInstalled tests the package on a Debian with its own systemd: installation, start by the
// first client, reload, restart, kill, watchdog, upgrade, purge, and the shutdown of the host. 200
// clients notice nothing but pauses. It is one test, because a machine takes long to make and to boot.
func TestInstalled(t *testing.T) { // not in parallel: it measures
	needNC(t)
	p := needPackages(t)
	cluster := redlocktest.StartRedis(t, 5)
	cluster.Admit(t)
	out := t.TempDir()
	m := boot(t, append(openToAll(t, cluster), out+":/srv/out")...)
	before := m.files()
	i := &installation{machine: m, host: &host{t: t, dir: t.TempDir(), socket: m.path(installedSocket)}}

	t.Cleanup(func() {
		if t.Failed() && m.leader != 0 {
			journal, err := i.try("sh", "-c", `journalctl -b --no-pager -o short-precise -u redlockd | grep '\[INFO\]\|\[WARN\]\|\[ERROR\]\|redlockd.service' | tail -n 200`)
			t.Logf("the journal (%v):\n%s", err, journal)
		}
	})

	i.step("install", func() { i.install(p.deb()) })
	i.configure(cluster)
	i.step("first client", i.firstClient)
	i.step("reload", i.reload)
	i.step("reload in place", i.reloadInPlace)
	i.step("stop", i.stopped)
	newer := newerPackage(t, p.deb())
	i.step("faulty config", func() { i.upgradeWithFaultyConfig(p.deb()) })
	i.step("under load", func() { i.underLoad(newer) })
	i.step("nodes down", func() { i.startWithNodesDown(cluster) })
	i.step("full store", i.fullStore)
	i.step("damaged tables", i.damagedTables)
	i.step("other boot", i.otherBoot)
	i.step("service under a lock", i.serviceUnderLock)
	i.step("purge", func() { i.purge(before) })
	i.step("installed again", func() {
		i.install(p.deb())
		i.configure(cluster)
	})
	i.step("drain at shutdown", func() { i.drainAtShutdown(out) })
}

// step logs how long a step took.
func (i *installation) step(what string, do func()) {
	i.t.Helper()
	began := time.Now()
	do()
	i.t.Logf("measured: %s took %v", what, time.Since(began).Round(10*time.Millisecond))
}

// openToAll lets other users connect to the nodes, and returns their directories for the machine.
func openToAll(t *testing.T, cluster *redlocktest.Cluster) (binds []string) {
	t.Helper()
	for _, server := range cluster.Servers {
		path := strings.TrimPrefix(server.Addr(), "unix:")
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		binds = append(binds, filepath.Dir(path)+":/srv/"+server.Name())
	}
	return binds
}

// newerPackage returns the same package with a later version of the daemon.
func newerPackage(t *testing.T, deb string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "deb")
	newer := dir + ".deb"
	script := `dpkg-deb -R "$0" "$1" && sed -i 's/^Version: .*/Version: 1.1.0-1/' "$1/DEBIAN/control" &&
		go build -trimpath -buildvcs=false -ldflags '-X github.com/redlockd/redlockd/daemon.version=1.1.0' -o "$1/usr/sbin/redlockd" ../../cmd/redlockd &&
		dpkg-deb -Znone -b "$1" "$2"`
	build := exec.Command("sh", "-c", script, deb, dir, newer)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := combined(build); err != nil {
		t.Fatalf("a newer package: %v\n%s", err, output)
	}
	return newer
}

// installation is the package, installed in a machine.
type installation struct {
	*machine
	host *host
}

// copy puts a file into the machine.
func (i *installation) copy(file string) (inside string) {
	i.t.Helper()
	inside = "/root/" + filepath.Base(file)
	writeFile(i.t, i.path(inside), readFile(i.t, file))
	return inside
}

// install: the socket listens, for the members of the group, and no daemon runs.
func (i *installation) install(deb string) {
	i.t.Helper()
	i.run("dpkg", "-i", i.copy(deb))
	for unit, want := range map[string]string{"redlockd.socket": "active", "redlockd.service": "inactive"} {
		if got := i.property(unit, "ActiveState"); got != want {
			i.t.Errorf("%s is %s, want %s", unit, got, want)
		}
	}
	want := "750 redlockd:redlock /run/redlockd\n660 root:redlock " + installedSocket
	if got := i.run("stat", "-c", "%a %U:%G %n", "/run/redlockd", installedSocket); got != want {
		i.t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := i.run("systemctl", "is-enabled", "redlockd.socket"); got != "enabled" {
		i.t.Errorf("redlockd.socket is %s, want enabled", got)
	}
}

func (i *installation) configure(cluster *redlocktest.Cluster) {
	i.t.Helper()
	lines := []string{"quorum {", `node_timeout = "2s"`}
	for _, server := range cluster.Servers {
		lines = append(lines, fmt.Sprintf("node %q { address = %q }", server.Name(), "unix:/srv/"+server.Name()+"/"+filepath.Base(server.Addr())))
	}
	writeFile(i.t, i.path("/etc/redlockd/redlockd.hcl"), strings.Join(append(lines, "}", `socket { group = "redlock" }`, ""), "\n"))
	i.run("redlockd", "validate")
}

// firstClient: the first client is answered, although the service did not run. Then the service
// runs as the unit says.
func (i *installation) firstClient() {
	i.t.Helper()
	n := i.host.nc()
	n.expect("LOCK job wait=20s", "OK lock=job")
	n.expect("HELLO", "OK protocol=1 version=1.0.0 ")
	waitFor(i.t, "the status shows nodes and leases", func() bool {
		return strings.HasPrefix(i.property("redlockd", "StatusText"), "5 of 5 nodes ready; leases 1, ")
	})
	if got := i.property("redlockd", "ActiveState"); got != "active" {
		i.t.Errorf("the service is %s, want active", got)
	}
	if journal := i.journal("redlockd"); strings.Contains(journal, "service manager") {
		i.t.Errorf("the units and the config do not agree:\n%s", journal)
	}
	n.expect("UNLOCK job", "OK lock=job")
}

// reload reloads the config and waits until the daemon has logged it.
func (i *installation) reload() {
	i.t.Helper()
	pid := i.property("redlockd", "MainPID")
	i.run("systemctl", "reload", "redlockd")
	waitFor(i.t, "the reload is logged, and over", func() bool {
		return strings.Contains(i.journal("redlockd"), "config reloaded") && i.property("redlockd", "ActiveState") == "active"
	})
	if got := i.property("redlockd", "MainPID"); got != pid {
		i.t.Errorf("the reload made process %s of %s", got, pid)
	}
}

// restart restarts the daemon as argv does, and checks that no client was refused meanwhile.
func (i *installation) restart(argv ...string) {
	i.t.Helper()
	before := i.property("redlockd", "MainPID")
	refused := make(chan error, 1)
	over := make(chan struct{})
	go func() { refused <- knock(i.host.socket, over) }() // ended and awaited below
	i.run(argv...)
	close(over)
	if err := await(i.t, 2*patience, refused, "the client that knocks to have its last answer", nil); err != nil {
		i.t.Errorf("%q: a client was refused: %v", argv, err)
	}
	if after := i.property("redlockd", "MainPID"); after == before || after == "0" {
		i.t.Errorf("%q: the process is %s, before it was %s", argv, after, before)
	}
	i.host.nc().expect("PING", "OK")
}

// knock connects and sends a request repeatedly, until over is closed. The daemon may stop before
// it answers.
func knock(socket string, over <-chan struct{}) error {
	for {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte("PING\n")); err == nil {
			_, _ = conn.Read(make([]byte, 100)) // an answer, BYE, or the end
		}
		conn.Close()
		select {
		case <-over:
			return nil
		default:
		}
	}
}

// hang: the watchdog ends a daemon that hangs, and the next client is answered by another one.
func (i *installation) hang() {
	i.t.Helper()
	before := i.property("redlockd", "MainPID")
	i.signal("STOP")
	waitFor(i.t, "it is stopped", func() bool { return strings.Contains(i.run("cat", "/proc/"+before+"/stat"), ") T ") })
	i.host.nc().expect("PING", "OK")
	if after := i.property("redlockd", "MainPID"); after == before || after == "0" {
		i.t.Errorf("the process is %s, before it was %s", after, before)
	}
	if journal := i.journal("redlockd"); !strings.Contains(journal, "Watchdog timeout") {
		i.t.Errorf("the journal does not mention the watchdog:\n%s", journal)
	}
}

// upgrade: nothing stops before the new version is completely installed.
func (i *installation) upgrade(l *load, deb string) {
	i.t.Helper()
	inside := i.copy(deb)
	before := i.property("redlockd", "MainPID")
	i.run("dpkg", "--unpack", inside)
	if after := i.property("redlockd", "MainPID"); after != before {
		i.t.Errorf("unpacked: the process is %s, before it was %s", after, before)
	}
	l.through("upgrade", 1, func() { i.restart("dpkg", "--configure", "redlockd") })
	i.host.nc().expect("HELLO", "OK protocol=1 version=1.1.0 ")
	if got := i.run("dpkg-query", "-W", "-f", "${Version} ${Status}", "redlockd"); got != "1.1.0-1 install ok installed" {
		i.t.Errorf("after the upgrade: %s", got)
	}
}

// upgradeWithFaultyConfig: the running daemon goes on, because a new one could not start.
func (i *installation) upgradeWithFaultyConfig(deb string) {
	i.t.Helper()
	const config = "/etc/redlockd/redlockd.hcl"
	n := i.host.nc()
	n.expect("LOCK job wait=20s", "OK lock=job")
	good, before := readFile(i.t, i.path(config)), i.property("redlockd", "MainPID")
	writeFile(i.t, i.path(config), good+"no_such_word = 1\n")
	output := i.run("dpkg", "-i", i.copy(deb))
	if after := i.property("redlockd", "MainPID"); after != before {
		i.t.Errorf("the process is %s, before it was %s", after, before)
	}
	if !strings.Contains(output, config+":") || !strings.Contains(output, "systemctl restart redlockd") {
		i.t.Errorf("dpkg shows neither the fault nor the fix:\n%s", output)
	}
	writeFile(i.t, i.path(config), good)
	i.restart("dpkg", "-i", i.copy(deb))
	n.comes("BACK ")
	n.expect("UNLOCK job", "OK lock=job")
}

// purge: only the user, the group, and copies of the files with them are left.
func (i *installation) purge(before map[string]bool) {
	i.t.Helper()
	i.run("dpkg", "--purge", "redlockd")
	i.run("sh", "-c", "rm -f /root/*.deb")
	left := i.files()
	maps.DeleteFunc(left, func(name string, _ bool) bool { return before[name] || slices.Contains(policyKeeps, name) })
	if len(left) > 0 {
		i.t.Errorf("left after the purge: %q", slices.Sorted(maps.Keys(left)))
	}
	if units, _ := i.try("systemctl", "list-unit-files", "--no-legend", "redlockd*"); units != "" { // its status is 1 if there are none
		i.t.Errorf("units left: %s", units)
	}
	if units := i.run("systemctl", "list-units", "--all", "--no-legend", "--plain", "redlockd*"); units != "" {
		i.t.Errorf("units known yet: %s", units)
	}
}

var policyKeeps = []string{"/etc/passwd-", "/etc/shadow-", "/etc/group-", "/etc/gshadow-", "/etc/.pwd.lock"}
