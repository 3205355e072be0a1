//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/systemd"
)

// systemd accepts every line of the units, and rates the service as well isolated.
func TestSystemdUnits(t *testing.T) {
	t.Parallel()
	analyze := needProgram(t, "systemd-analyze")
	dir := t.TempDir()
	service, socket := filepath.Join(dir, "redlockd.service"), filepath.Join(dir, "redlockd.socket")
	text := unitFile(t, "redlockd.service")
	const installed = "ExecStart=/usr/sbin/redlockd "
	if !strings.Contains(text, installed) {
		t.Fatalf("the service does not start with %s", installed)
	}
	writeFile(t, service, strings.Replace(text, installed, "ExecStart="+filepath.Join(binaries, "redlockd")+" ", 1))
	writeFile(t, socket, unitFile(t, "redlockd.socket"))

	verify := exec.Command(analyze, "--man=no", "--recursive-errors=one", "verify", service, socket)
	if output, err := combined(verify); err != nil || len(output) != 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, output)
	}
	security := exec.Command(analyze, "security", "--offline=yes", "--threshold=15", "--no-pager", service)
	if output, err := combined(security); err != nil {
		t.Errorf("systemd-analyze security: exposure above 1.5: %v\n%s", err, output)
	}
}

// The socket unit listens where the config and the clients expect the socket, and the service takes
// it by its name.
func TestSystemdSocket(t *testing.T) {
	socket, service := unitFile(t, "redlockd.socket"), unitFile(t, "redlockd.service")
	cfg := readFile(t, filepath.Join("..", "redlockd.hcl"))
	for _, want := range []string{
		"\nListenStream=" + client.DefaultSocket + "\n", "\nFileDescriptorName=" + systemd.ListenerName + "\n", "\nSocketMode=0660\n", "\nSocketGroup=redlock\n",
	} {
		if !strings.Contains(socket, want) {
			t.Errorf("redlockd.socket lacks %q", want)
		}
	}
	for _, want := range []string{`path = "` + client.DefaultSocket + `"`, `mode = "0660"`, `group = "redlock"`} {
		if !strings.Contains(cfg, want) {
			t.Errorf("redlockd.hcl lacks %s, which redlockd.socket has", want)
		}
	}
	for _, want := range []string{"\nRuntimeDirectoryPreserve=yes\n", "\nRestart=always\n", "\nStartLimitIntervalSec=0\n", "\nLimitCORE=0\n", "\nType=notify\n"} {
		if !strings.Contains(service, want) {
			t.Errorf("redlockd.service lacks %q", want)
		}
	}
	if strings.Contains(service, "\nPrivateUsers=") {
		t.Error("redlockd.service has PrivateUsers=: every client would look like nobody")
	}
}

// systemd accepts the unit of a leader, and restarts it for ever. With the usual limit of five
// starts within 10 s it would give up while redlockd is stopped.
func TestLeaderUnit(t *testing.T) {
	t.Parallel()
	analyze := needProgram(t, "systemd-analyze")
	_, rest, _ := strings.Cut(readFile(t, pagePath("COMMANDS.md")), "## A leader\n")
	_, rest, _ = strings.Cut(rest, "```ini\n")
	unit, _, found := strings.Cut(rest, "```\n")
	for _, want := range []string{"[Unit]\nStartLimitIntervalSec=0\n", "\nRestart=always\n"} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit lacks %q", want)
		}
	}
	words := strings.NewReplacer("/usr/bin/redlock ", filepath.Join(binaries, "redlock")+" ")
	path := filepath.Join(t.TempDir(), "lead.service")
	writeFile(t, path, words.Replace(unit))
	if output, err := combined(exec.Command(analyze, "--man=no", "--recursive-errors=one", "verify", path)); !found || err != nil || len(output) != 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, output)
	}
}

// A daemon takes its socket from the ones that it gets, and leaves the socket's file when it ends.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	needNC(t)
	activate := needProgram(t, "systemd-socket-activate")
	h := &host{t: t, dir: t.TempDir()}
	h.socket = filepath.Join(h.dir, "s")
	d := start(t, h.dir, activate, "--listen="+filepath.Join(h.dir, "other"), "--listen="+h.socket, "--fdname=other:"+systemd.ListenerName,
		filepath.Join(binaries, "redlockd"), "-dev", "-socket", h.socket)
	waitFor(t, "systemd-socket-activate listens", func() bool { _, err := os.Stat(h.socket); return err == nil })
	n := h.nc()
	n.expect("LOCK job", "OK lock=job")
	const want = `names=["other"]` // the log line may come after the answer
	waitFor(t, "the log has "+want, func() bool { return strings.Contains(d.stderr.text(), want) })
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, d.stderr.text())
	}
	if _, err := os.Stat(h.socket); err != nil {
		t.Errorf("the socket is not the daemon's to remove: %v", err)
	}
}

func unitFile(t *testing.T, name string) string {
	t.Helper()
	return readFile(t, filepath.Join("..", "..", "systemd", name))
}

// The sysusers file creates the user and the group that the unit and the example config name.
func TestSystemdUsers(t *testing.T) {
	sysusers := needProgram(t, "systemd-sysusers")
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := filepath.Abs(filepath.Join("..", "..", "systemd", "sysusers.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if output, err := combined(exec.Command(sysusers, "--root="+root, file)); err != nil {
		t.Fatalf("systemd-sysusers: %v\n%s", err, output)
	}
	if users := readFile(t, filepath.Join(root, "etc", "passwd")); !strings.Contains(users, "redlockd:") {
		t.Errorf("no user redlockd in:\n%s", users)
	}
	if groups := readFile(t, filepath.Join(root, "etc", "group")); !strings.Contains(groups, "redlock:") {
		t.Errorf("no group redlock in:\n%s", groups)
	}
	unit := unitFile(t, "redlockd.service")
	for _, want := range []string{"\nUser=redlockd\n", "\nGroup=redlock\n"} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit lacks %q", want)
		}
	}
}

// The directory must exist, with its owners, before systemd creates the socket.
func TestSystemdDirectory(t *testing.T) {
	tmpfiles := needProgram(t, "systemd-tmpfiles")
	if os.Geteuid() != 0 {
		t.Skip("only root can give directories away")
	}
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "directory.conf"), unitFile(t, "tmpfiles.conf"))
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "etc", "passwd"), "redlockd:x:4321:4322::/:/bin/false\n")
	writeFile(t, filepath.Join(root, "etc", "group"), "redlock:x:4322:\n")
	if output, err := combined(exec.Command(tmpfiles, "--create", "--root="+root, filepath.Join(root, "directory.conf"))); err != nil {
		t.Fatalf("systemd-tmpfiles: %v\n%s", err, output)
	}
	info, err := os.Stat(filepath.Join(root, "run", "redlockd"))
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != 0o750 || stat.Uid != 4321 || stat.Gid != 4322 {
		t.Errorf("got mode %o, owner %d:%d; want 750, redlockd:redlock", info.Mode().Perm(), stat.Uid, stat.Gid)
	}
}

func needProgram(t *testing.T, name string) (path string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed (Debian: apt-get install systemd)", name)
	}
	return path
}
