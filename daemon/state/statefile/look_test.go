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
		case strings.Contains(err.Error(), "start the daemon again"):
			*all += "lost "
		default:
			*all += "removed "
		}
	}
	return all
}

// Where files were removed, all is there again after Look: which is told.
func TestLook(t *testing.T) {
	for name, removed := range map[string]func(table *Table) []int{
		"nothing":        func(*Table) []int { return nil },
		"the last":       func(table *Table) []int { return []int{table.number} },
		"one before it":  func(table *Table) []int { return []int{table.frozen[len(table.frozen)-1].number} },
		"all but merged": func(table *Table) []int { return append(table.numbers()[1:], table.number) },
		"the merged":     func(table *Table) []int { return table.numbers()[:1] },
		"all":            func(table *Table) []int { return append(table.numbers(), table.number) },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			said := told(&o)
			table, want := open(t, o)
			fill(t, table, want)
			table.compacting.Wait() // merged
			table.busy = true
			for i := 0; len(table.frozen) < 3; i++ { // and not these
				record := fmt.Appendf(nil, "more%d=1", i%5)
				table.Append(record)
				_ = want.Apply(record)
				table.compacting.Wait()
			}
			table.busy = false
			for _, number := range removed(table) {
				if err := os.Remove(table.file(number)); err != nil {
					t.Fatal(err)
				}
			}
			table.Look()
			table.Look()
			wantSaid := "removed over "
			if name == "nothing" {
				wantSaid = ""
			}
			if *said != wantSaid {
				t.Errorf("told %q, want %q", *said, wantSaid)
			}
			table.Append([]byte("late=1"))
			_ = want.Apply([]byte("late=1"))
			table.Leave()
			_, got := open(t, o)
			wantState(t, "after the restart", got, want)
		})
	}
}

// A file that is cut within a page is appended to as if nothing were, and the rest of it
// is gone: Look tells, and rather nothing is left than what seems to be all.
func TestLookCutShort(t *testing.T) {
	for name, which := range map[string]func(table *Table) int{
		"the last":   func(table *Table) int { return table.number },
		"a full one": func(table *Table) int { return table.frozen[len(table.frozen)-1].number },
		"the merged": func(table *Table) int { return table.numbers()[0] },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			said := told(&o)
			table, want := open(t, o)
			fill(t, table, want)
			table.compacting.Wait()
			table.busy = true
			for number := table.number; table.number == number; {
				table.Append([]byte("more=1"))
			}
			table.busy = false
			table.Look()
			if *said != "" {
				t.Fatalf("told %q of files that are whole", *said)
			}
			file := table.file(which(table))
			info, err := os.Stat(file)
			if err == nil {
				err = os.Truncate(file, info.Size()-1)
			}
			if err != nil {
				t.Fatal(err)
			}
			table.Look()
			table.Look()
			if *said != "lost " {
				t.Errorf("told %q, want %q", *said, "lost ")
			}
			wantNoFiles(t, o.Path)
		})
	}
}

// A table that is frozen holds nobody up who looks at it.
func TestLookAtFrozen(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	said := told(&o)
	table, _ := open(t, o)
	table.Freeze()
	if err := os.Remove(table.file(table.number)); err != nil {
		t.Fatal(err)
	}
	table.Look()
	if *said != "" {
		t.Errorf("told %q", *said)
	}
}

// One that was left has nothing to say of files that somebody removes later.
func TestLookAfterLeave(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	said := told(&o)
	table, want := open(t, o)
	fill(t, table, want)
	table.Leave()
	Remove(o.Path)
	table.Look()
	if *said != "" {
		t.Errorf("told %q", *said)
	}
}

// Where files were removed, and what is in memory of the others was written into, nothing is
// begun anew of the rest.
func TestLookSpoiled(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	said := told(&o)
	table, _ := open(t, o)
	spoiled := table.last.used
	table.Append([]byte("a=1"))
	table.last.memory[spoiled+2] = 1 // a record of 64 KiB
	if err := os.Remove(table.file(table.number)); err != nil {
		t.Fatal(err)
	}
	table.Look()
	if *said != "lost " {
		t.Errorf("told %q, want %q", *said, "lost ")
	}
	table.Append([]byte("b=1"))
	wantNoFiles(t, o.Path)
}

// While files are being made one, some are about to be removed.
func TestLookWhileMerging(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	said := told(&o)
	table, _ := open(t, o)
	if err := os.Remove(table.file(table.number)); err != nil {
		t.Fatal(err)
	}
	table.busy = true
	table.Look()
	if *said != "" {
		t.Errorf("told %q meanwhile", *said)
	}
	table.busy = false
	table.Look()
	if *said != "removed over " {
		t.Errorf("told %q", *said)
	}
	table.Leave()
}
