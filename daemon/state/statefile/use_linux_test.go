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
	table, _ := open(t, o)
	wantUse(t, o, "the first file", table.file(1))
	for i := range 500 {
		table.Append(fmt.Appendf(nil, "k%d=%d", i%5, i))
	}
	table.compacting.Wait()
	if table.number < 3 {
		t.Fatalf("there were %d files, want 3 at least", table.number)
	}
	wantUse(t, o, "later", table.file(table.number))
	table.Leave()
	wantUse(t, o, "after it has left", "")
	next, _ := open(t, o)
	wantUse(t, o, "the next one", next.file(next.number))
	next.last.close() // as its end would
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
// table there since, the first one leaves that alone, whatever its files are called.
// Guards Table.displaced, Table.yield.
func TestDisplaced(t *testing.T) {
	for before := range 3 { // so many files that were full
		o := options(t, filepath.Join(t.TempDir(), "t"))
		var why error
		o.Failed = func(err error) { why = err }
		first, _ := open(t, o)
		for first.number <= before {
			first.Append([]byte("k=first"))
		}
		first.compacting.Wait()
		Remove(o.Path)
		o.Failed = nil
		second, _ := open(t, o)
		second.Append([]byte("k=second"))
		first.Look()
		if !errors.Is(why, ErrRemoved) {
			t.Errorf("after %d files: failed with %v, want that they were removed", before, why)
		}
		first.Append([]byte("k=first"))
		first.Leave()
		wantUse(t, o, "later", second.file(second.number))
		second.Leave()
		if _, state := open(t, o); state["k"] != "second" {
			t.Errorf("after %d files: the second one has left %v", before, state)
		}
	}
}
