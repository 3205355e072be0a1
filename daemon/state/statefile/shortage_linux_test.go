package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// smallFileSystem returns a directory with a file system of a size. It skips the test if none can be
// mounted.
func smallFileSystem(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillUp uses all space of a file system.
func fillUp(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC", err)
	}
}

// If there is no space for the next file, the state is kept in memory, which is reported once. No file
// stays that would be out of date, and none that is incomplete. A second later the space of the old file
// is used, and the new one has the whole state.
func TestNoSpace(t *testing.T) {
	dir := smallFileSystem(t, "256k")
	o := options(t, filepath.Join(dir, "t"))
	var reported []error
	o.Failed = func(err error) { reported = append(reported, err) }
	synctest.Test(t, func(t *testing.T) {
		sf, want := open(t, o)
		fillUp(t, dir)
		for i := range 100 {
			record := fmt.Appendf(nil, "k%d=%d", i%7, i)
			sf.Append(record)
			_ = want.Apply(record)
		}
		if len(reported) != 1 || !errors.Is(reported[0], unix.ENOSPC) {
			t.Fatalf("Failed was called with %v, want once with ENOSPC", reported)
		}
		wantNoFiles(t, o.Path)
		time.Sleep(retryAfter) // fake time
		sf.Append([]byte("late=1"))
		_ = want.Apply([]byte("late=1"))
		if len(reported) != 2 || reported[1] != nil {
			t.Fatalf("Failed was called with %v, want nil at the end", reported)
		}
		sf.Close()
		_, got := open(t, o)
		wantState(t, "after the restart", got, want)
	})
}

// If /run is full, Open uses the space of the old state file for the new one, so a restart loses
// nothing.
func TestNoSpaceAtOpen(t *testing.T) {
	dir := smallFileSystem(t, "256k")
	o := options(t, filepath.Join(dir, "t"))
	o.MinSize = 64 << 10
	before, want := open(t, o)
	for _, record := range []string{"a=1", "b=2"} {
		before.Append([]byte(record))
		_ = want.Apply([]byte(record))
	}
	before.Close()
	fillUp(t, dir)
	after, got := open(t, o)
	wantState(t, "in a full file system", got, want)
	after.Append([]byte("c=3"))
	_ = want.Apply([]byte("c=3"))
	after.Close()
	_, got = open(t, o)
	wantState(t, "once more", got, want)
}

// As TestNoSpace, if the process can open no more files.
func TestNoDescriptors(t *testing.T) {
	testShortage(t, unix.EMFILE, func(t *testing.T, _ string) (over func()) {
		var before unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		over = sync.OnceFunc(func() {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
				t.Fatal(err)
			}
		})
		t.Cleanup(over)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		return over
	}, (*File).Close)
}

// If the file was truncated, it does not have the whole state, so writing stops for good when no other
// file can be written.
func TestTruncatedFileStopsWriting(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	reported := recordFailures(&o)
	sf, want := open(t, o)
	fill(t, sf, want)
	blockFile(t, o.Path, 3)
	if err := os.Truncate(sf.path(2), 0); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		sf.Append(fmt.Appendf(nil, "a=%d", i))
	}
	if *reported != "lost " {
		t.Errorf("Failed was called with %q, want that the state is lost", *reported)
	}
	sf.Close()
	wantNoFiles(t, o.Path)
}

// A mapping keeps the memory of a removed file. So it ends when the file is replaced, when no file can
// be written, when a new file cannot be used, and at Close.
func TestMappingsEnd(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	mapped := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(maps), o.Path+".")
	}
	sf, want := open(t, o)
	for range 5 {
		fill(t, sf, want)
	}
	if n := mapped(); n != 1 {
		t.Errorf("after rewrites %d files are mapped, want one", n)
	}
	if err := os.MkdirAll(filepath.Join(sf.path(sf.number+1), "full"), 0o700); err != nil { // a new file is not renamed
		t.Fatal(err)
	}
	for i := 0; sf.active != nil; i++ {
		sf.Append(fmt.Appendf(nil, "a=%d", i))
	}
	if n := mapped(); n != 0 {
		t.Errorf("with the state in memory %d files are mapped, want none", n)
	}
	sf.Close()
	o = options(t, filepath.Join(t.TempDir(), "t"))
	sf, _ = open(t, o)
	sf.Close()
	if n := mapped(); n != 0 {
		t.Errorf("after Close %d files are mapped, want none", n)
	}
}
