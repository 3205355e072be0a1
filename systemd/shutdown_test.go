package systemd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeSystemctl puts a systemctl into $PATH that prints a word and exits with 1.
func fakeSystemctl(t *testing.T, word string) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$*\" = is-system-running ] || exit 2\necho '" + word + "'\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// The host stops only if systemctl says so. If it says nothing useful, that is an error.
func TestSystemStops(t *testing.T) {
	for word, want := range map[string]struct {
		stops bool
		err   string
	}{
		"stopping": {true, ""}, "running": {false, ""}, "degraded": {false, ""}, "starting": {false, ""},
		"offline": {false, `says "offline"`}, "unknown": {false, `says "unknown"`}, "": {false, "exit status 1"},
	} {
		t.Run(word, func(t *testing.T) {
			fakeManager(t)
			m, err := FromEnvironment()
			if err != nil {
				t.Fatal(err)
			}
			fakeSystemctl(t, word)
			stops, err := m.SystemStops()
			if stops != want.stops || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
				t.Errorf("got %v, %v; want %v and an error with %q", stops, err, want.stops, want.err)
			}
		})
	}
}

// Without a service manager nobody is asked.
func TestSystemStopsWithoutManager(t *testing.T) {
	fakeSystemctl(t, "stopping")
	if stops, err := (*Manager)(nil).SystemStops(); stops || err != nil {
		t.Errorf("got %v, %v; want false", stops, err)
	}
}

// systemd sends SIGTERM to all processes of a service that it stops. If that ends systemctl, it is
// started again.
func TestSystemStopsOutlastsSIGTERM(t *testing.T) {
	fakeManager(t)
	m, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\ncd '" + dir + "'; [ -e second ] && echo stopping && exit 1; touch second; kill -TERM $$\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if stops, err := m.SystemStops(); !stops || err != nil {
		t.Errorf("got %v, %v; want true", stops, err)
	}
}
