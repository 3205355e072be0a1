//go:build linux

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// machine is a container with a Debian of its own, which systemd has booted, without a network.
type machine struct {
	t      *testing.T
	root   string
	group  string   // its cgroup
	nspawn *process // the program systemd-nspawn
	leader int      // pid of its PID 1 on this host
}

// boot starts a machine that sees directories of this host, each given as "from:to". It first looks
// for all prerequisites, and skips the test if one is missing.
func boot(t *testing.T, binds ...string) *machine {
	t.Helper()
	cgroups := needContainers(t)
	dir := t.TempDir()
	m := &machine{t: t, root: filepath.Join(dir, "root"), group: filepath.Join(cgroups, "redlockd-e2e-"+strconv.Itoa(os.Getpid()))}
	if err := os.Mkdir(m.root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := makeRoot(m.root); err != nil {
		t.Fatalf("the root file system: %v", err)
	}
	for _, dir := range []string{m.group, filepath.Join(cgroups, "../systemd", filepath.Base(m.group))} {
		_ = os.Mkdir(dir, 0o755) // exists only with the old kind of cgroups
		t.Cleanup(func() { removeGroups(dir) })
	}
	argv := []string{"systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--machine=redlockd-e2e-" + strconv.Itoa(os.Getpid()),
		"--boot", "--directory=" + m.root, "--private-network", "--link-journal=no", "--resolv-conf=off", "--timezone=off", "--console=pipe"}
	for _, bind := range binds {
		argv = append(argv, "--bind="+bind)
	}
	// In a cgroup of its own, so that it does not change another one.
	m.nspawn = start(t, dir, append([]string{"env", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1",
		"sh", "-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, m.group}, argv...)...)
	t.Cleanup(m.powerOff)
	m.awaitSystemd()
	return m
}

// needContainers skips the test if no container can be booted. It returns the directory for new
// cgroups.
func needContainers(t *testing.T) (cgroups string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can boot a container")
	}
	for _, program := range []string{"systemd-nspawn", "nsenter", "unshare", "dpkg-query", "apt-cache"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed (Debian: apt-get install systemd-container dbus)", program)
		}
	}
	if output, err := combined(exec.Command("unshare", "--pid", "--fork", "--mount", "--uts", "--ipc", "--net", "--cgroup", "true")); err != nil {
		t.Skipf("this kernel or container allows no namespaces: %s", output)
	}
	mounts := readFile(t, "/proc/mounts")
	for line := range strings.Lines(mounts) {
		if words := strings.Fields(line); len(words) > 2 && words[2] == "cgroup2" {
			cgroups = words[1]
		}
	}
	probe := filepath.Join(cgroups, "redlockd-e2e-probe-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(probe, 0o755); cgroups == "" || err != nil {
		t.Skipf("no cgroup (version 2) can be made: %v", err)
	}
	_ = os.Remove(probe)
	return cgroups
}

// awaitSystemd waits until PID 1 runs and has started everything.
func (m *machine) awaitSystemd() {
	m.t.Helper()
	const bound = 4 * patience // the boot of a whole machine, beside other tests
	waitWithin(m.t, bound, "the container has a systemd", func() bool {
		select {
		case <-m.nspawn.exited:
			m.t.Fatalf("systemd-nspawn ended with %d:\n%s\n%s", m.nspawn.code, m.nspawn.stdout.text(), m.nspawn.stderr.text())
		default:
		}
		m.leader = childCalled(m.nspawn.cmd.Process.Pid, "systemd")
		return m.leader != 0
	})
	waitWithin(m.t, bound, "the container's systemd is up", func() bool {
		state, _ := m.try("systemctl", "is-system-running")
		return state == "running" || state == "degraded"
	})
}

// childCalled returns the pid of a child that runs that program, or 0.
func childCalled(parent int, name string) int {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	for _, word := range strings.Fields(string(children)) {
		comm, _ := os.ReadFile("/proc/" + word + "/comm")
		if strings.TrimSpace(string(comm)) == name {
			pid, _ := strconv.Atoi(word)
			return pid
		}
	}
	return 0
}

// powerOff ends the machine with a shutdown of its systemd or, if that fails, at once.
func (m *machine) powerOff() {
	if m.leader != 0 {
		_ = syscall.Kill(m.leader, sigPowerOff)
		select {
		case <-m.nspawn.exited:
			return
		case <-time.After(10 * time.Second):
			_ = syscall.Kill(m.leader, syscall.SIGKILL)
		}
	}
	m.nspawn.kill()
}

// sigPowerOff is SIGRTMIN+4: see systemd(1).
const sigPowerOff = syscall.Signal(34 + 4)

// removeGroups removes a cgroup and what is left in it.
func removeGroups(dir string) {
	inside, _ := filepath.Glob(filepath.Join(dir, "*", ""))
	for _, entry := range inside {
		if info, err := os.Stat(entry); err == nil && info.IsDir() {
			removeGroups(entry)
		}
	}
	_ = unix.Rmdir(dir)
}

// try runs a program in the machine, and returns its output.
func (m *machine) try(argv ...string) (string, error) {
	enter := []string{"-t", strconv.Itoa(m.leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--"}
	cmd := exec.Command("nsenter", append(enter, argv...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	output, err := combined(cmd)
	return strings.TrimSpace(string(output)), err
}

// run runs a program in the machine, and fails the test if the program fails.
func (m *machine) run(argv ...string) string {
	m.t.Helper()
	output, err := m.try(argv...)
	if err != nil {
		journal, _ := m.try("journalctl", "-b", "--no-pager", "-n", "60")
		m.t.Fatalf("%q: %v\n%s\n%s", argv, err, output, journal)
	}
	return output
}

// property asks systemd for a property of a unit.
func (m *machine) property(unit, name string) string {
	m.t.Helper()
	return m.run("systemctl", "show", "-P", name, unit)
}

// path returns the path on this host of a file of the machine, while it runs.
func (m *machine) path(inside string) string {
	return filepath.Join("/proc", strconv.Itoa(m.leader), "root", inside)
}

// journal returns the log of a unit.
func (m *machine) journal(unit string) string {
	m.t.Helper()
	return m.run("journalctl", "-b", "--no-pager", "-o", "cat", "-u", unit)
}

// files returns all files of the machine on its disk and in /run, except those that change all the
// time.
func (m *machine) files() map[string]bool {
	m.t.Helper()
	list := m.run("find", "/", "/run", "-xdev", "(", "-path", "/var/lib/dpkg", "-o", "-path", "/var/log", "-o", "-path", "/run/log",
		"-o", "-path", "/run/systemd", "-o", "-path", "/run/udev", "-o", "-path", "/tmp", "-o", "-path", "/var/tmp", ")", "-prune", "-o", "-print")
	all := map[string]bool{}
	for scanner := bufio.NewScanner(strings.NewReader(list)); scanner.Scan(); {
		all[scanner.Text()] = true
	}
	return all
}
