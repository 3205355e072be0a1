package statefile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOnDisk(t *testing.T) {
	memory, err := os.MkdirTemp("/dev/shm", "rltest-*")
	if err != nil {
		t.Skip("no /dev/shm: ", err)
	}
	defer os.RemoveAll(memory)
	for path, want := range map[string]bool{
		filepath.Join(memory, "s.table"): false,
		"/proc/s.table":                  true, // not a file system in memory such as tmpfs
		"/nowhere/s.table":               false,
	} {
		if got := OnDisk(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
