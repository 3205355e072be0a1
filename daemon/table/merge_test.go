package table

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Files that are made one while they are read come to the same state.
func TestReplayWhileMerging(t *testing.T) {
	for range 100 {
		table, _, _, err := Open(options(t, filepath.Join(t.TempDir(), "t")))
		if err != nil {
			t.Fatal(err)
		}
		table.mu.Lock()
		table.busy = true // nothing is made one yet
		table.mu.Unlock()
		want := words{}
		for i := range 60 {
			record := fmt.Appendf(nil, "key%d", i/2)
			if i%4 < 3 {
				record = append(record, "=value"...)
			}
			table.Append(record)
			if err := want.Apply(record); err != nil {
				t.Fatal(err)
			}
		}
		table.mu.Lock()
		table.appendToNext([]byte("last=1"))
		want["last"] = "1"
		table.frozen = append(table.frozen, frozen{table.number, table.last})
		table.last = nil
		files := slices.Clone(table.frozen[:len(table.frozen)-1])
		var merging sync.WaitGroup
		merging.Go(func() { table.merge(files) })
		for range 5 {
			if got, err := table.replayOurs(); err != nil || !maps.Equal(got.(words), want) {
				t.Fatalf("got %v, %v; want %v", got, err, want)
			}
		}
		table.mu.Unlock()
		merging.Wait()
	}
}

// Where somebody removes files that count, those that follow do not pile up, and what is
// not all does not seem to be.
func TestFilesThatAreRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t")
	o := options(t, path)
	var failed []error
	o.Failed = func(err error) { failed = append(failed, err) }
	table, _, _, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	table.Append([]byte("first=1"))
	if err := os.Remove(path + ".1"); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		table.Append(fmt.Appendf(nil, "key%d=value", i))
		table.compacting.Wait()
	}
	table.Leave()
	if len(failed) != 1 || !strings.Contains(failed[0].Error(), "removed") {
		t.Errorf("told %v, want once that files were removed", failed)
	}
	if files, _ := numbered(path); len(files) > 0 {
		t.Errorf("left the files %v, want none", files)
	}
}
