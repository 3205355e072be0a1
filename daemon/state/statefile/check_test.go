package statefile

import (
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

// If files were removed, Check writes the whole state again, and reports that.
func TestCheckFindsRemovedFiles(t *testing.T) {
	for name, removed := range map[string]func(sf *File) []int{
		"nothing":                   func(*File) []int { return nil },
		"the last":                  func(sf *File) []int { return []int{sf.number} },
		"the one before the last":   func(sf *File) []int { return []int{sf.sealed[len(sf.sealed)-1].number} },
		"all except the merged one": func(sf *File) []int { return append(sf.numbers()[1:], sf.number) },
		"the merged":                func(sf *File) []int { return sf.numbers()[:1] },
		"all":                       func(sf *File) []int { return append(sf.numbers(), sf.number) },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			reported := recordFailures(&o)
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

// If a file is truncated within a page, appends do not notice it. Check does: it reports that, and
// removes all files, because the next process would take a part of the state for all of it.
func TestCheckFindsTruncatedFiles(t *testing.T) {
	for name, which := range map[string]func(sf *File) int{
		"the last":   func(sf *File) int { return sf.number },
		"a full one": func(sf *File) int { return sf.sealed[len(sf.sealed)-1].number },
		"the merged": func(sf *File) int { return sf.numbers()[0] },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			reported := recordFailures(&o)
			sf, want := open(t, o)
			fill(t, sf, want)
			sf.merges.Wait()
			sf.merging = true
			for number := sf.number; sf.number == number; {
				sf.Append([]byte("more=1"))
			}
			sf.merging = false
			sf.Check()
			if *reported != "" {
				t.Fatalf("Failed was called with %q for whole files", *reported)
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
			if *reported != "lost " {
				t.Errorf("Failed was called with %q, want %q", *reported, "lost ")
			}
			wantNoFiles(t, o.Path)
		})
	}
}

// Check returns at once, and reports nothing, if the state file is frozen.
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

// After Close, Check does not report files that somebody removes.
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

// If files were removed, and somebody wrote into a mapping, Check begins no new file: the state is not
// known.
func TestCheckWithADamagedMapping(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	reported := recordFailures(&o)
	sf, _ := open(t, o)
	damaged := sf.active.used
	sf.Append([]byte("a=1"))
	sf.active.memory[damaged+2] = 1 // changes the length of the record to 64 KiB
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

// Check does nothing during a merge, which removes files itself.
func TestCheckWhileMerging(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	reported := recordFailures(&o)
	sf, _ := open(t, o)
	if err := os.Remove(sf.path(sf.number)); err != nil {
		t.Fatal(err)
	}
	sf.merging = true
	sf.Check()
	if *reported != "" {
		t.Errorf("during the merge Failed was called with %q", *reported)
	}
	sf.merging = false
	sf.Check()
	if *reported != "removed over " {
		t.Errorf("Failed was called with %q", *reported)
	}
	sf.Close()
}
