package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recordFailures sets Failed, and returns a text with a word for each of its calls.
func recordFailures(o *Options) *string {
	all := new(string)
	o.Failed = func(err error) {
		switch {
		case err == nil:
			*all += "over "
		case strings.Contains(err.Error(), "only a restart of redlockd"):
			*all += "lost "
		default:
			*all += "removed "
		}
	}
	return all
}

// fill appends until the file was replaced.
func fill(t *testing.T, sf *File, want words) {
	t.Helper()
	number := sf.number
	for i := 0; sf.number == number; i++ {
		if i == 1000 {
			t.Fatal("the file was not replaced")
		}
		record := fmt.Appendf(nil, "k%d=%d", len(want)%3, sf.number)
		sf.Append(record)
		_ = want.Apply(record)
		settle(sf)
	}
}

// stages are moments in the life of a state file.
var stages = map[string]func(t *testing.T, sf *File, want words){
	"the first file": func(*testing.T, *File, words) {},
	"the second":     fill,
	"one with appended records": func(t *testing.T, sf *File, want words) {
		fill(t, sf, want)
		sf.Append([]byte("more=1"))
		_ = want.Apply([]byte("more=1"))
	},
}

// If the file was removed, Check writes the whole state again, and reports that.
func TestCheckFindsRemovedFiles(t *testing.T) {
	for name, reach := range stages {
		for _, removed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", removed), func(t *testing.T) {
				o := options(t, filepath.Join(t.TempDir(), "t"))
				reported := recordFailures(&o)
				sf, want := open(t, o)
				reach(t, sf, want)
				wantSaid := ""
				if removed {
					wantSaid = "removed over "
					if err := os.Remove(sf.path(sf.number)); err != nil {
						t.Fatal(err)
					}
				}
				sf.Check()
				sf.Check()
				if *reported != wantSaid {
					t.Errorf("Failed was called with %q, want %q", *reported, wantSaid)
				}
				sf.Append([]byte("late=1"))
				_ = want.Apply([]byte("late=1"))
				sf.Close()
				_, got := open(t, o)
				wantState(t, "after the restart", got, want)
			})
		}
	}
}

// Appends do not notice that the file is truncated. Check does: it reports that, and removes the file,
// because the next process would take a part of the state for all of it.
func TestCheckFindsTruncatedFiles(t *testing.T) {
	for name, reach := range stages {
		for _, left := range []int64{0, 100, 255, -1} {
			t.Run(fmt.Sprint(name, " ", left), func(t *testing.T) {
				o := options(t, filepath.Join(t.TempDir(), "t"))
				reported := recordFailures(&o)
				sf, want := open(t, o)
				reach(t, sf, want)
				sf.Check()
				if *reported != "" {
					t.Fatalf("Failed was called with %q for a whole file", *reported)
				}
				if left < 0 {
					left = sf.active.size - 1
				}
				if err := os.Truncate(sf.path(sf.number), left); err != nil {
					t.Fatal(err)
				}
				sf.Append([]byte("a=1")) // the file becomes longer
				sf.Check()
				sf.Check()
				if *reported != "lost " {
					t.Errorf("Failed was called with %q, want %q", *reported, "lost ")
				}
				wantNoFiles(t, o.Path)
				sf.Close()
			})
		}
	}
}

// Check reports nothing if the state file is frozen.
func TestCheckWhenFrozen(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	reported := recordFailures(&o)
	sf, _ := open(t, o)
	sf.Freeze()
	if err := os.Remove(sf.path(sf.number)); err != nil {
		t.Fatal(err)
	}
	sf.Check()
	if *reported != "" {
		t.Errorf("Failed was called with %q", *reported)
	}
}

// After Close, Check does not report a file that somebody removes.
func TestCheckAfterClose(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	reported := recordFailures(&o)
	sf, want := open(t, o)
	fill(t, sf, want)
	sf.Close()
	Remove(o.Path)
	sf.Check()
	if *reported != "" {
		t.Errorf("Failed was called with %q", *reported)
	}
}

// If the file was removed, and somebody wrote into it, Check begins no new file: the state is not
// known.
func TestCheckOfADamagedFile(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	reported := recordFailures(&o)
	sf, _ := open(t, o)
	damageNext(t, sf)
	if err := os.Remove(sf.path(sf.number)); err != nil {
		t.Fatal(err)
	}
	sf.Check()
	if *reported != "lost " {
		t.Errorf("Failed was called with %q, want %q", *reported, "lost ")
	}
	sf.Append([]byte("b=1"))
	wantNoFiles(t, o.Path)
}

// damageNext appends a record, and changes its length in the file to more than 64 KiB.
func damageNext(t *testing.T, sf *File) {
	t.Helper()
	at := sf.active.used
	sf.Append([]byte("a=1"))
	if _, err := sf.active.WriteAt([]byte{1}, at+2); err != nil {
		t.Fatal(err)
	}
}

// Check does nothing during a rewrite, which replaces the file itself.
func TestCheckWhileRewriting(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	reported := recordFailures(&o)
	sf, _ := open(t, o)
	if err := os.Remove(sf.path(sf.number)); err != nil {
		t.Fatal(err)
	}
	sf.rewriting = make(chan struct{})
	sf.Check()
	if *reported != "" {
		t.Errorf("during the rewrite Failed was called with %q", *reported)
	}
	sf.rewriting = nil
	sf.Check()
	if *reported != "removed over " {
		t.Errorf("Failed was called with %q", *reported)
	}
	sf.Close()
}

// InUse finds the file of a living process, also after rewrites. It finds none after Close, and after
// the end of the process.
func TestInUse(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	wantInUse(t, o, "before the first file", "")
	sf, want := open(t, o)
	wantInUse(t, o, "the first file", sf.path(1))
	fill(t, sf, want)
	fill(t, sf, want)
	wantInUse(t, o, "later", sf.path(3))
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

// If somebody removes the file of a living process, and another process begins a state file at the
// same path, the first process leaves that file alone, whatever its number is, and also if it would
// replace its own file now.
func TestFilesOfAnotherProcessStay(t *testing.T) {
	for before := range 3 { // number of files before
		for _, replaces := range []bool{false, true} {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			var why error
			o.Failed = func(err error) { why = err }
			first, want := open(t, o)
			for range before {
				fill(t, first, want)
			}
			Remove(o.Path)
			o.Failed = nil
			second, _ := open(t, o)
			second.Append([]byte("k=second"))
			if replaces {
				first.startRewriteLocked(0)
				settle(first)
			}
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
}
