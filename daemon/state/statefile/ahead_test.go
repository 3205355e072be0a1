package statefile

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever fills a file goes on in one that is there already. Guards lookAhead.
func TestNextFileIsMadeAhead(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	table, want := open(t, o)
	for i := range 1000 {
		record := fmt.Appendf(nil, "k%d=%d", i%7, i)
		spare, number := table.spare, table.number
		table.Append(record)
		_ = want.Apply(record)
		table.compacting.Wait()
		if table.number != number && (spare == nil || table.last != spare) {
			t.Fatalf("file %d was made when it was needed", table.number)
		}
	}
	if table.number < 20 {
		t.Errorf("only %d files were begun", table.number)
	}
	table.Freeze()
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// The spare file does not stay when nobody goes on, and whoever removes it does no harm.
func TestSpareFile(t *testing.T) {
	for what, end := range map[string]func(o Options, table *Table, want words){
		"removed by Leave": func(o Options, table *Table, _ words) { table.Leave() },
		"removed by the next Open": func(o Options, table *Table, _ words) {
			table.Freeze()
			next, _ := open(t, o)
			next.Leave()
		},
		"too small for what comes": func(o Options, table *Table, want words) {
			big := []byte("big=" + strings.Repeat("1", 2*len(table.spare.memory)))
			table.Append(big)
			_ = want.Apply(big)
			table.compacting.Wait()
			table.Leave()
		},
		"of no use, as the last one was cut short": func(o Options, table *Table, want words) {
			if err := os.Truncate(table.last.path, 0); err != nil {
				t.Fatal(err)
			}
			table.Append([]byte("a=1"))
			clear(want)
		},
		"removed by somebody": func(o Options, table *Table, want words) {
			if err := os.Remove(table.spare.path); err != nil {
				t.Fatal(err)
			}
			fill(t, table, want)
			table.Leave()
		},
	} {
		t.Run(what, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			table, want := open(t, o)
			fill(t, table, want)
			end(o, table, want)
			if left, _ := filepath.Glob(o.Path + ".*" + asideSuffix); len(left) > 0 {
				t.Errorf("left %v", left)
			}
			_, got := open(t, o)
			wantState(t, "after the restart", got, want)
		})
	}
}

// fill appends until another file was begun, and there is a spare one.
func fill(t *testing.T, table *Table, want words) {
	t.Helper()
	number := table.number
	for i := 0; table.number == number || table.spare == nil; i++ {
		if i == 1000 {
			t.Fatal("there comes no spare file")
		}
		record := fmt.Appendf(nil, "k%d=%d", len(want)%3, table.number)
		table.Append(record)
		table.compacting.Wait()
		_ = want.Apply(record)
	}
}

// Files that are not what was written are left as they are: what follows is noted, and
// the fault is found by whoever reads them.
func TestFaultWhileMerging(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	table, want := open(t, o)
	fault := table.last.used
	table.Append([]byte("a=1"))
	table.last.memory[fault+2] = 1 // a record of 64 KiB
	for table.number < 4 {
		table.Append([]byte("b=" + strings.Repeat("1", 50)))
		table.compacting.Wait()
	}
	table.Freeze()
	files, err := numbered(o.Path)
	if err != nil || len(files) != 4 {
		t.Errorf("found the files %v, %v, want all four", files, err)
	}
	_, got, damage, err := Open(o)
	if damage == nil || err != nil || !maps.Equal(got.(words), want) {
		t.Errorf("got %v, damage %v, error %v; want what was before the fault, %v", got, damage, err, want)
	}
}
