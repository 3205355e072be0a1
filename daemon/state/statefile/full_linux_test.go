package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// If /run is full, Open uses the space of the old state file for the new one, so a restart loses
// nothing.
func TestNoSpaceAtOpen(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	o := options(t, filepath.Join(dir, "t"))
	o.SegmentSize = 64 << 10
	before, want := open(t, o)
	for _, record := range []string{"a=1", "b=2"} {
		before.Append([]byte(record))
		_ = want.Apply([]byte(record))
	}
	before.Close()
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC", err)
	}
	after, got := open(t, o)
	wantState(t, "in a full file system", got, want)
	after.Append([]byte("c=3"))
	_ = want.Apply([]byte("c=3"))
	after.Close()
	_, got = open(t, o)
	wantState(t, "once more", got, want)
}
