//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit is one that systemd understands to the last word, and well shut in.
func TestSystemdUnit(t *testing.T) {
	analyze := needProgram(t, "systemd-analyze")
	unit := filepath.Join(t.TempDir(), "redlockd.service")
	text := readFile(t, filepath.Join("..", "..", "systemd", "redlockd.service"))
	const installed = "ExecStart=/usr/sbin/redlockd "
	if !strings.Contains(text, installed) {
		t.Fatalf("the unit does not start with %s", installed)
	}
	writeFile(t, unit, strings.Replace(text, installed, "ExecStart="+filepath.Join(binaries, "redlockd")+" ", 1))

	verify := exec.Command(analyze, "--man=no", "--recursive-errors=one", "verify", unit)
	if output, err := verify.CombinedOutput(); err != nil || len(output) != 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, output)
	}
	security := exec.Command(analyze, "security", "--offline=yes", "--threshold=20", "--no-pager", unit)
	if output, err := security.CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: exposure above 2.0: %v\n%s", err, output)
	}
}

// The users' file makes the user and the group that the unit and the example
// config name.
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
	if output, err := exec.Command(sysusers, "--root="+root, file).CombinedOutput(); err != nil {
		t.Fatalf("systemd-sysusers: %v\n%s", err, output)
	}
	if users := readFile(t, filepath.Join(root, "etc", "passwd")); !strings.Contains(users, "redlockd:") {
		t.Errorf("no user redlockd in:\n%s", users)
	}
	if groups := readFile(t, filepath.Join(root, "etc", "group")); !strings.Contains(groups, "redlock:") {
		t.Errorf("no group redlock in:\n%s", groups)
	}
	unit := readFile(t, filepath.Join("..", "..", "systemd", "redlockd.service"))
	for _, want := range []string{"\nUser=redlockd\n", "\nGroup=redlock\n"} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit lacks %q", want)
		}
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

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
