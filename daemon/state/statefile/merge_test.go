package statefile

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Reading the mappings during a merge of their files returns the same state.
func TestReadWhileMerging(t *testing.T) {
	for range 100 {
		sf, _, _, err := Open(options(t, filepath.Join(t.TempDir(), "t")))
		if err != nil {
			t.Fatal(err)
		}
		sf.mu.Lock()
		sf.merging = true // so that no merge begins yet
		sf.mu.Unlock()
		want := words{}
		for i := range 60 {
			record := fmt.Appendf(nil, "key%d", i/2)
			if i%4 < 3 {
				record = append(record, "=value"...)
			}
			sf.Append(record)
			if err := want.Apply(record); err != nil {
				t.Fatal(err)
			}
		}
		sf.mu.Lock()
		sf.appendToNext([]byte("last=1"))
		want["last"] = "1"
		files := slices.Clone(sf.sealed)
		var merging sync.WaitGroup
		merging.Go(func() { sf.merge(files) })
		for range 5 {
			if got, err := sf.stateOfMappings(); err != nil || !maps.Equal(got.(words), want) {
				t.Fatalf("got %v, %v; want %v", got, err, want)
			}
		}
		sf.mu.Unlock()
		merging.Wait()
	}
}

// If somebody removes a file, writing stops and no file stays: later files do not pile up, and the
// next process does not take a part of the state for all of it.
func TestRemovedFileStopsWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t")
	o := options(t, path)
	var failed []error
	o.Failed = func(err error) { failed = append(failed, err) }
	sf, _, _, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	sf.Append([]byte("first=1"))
	if err := os.Remove(path + ".1"); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		sf.Append(fmt.Appendf(nil, "key%d=value", i))
		sf.merges.Wait()
	}
	sf.Close()
	if len(failed) != 1 || !strings.Contains(failed[0].Error(), "removed") {
		t.Errorf("Failed was called with %v, want once with removed files", failed)
	}
	if files, _ := fileNumbers(path); len(files) > 0 {
		t.Errorf("the files %v are left, want none", files)
	}
}

// blockFile blocks creating or merging the file with a number.
func blockFile(t *testing.T, path string, number int) (free func()) {
	t.Helper()
	dir := fmt.Sprint(path, ".", number, incompleteSuffix)
	if err := os.MkdirAll(filepath.Join(dir, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() { os.RemoveAll(dir) }
}

// Files that could not be merged are merged later. Nothing is lost, and files do not pile up.
func TestFailedMergeIsRetried(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, want := open(t, o)
	fill(t, sf, want)
	free := blockFile(t, o.Path, sf.number)
	for range 2 {
		fill(t, sf, want)
	}
	free()
	for range 5 {
		fill(t, sf, want)
	}
	sf.merges.Wait()
	sf.Freeze()
	if files, err := fileNumbers(o.Path); err != nil || len(files) > 2 {
		t.Errorf("there are the files %v, %v; want at most 2", files, err)
	}
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// No new file begins during a merge, which would remove the files that the merge works on.
func TestNoNewFileWhileMerging(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, want := open(t, o)
	sf.mu.Lock()
	sf.switchToMemory(want, errShort)
	sf.merging, sf.lastRetry = true, time.Time{}
	sf.mu.Unlock()
	for _, busy := range []bool{true, false} {
		sf.merging = busy
		sf.Append([]byte("a=1"))
		if inMemory := sf.active == nil; inMemory != busy {
			t.Errorf("during a merge: %v; the state is in memory: %v", busy, inMemory)
		}
	}
	sf.Close()
}

// A leftover file with the temporary name of a new file is replaced.
func TestLeftoverIsReplaced(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, want := open(t, o)
	for number := range 10 {
		if err := os.WriteFile(sf.path(number)+incompleteSuffix, []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		fill(t, sf, want)
	}
	sf.Close()
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// If somebody writes into a merged file, the process does not end. The next merge fails, and the
// next process finds the fault.
func TestFaultInAMergedFile(t *testing.T) {
	for what, fault := range map[string]func(content []byte) []byte{
		"another":  func([]byte) []byte { return []byte("not a state file") },
		"one byte": func(content []byte) []byte { content[len(content)-5]++; return content },
	} {
		t.Run(what, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			sf, want := open(t, o)
			fill(t, sf, want)
			if len(sf.sealed) != 1 || !sf.sealed[0].segment.merged {
				t.Fatalf("the files are %+v, want one that was merged", sf.sealed)
			}
			path := sf.path(sf.sealed[0].number)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, fault(content), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				fill(t, sf, want)
			}
			sf.Freeze()
			if _, _, damage, err := Open(o); damage == nil || err != nil {
				t.Errorf("damage %v, error %v; want damage", damage, err)
			}
		})
	}
}

// The next file is as large as the merged one. Otherwise merges would copy it too often.
func TestSizeBesideAMergedFile(t *testing.T) {
	sf, _ := open(t, options(t, filepath.Join(t.TempDir(), "t")))
	for i := range 200 {
		sf.Append(fmt.Appendf(nil, "key%d=value", i))
		sf.merges.Wait()
	}
	if merged := len(sf.sealed[0].segment.memory); merged < 1000 || sf.size != merged {
		t.Errorf("the next file has %d bytes, want as many as the merged one, %d", sf.size, merged)
	}
	sf.Close()
}

// writeNew returns the error if a file was only written in part.
func TestWriteNewReportsErrors(t *testing.T) {
	_, err := writeNew(filepath.Join(t.TempDir(), "t"), func(w io.Writer) error {
		w.Write([]byte("half"))
		return errShort
	})
	if !errors.Is(err, errShort) {
		t.Errorf("error %v, want %v", err, errShort)
	}
}

// fill appends until a new file was begun and the full ones are merged.
func fill(t *testing.T, sf *File, want words) {
	t.Helper()
	number := sf.number
	for i := 0; sf.number == number; i++ {
		if i == 1000 {
			t.Fatal("no new file was begun")
		}
		record := fmt.Appendf(nil, "k%d=%d", len(want)%3, sf.number)
		sf.Append(record)
		sf.merges.Wait()
		_ = want.Apply(record)
	}
}

// A full file with a fault is not merged. Later records are written nevertheless, and the next
// process finds the fault.
func TestFaultWhileMerging(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, want := open(t, o)
	fault := sf.active.used
	sf.Append([]byte("a=1"))
	sf.active.memory[fault+2] = 1 // changes the length of the record to 64 KiB
	for sf.number < 4 {
		sf.Append([]byte("b=" + strings.Repeat("1", 50)))
		sf.merges.Wait()
	}
	sf.Freeze()
	files, err := fileNumbers(o.Path)
	if err != nil || len(files) != 4 {
		t.Errorf("found the files %v, %v; want all four", files, err)
	}
	_, got, damage, err := Open(o)
	if damage == nil || err != nil || !maps.Equal(got.(words), want) {
		t.Errorf("got %v, damage %v, error %v; want the state before the fault, %v", got, damage, err, want)
	}
}
