package statefile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// If no file can be written, the old ones are removed, because they would soon be out of date. When
// files can be written again, they have the whole state.
func TestNoFiles(t *testing.T) { testShortage(t, os.ErrExist, blockNewFiles, (*File).Freeze) }

// testShortage checks that the state is kept in memory while no file can be created, because of
// shortage, and that it is written when that is over. why is the expected error.
func testShortage(t *testing.T, why error, shortage func(t *testing.T, path string) (over func()), end func(*File)) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	var reported []error
	o.Failed = func(err error) { reported = append(reported, err) }
	synctest.Test(t, func(t *testing.T) {
		sf, want := open(t, o)
		fill := func(n int) {
			for i := range n {
				record := fmt.Appendf(nil, "k%d=%d", i%7, rand.Int())
				sf.Append(record)
				_ = want.Apply(record)
			}
		}
		fill(100)
		synctest.Wait() // until no rewrite is in progress
		over := shortage(t, o.Path)
		fillInVain := func(n int) {
			fill(n)
			synctest.Wait()
			if len(reported) != 1 || !errors.Is(reported[0], why) {
				t.Fatalf("Failed was called with %v, want once with %v", reported, why)
			}
			wantNoFiles(t, o.Path)
		}
		fillInVain(101)
		time.Sleep(retryAfter) // fake time
		fillInVain(102)
		over()
		fill(103)
		if len(reported) != 1 {
			t.Fatalf("Failed was called with %v: writing was retried at once", reported)
		}
		time.Sleep(retryAfter)
		fill(1)
		if len(reported) != 2 || reported[1] != nil {
			t.Fatalf("Failed was called with %v, want nil at the end", reported)
		}
		fill(104)
		synctest.Wait()
		end(sf)
		_, got := open(t, o)
		wantState(t, "after the restart", got, want)
	})
}

// The record for which no file can be created is kept, like the ones after it.
func TestNoFileForARecord(t *testing.T) {
	for what, suffix := range map[string]string{"it cannot be created": incompleteSuffix, "it cannot be renamed": ""} {
		t.Run(what, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			o.MinSize = 1 << 10
			sf, want := open(t, o)
			if err := os.MkdirAll(filepath.Join(sf.path(2)+suffix, "full"), 0o700); err != nil {
				t.Fatal(err)
			}
			for i := 0; sf.active != nil; i++ {
				record := fmt.Appendf(nil, "k%d=1", i)
				sf.Append(record)
				_ = want.Apply(record)
			}
			wantState(t, "in memory", sf.inMemory.(words), want)
		})
	}
}

// wantNoFiles fails the test if there is a file at the path. It ignores the directories of
// blockNewFiles.
func wantNoFiles(t *testing.T, path string) {
	t.Helper()
	all, err := filepath.Glob(path + ".*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if info, err := os.Lstat(file); err == nil && !info.IsDir() {
			t.Fatalf("the file %s is left, want none", file)
		}
	}
}

// If a state file cannot be written, the old one is removed: the next process would continue with a
// state that is out of date.
func TestOldFilesAreRemoved(t *testing.T) {
	for what, how := range map[string]func(o Options){
		"by Open": func(o Options) {
			if err := os.Mkdir(o.Path+".2"+incompleteSuffix, 0o700); err != nil { // blocks the name of a new file
				t.Fatal(err)
			}
			if err := os.WriteFile(o.Path+".2"+incompleteSuffix+"/in", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, state, _, err := Open(o); err == nil || state.(words)["a"] != "1" {
				t.Errorf("got error %v and state %v, want an error and the earlier state", err, state)
			}
		},
		"by Remove": func(o Options) { Remove(o.Path) },
	} {
		o := options(t, filepath.Join(t.TempDir(), "t"))
		writeFile(t, o, 1, "a=1")
		if err := os.WriteFile(o.Path+".3"+incompleteSuffix, nil, 0o600); err != nil { // incomplete
			t.Fatal(err)
		}
		how(o)
		for _, suffix := range []string{".1", ".3" + incompleteSuffix} {
			if _, err := os.Stat(o.Path + suffix); err == nil {
				t.Errorf("%s: the old file %s still exists", what, suffix)
			}
		}
	}
}

// blockNewFiles blocks the names of new files with directories.
func blockNewFiles(t *testing.T, path string) (free func()) {
	t.Helper()
	var all []string
	for n := range 200 {
		all = append(all, fmt.Sprint(path, ".", n, incompleteSuffix))
		if err := os.MkdirAll(filepath.Join(all[n], "full"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, dir := range all {
			os.RemoveAll(dir)
		}
	}
}

// Open fails, with an empty state, if the directory does not exist.
func TestNoDirectory(t *testing.T) {
	_, state, _, err := Open(options(t, filepath.Join(t.TempDir(), "no", "t")))
	if err == nil || state == nil {
		t.Errorf("got state %v and error %v, want an empty one and an error", state, err)
	}
}
