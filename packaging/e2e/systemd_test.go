//go:build linux

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
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

func unitFile(t *testing.T, name string) string {
	t.Helper()
	return readFile(t, filepath.Join("..", "..", "systemd", name))
}

func needProgram(t *testing.T, name string) (path string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed (Debian: apt-get install systemd)", name)
	}
	return path
}
