package statefile

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// The last file of a living process is known to be in use, from the first one on and through
// others and their merging, and not once it has left or ended. Guards mapFile, segment.full.
func TestInUse(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	wantUse(t, o, "before the first one", "")
	sf, _ := open(t, o)
	wantUse(t, o, "the first file", sf.path(1))
	for i := range 500 {
		sf.Append(fmt.Appendf(nil, "k%d=%d", i%5, i))
	}
	sf.merges.Wait()
	if sf.number < 3 {
		t.Fatalf("there were %d files, want 3 at least", sf.number)
	}
	wantUse(t, o, "later", sf.path(sf.number))
	sf.Close()
	wantUse(t, o, "after it has left", "")
	next, _ := open(t, o)
	wantUse(t, o, "the next one", next.path(next.number))
	next.active.close() // as its end would
	wantUse(t, o, "after its end", "")
	wantUse(t, Options{Path: "/nowhere/t"}, "no directory", "")
}

func wantUse(t *testing.T, o Options, when, want string) {
	t.Helper()
	if got := InUse(o.Path); got != want {
		t.Errorf("%s %q is in use, want %q", when, got, want)
	}
}

// Where somebody has removed all files of a living process, and another one has begun a
// state file there since, the first one leaves that alone, whatever its files are called.
// Guards File.displaced, File.yield.
func TestDisplaced(t *testing.T) {
	for before := range 3 { // so many files that were full
		o := options(t, filepath.Join(t.TempDir(), "t"))
		var why error
		o.Failed = func(err error) { why = err }
		first, _ := open(t, o)
		for first.number <= before {
			first.Append([]byte("k=first"))
		}
		first.merges.Wait()
		Remove(o.Path)
		o.Failed = nil
		second, _ := open(t, o)
		second.Append([]byte("k=second"))
		first.Check()
		if !errors.Is(why, ErrRemoved) {
			t.Errorf("after %d files: failed with %v, want that they were removed", before, why)
		}
		first.Append([]byte("k=first"))
		first.Close()
		wantUse(t, o, "later", second.path(second.number))
		second.Close()
		if _, state := open(t, o); state["k"] != "second" {
			t.Errorf("after %d files: the second one has left %v", before, state)
		}
	}
}
