package statefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// told sets Failed, and returns a text with a word for each of its calls.
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

// If files were removed, Check writes the whole state again, and reports that.
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
			sf.merges.Wait() // the sealed files are merged into one
			sf.merging = true
			for i := 0; len(sf.sealed) < 3; i++ { // these are not merged
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

// If a file is truncated within a page, appends do not notice it. Check does: it reports that, and
// removes all files, because the next process would take a part of the state for all of it.
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

// Check returns at once, and reports nothing, if the state file is frozen.
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

// After Close, Check does not report files that somebody removes.
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

// If files were removed, and somebody wrote into a mapping, Check begins no new file: the state is not
// known.
func TestCheckOfSpoiledFiles(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	said := told(&o)
	sf, _ := open(t, o)
	spoiled := sf.active.used
	sf.Append([]byte("a=1"))
	sf.active.memory[spoiled+2] = 1 // changes the length of the record to 64 KiB
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

// Check does nothing during a merge, which removes files itself.
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
