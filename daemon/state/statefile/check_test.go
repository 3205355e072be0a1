package statefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// told is what Failed was told, a word each.
func told(o *Options) *string {
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

// Where files were removed, all is there again after Look: which is told.
func TestCheckFindsRemovedFiles(t *testing.T) {
	for name, removed := range map[string]func(sf *File) []int{
		"nothing":        func(*File) []int { return nil },
		"the last":       func(sf *File) []int { return []int{sf.number} },
		"one before it":  func(sf *File) []int { return []int{sf.sealed[len(sf.sealed)-1].number} },
		"all but merged": func(sf *File) []int { return append(sf.numbers()[1:], sf.number) },
		"the merged":     func(sf *File) []int { return sf.numbers()[:1] },
		"all":            func(sf *File) []int { return append(sf.numbers(), sf.number) },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			said := told(&o)
			sf, want := open(t, o)
			fill(t, sf, want)
			sf.merges.Wait() // merged
			sf.merging = true
			for i := 0; len(sf.sealed) < 3; i++ { // and not these
				record := fmt.Appendf(nil, "more%d=1", i%5)
				sf.Append(record)
				_ = want.Apply(record)
				sf.merges.Wait()
			}
			sf.merging = false
			for _, number := range removed(sf) {
				if err := os.Remove(sf.path(number)); err != nil {
					t.Fatal(err)
				}
			}
			sf.Check()
			sf.Check()
			wantSaid := "removed over "
			if name == "nothing" {
				wantSaid = ""
			}
			if *said != wantSaid {
				t.Errorf("told %q, want %q", *said, wantSaid)
			}
			sf.Append([]byte("late=1"))
			_ = want.Apply([]byte("late=1"))
			sf.Close()
			_, got := open(t, o)
			wantState(t, "after the restart", got, want)
		})
	}
}

// A file that is cut within a page is appended to as if nothing were, and the rest of it
// is gone: Look tells, and rather nothing is left than what seems to be all.
func TestCheckFindsCutFiles(t *testing.T) {
	for name, which := range map[string]func(sf *File) int{
		"the last":   func(sf *File) int { return sf.number },
		"a full one": func(sf *File) int { return sf.sealed[len(sf.sealed)-1].number },
		"the merged": func(sf *File) int { return sf.numbers()[0] },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			said := told(&o)
			sf, want := open(t, o)
			fill(t, sf, want)
			sf.merges.Wait()
			sf.merging = true
			for number := sf.number; sf.number == number; {
				sf.Append([]byte("more=1"))
			}
			sf.merging = false
			sf.Check()
			if *said != "" {
				t.Fatalf("told %q of files that are whole", *said)
			}
			file := sf.path(which(sf))
			info, err := os.Stat(file)
			if err == nil {
				err = os.Truncate(file, info.Size()-1)
			}
			if err != nil {
				t.Fatal(err)
			}
			sf.Check()
			sf.Check()
			if *said != "lost " {
				t.Errorf("told %q, want %q", *said, "lost ")
			}
			wantNoFiles(t, o.Path)
		})
	}
}

// A state file that is frozen holds nobody up who looks at it.
func TestCheckWhenFrozen(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	said := told(&o)
	sf, _ := open(t, o)
	sf.Freeze()
	if err := os.Remove(sf.path(sf.number)); err != nil {
		t.Fatal(err)
	}
	sf.Check()
	if *said != "" {
		t.Errorf("told %q", *said)
	}
}

// One that was left has nothing to say of files that somebody removes later.
func TestCheckAfterClose(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	said := told(&o)
	sf, want := open(t, o)
	fill(t, sf, want)
	sf.Close()
	Remove(o.Path)
	sf.Check()
	if *said != "" {
		t.Errorf("told %q", *said)
	}
}

// Where files were removed, and what is in memory of the others was written into, nothing is
// begun anew of the rest.
func TestCheckOfSpoiledFiles(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	said := told(&o)
	sf, _ := open(t, o)
	spoiled := sf.active.used
	sf.Append([]byte("a=1"))
	sf.active.memory[spoiled+2] = 1 // a record of 64 KiB
	if err := os.Remove(sf.path(sf.number)); err != nil {
		t.Fatal(err)
	}
	sf.Check()
	if *said != "lost " {
		t.Errorf("told %q, want %q", *said, "lost ")
	}
	sf.Append([]byte("b=1"))
	wantNoFiles(t, o.Path)
}

// While files are being made one, some are about to be removed.
func TestCheckWhileMerging(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	said := told(&o)
	sf, _ := open(t, o)
	if err := os.Remove(sf.path(sf.number)); err != nil {
		t.Fatal(err)
	}
	sf.merging = true
	sf.Check()
	if *said != "" {
		t.Errorf("told %q meanwhile", *said)
	}
	sf.merging = false
	sf.Check()
	if *said != "removed over " {
		t.Errorf("told %q", *said)
	}
	sf.Close()
}
