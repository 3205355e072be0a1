package statefile

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// InUse finds the active file of a living process, also after later files and merges. It finds none
// after Close, and after the end of the process.
func TestInUse(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	wantInUse(t, o, "before the first file", "")
	sf, _ := open(t, o)
	wantInUse(t, o, "the first file", sf.path(1))
	for i := range 500 {
		sf.Append(fmt.Appendf(nil, "k%d=%d", i%5, i))
	}
	sf.merges.Wait()
	if sf.number < 3 {
		t.Fatalf("there were %d files, want at least 3", sf.number)
	}
	wantInUse(t, o, "later", sf.path(sf.number))
	sf.Close()
	wantInUse(t, o, "after Close", "")
	next, _ := open(t, o)
	wantInUse(t, o, "in the next process", next.path(next.number))
	next.active.close() // as the end of the process does
	wantInUse(t, o, "after its end", "")
	wantInUse(t, Options{Path: "/nowhere/t"}, "no directory", "")
}

func wantInUse(t *testing.T, o Options, when, want string) {
	t.Helper()
	if got := InUse(o.Path); got != want {
		t.Errorf("%s: %q is in use, want %q", when, got, want)
	}
}

// If somebody removes all files of a living process, and another process begins a state file at the
// same path, the first process leaves those files alone, whatever their numbers are.
func TestFilesOfAnotherProcessStay(t *testing.T) {
	for before := range 3 { // number of full files
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
			t.Errorf("after %d files: Failed was called with %v, want ErrRemoved", before, why)
		}
		first.Append([]byte("k=first"))
		first.Close()
		wantInUse(t, o, "later", second.path(second.number))
		second.Close()
		if _, state := open(t, o); state["k"] != "second" {
			t.Errorf("after %d files: the second process left %v", before, state)
		}
	}
}
