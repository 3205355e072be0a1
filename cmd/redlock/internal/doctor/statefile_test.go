package doctor

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCheckStateFile(t *testing.T) {
	defer func(before func(string) bool) { onDisk = before }(onDisk)
	socket := filepath.Join(t.TempDir(), "s")
	look := func(what string, want ...string) {
		t.Helper()
		compareFindings(t, what, checkStateFile(socket), want)
	}
	onDisk = func(string) bool { return true }
	look("no table")
	for _, other := range []string{"s2.table.1", "s.lock"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(socket), other), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look("another one's table")
	if err := os.WriteFile(socket+".table.3", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look("on a disk", "warning table: redlockd's state file, beside its socket, is on a disk")
	onDisk = func(string) bool { return false }
	look("in memory")
}
