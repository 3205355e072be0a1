package statefile

import (
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// hooked is a state that calls a function in each Apply and before each Dump.
type hooked struct {
	words
	apply, dump func()
}

func (h hooked) Apply(record []byte) error {
	if h.apply != nil {
		h.apply()
	}
	return h.words.Apply(record)
}

func (h hooked) ApplyAll(records iter.Seq[[]byte]) error { return applyAll(h, records) }

func (h hooked) Dump(yield func([]byte)) {
	if h.dump != nil {
		h.dump()
	}
	h.words.Dump(yield)
}

// Records that are appended during a rewrite are in the new file.
func TestAppendsDuringARewrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, filepath.Join(t.TempDir(), "t"))
		o.MinSize = 1 << 10
		proceed := make(chan struct{})
		o.New = func() State { return hooked{words: words{}, dump: func() { <-proceed }} }
		begun := make(chan struct{})
		go func() {
			defer close(begun)
			sf, _, _, err := Open(o)
			if err != nil {
				t.Error(err)
				return
			}
			want := words{}
			put := func(record string) {
				sf.Append([]byte(record))
				_ = want.Apply([]byte(record))
			}
			for i := 0; sf.rewriting == nil; i++ {
				put(fmt.Sprintf("k%d=%d", i%5, i))
			}
			put("k1") // removes it
			put("late=1")
			close(proceed)
			synctest.Wait()
			if sf.number != 2 || sf.rewriting != nil {
				t.Errorf("the file has the number %d, want 2", sf.number)
			}
			put("later=1")
			sf.Close()
			o.New = func() State { return words{} }
			_, got := open(t, o)
			wantState(t, "after the restart", got, want)
		}()
		proceed <- struct{}{} // Open writes the first file
		<-begun
	})
}

// If the file is full before it was rewritten, appends wait for the rewrite.
func TestFullFileWaitsForTheRewrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, filepath.Join(t.TempDir(), "t"))
		sf, want := open(t, o)
		proceed := make(chan struct{})
		sf.o.New = func() State { return hooked{words: words{}, apply: func() { <-proceed }} }
		records := func(yield func([]byte) bool) {
			for i := range 40 {
				if !yield(fmt.Appendf(nil, "k%d=%d", i%5, i)) {
					return
				}
			}
		}
		appended := false
		go func() {
			for record := range records {
				sf.Append(record)
			}
			appended = true
		}()
		synctest.Wait()
		if appended || sf.number != 1 {
			t.Fatal("the appends do not wait, or the file was replaced")
		}
		close(proceed)
		synctest.Wait()
		if !appended || sf.active == nil {
			t.Fatalf("all were appended: %v; there is a file: %v", appended, sf.active != nil)
		}
		for record := range records {
			_ = want.Apply(record)
		}
		sf.Close()
		_, got := open(t, o)
		wantState(t, "after the restart", got, want)
	})
}

// A rewrite makes room for a record that is larger than the file.
func TestRecordLargerThanTheFile(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, want := open(t, o)
	large := "k=" + strings.Repeat("x", 100_000)
	for _, record := range []string{"a=1", large, "b=1", large} {
		sf.Append([]byte(record))
		_ = want.Apply([]byte(record))
	}
	sf.Freeze()
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// A large state doubles before it is rewritten. Otherwise rewrites would copy it too often.
func TestSizeOfTheFile(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, _ := open(t, o)
	for i := range 200 {
		sf.Append(fmt.Appendf(nil, "key%d=value", i))
	}
	settle(sf)
	sf.Close()
	sf, _ = open(t, o)
	if a := sf.active; a.used < 4000 || a.rewriteAbove < 2*a.used-10 || a.size < a.rewriteAbove*5/4 || a.size > 3*a.used {
		t.Errorf("got %+v, want a rewrite after twice the records, and room for a fifth beyond", a)
	}
	sf.Close()
}

// blockFile blocks writing the file with a number.
func blockFile(t *testing.T, path string, number int) (free func()) {
	t.Helper()
	dir := fmt.Sprint(path, ".", number, incompleteSuffix)
	if err := os.MkdirAll(filepath.Join(dir, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() { os.RemoveAll(dir) }
}

// A file that could not be rewritten is rewritten later. Nothing is lost, and nothing is reported if that
// is before it is full.
func TestFailedRewriteIsRetried(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	o.MinSize = 4 << 10
	reported := recordFailures(&o)
	sf, want := open(t, o)
	free := blockFile(t, o.Path, 2)
	put := func(i int) {
		record := fmt.Appendf(nil, "k%d=%d", i%3, i)
		sf.Append(record)
		_ = want.Apply(record)
		settle(sf)
	}
	i := 0
	for ; sf.rewriteErr == nil; i++ {
		put(i)
	}
	free()
	old := sf.active
	for ; sf.number == 1; i++ {
		put(i)
	}
	if old.used > old.size-100 {
		t.Errorf("it was rewritten when %d of %d bytes were used, want earlier", old.used, old.size)
	}
	if *reported != "" || sf.rewriteErr != nil {
		t.Errorf("Failed was called with %q; the last rewrite: %v", *reported, sf.rewriteErr)
	}
	sf.Freeze()
	if files, err := fileNumbers(o.Path); err != nil || !slices.Equal(files, []int{2}) {
		t.Errorf("there are the files %v, %v; want the second", files, err)
	}
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// No new file begins during a rewrite, which would have the same name as the one of the rewrite.
func TestNoNewFileWhileRewriting(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, _ := open(t, o)
	sf.continueInMemoryLocked(errCut)
	for _, busy := range []bool{true, false} {
		sf.lastRetry = sf.lastRetry.Add(-retryAfter)
		if sf.rewriting = nil; busy {
			sf.rewriting = make(chan struct{})
		}
		sf.Append([]byte("a=1"))
		if inMemory := sf.active == nil; inMemory != busy {
			t.Errorf("during a rewrite: %v; the state is in memory: %v", busy, inMemory)
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

// If somebody writes into the file, the process does not end. Later records are written nevertheless, and
// the next process finds the fault. When the file is full, writing stops for good.
func TestFaultInTheFile(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	o.MinSize = 4 << 10
	reported := recordFailures(&o)
	sf, want := open(t, o)
	sf.Append([]byte("before=1"))
	_ = want.Apply([]byte("before=1"))
	damageNext(t, sf)
	for i := 0; sf.rewriteErr == nil; i++ {
		sf.Append(fmt.Appendf(nil, "b=%d", i))
		settle(sf)
	}
	copied := options(t, filepath.Join(t.TempDir(), "t"))
	content, err := os.ReadFile(o.Path + ".1")
	if err == nil {
		err = os.WriteFile(copied.Path+".1", content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, got, damage, err := Open(copied)
	if damage == nil || err != nil || !maps.Equal(got.(words), want) || *reported != "" {
		t.Errorf("got %v, damage %v, error %v; want the state before the fault, %v; Failed was called with %q", got, damage, err, want, *reported)
	}
	for range 1000 {
		sf.Append([]byte("b=1"))
	}
	if *reported != "lost " {
		t.Errorf("Failed was called with %q, want once that the state is lost", *reported)
	}
	wantNoFiles(t, o.Path)
	sf.Close()
}

// If somebody truncates the file, the process does not end. A rewrite fails, and when the file is full,
// writing stops for good, as if the file had been removed.
func TestTruncatedFileDoesNotEndTheProcess(t *testing.T) {
	for _, during := range []string{"an append", "a rewrite"} {
		t.Run("during "+during, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			o.MinSize = 512 << 10 // more than a rewrite reads at once
			reported := recordFailures(&o)
			sf, _ := open(t, o)
			truncate := func() { _ = os.Truncate(o.Path+".1", 0) }
			if during == "an append" {
				truncate()
			} else {
				sf.o.New = func() State { return hooked{words: words{}, apply: truncate} }
			}
			large := strings.Repeat("x", 10_000)
			for i := range 60 {
				sf.Append(fmt.Appendf(nil, "k%d=%s", i, large))
				settle(sf)
			}
			if *reported != "lost " {
				t.Errorf("the last rewrite: %v; Failed was called with %q, want %q", sf.rewriteErr, *reported, "lost ")
			}
			wantNoFiles(t, o.Path)
			sf.Close()
			sf, got := open(t, options(t, o.Path))
			wantState(t, "the next start", got, words{})
			sf.Close()
		})
	}
}

// The removed file of a living process is replaced by the next rewrite, and nothing is lost.
func TestRewriteOfARemovedFile(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	reported := recordFailures(&o)
	sf, want := open(t, o)
	if err := os.Remove(sf.path(1)); err != nil {
		t.Fatal(err)
	}
	fill(t, sf, want)
	if *reported != "" {
		t.Errorf("Failed was called with %q", *reported)
	}
	sf.Close()
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// The old file stays until the new one is complete, so a kill at any moment loses nothing.
func TestOldFilesStayUntilTheNewOneIsComplete(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	writeFile(t, o, 1, "a=1")
	written := 0
	o.New = func() State {
		return hooked{words: words{}, dump: func() {
			written++
			if _, err := os.Lstat(fmt.Sprint(o.Path, ".", written)); err != nil {
				t.Errorf("while the new file is written: %v", err)
			}
		}}
	}
	sf, _, _, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; sf.number == 2; i++ {
		sf.Append(fmt.Appendf(nil, "a=%d", i))
		settle(sf)
	}
	sf.Close()
	if written != 2 {
		t.Errorf("%d files were written, want two", written)
	}
}

// Freeze waits for a rewrite, which would otherwise remove and rename files after Freeze. The rewrite
// changes nothing.
func TestFreezeWaitsForARewrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, filepath.Join(t.TempDir(), "t"))
		sf, _ := open(t, o)
		proceed := make(chan struct{})
		var once sync.Once
		sf.o.New = func() State { return hooked{words: words{}, apply: func() { once.Do(func() { <-proceed }) }} }
		for sf.rewriting == nil {
			sf.Append([]byte("a=1"))
			synctest.Wait()
		}
		frozen := false
		go func() {
			sf.Freeze()
			frozen = true
		}()
		synctest.Wait()
		if frozen {
			t.Fatal("Freeze does not wait for the rewrite")
		}
		close(proceed)
		synctest.Wait()
		if !frozen {
			t.Error("Freeze never returns")
		}
		if entries, err := os.ReadDir(filepath.Dir(o.Path)); err != nil || len(entries) != 1 || entries[0].Name() != "t.1" {
			t.Errorf("the directory has %v, %v; want only the old file", entries, err)
		}
		appended, ended := false, false
		go func() {
			defer func() { ended = true }()
			sf.Append([]byte("late=1"))
			appended = true
		}()
		if synctest.Wait(); ended {
			t.Error("Append returns after Freeze")
		}
		sf.Close()
		if synctest.Wait(); !ended || appended {
			t.Errorf("after Close the goroutine has ended: %v; Append has returned: %v; want that it ends in Append", ended, appended)
		}
	})
}

// An append that waits for a full file to be rewritten does not return after Freeze, and the file stays.
func TestFreezeWhileAppendsWait(t *testing.T) {
	for _, length := range []int{1, 1000} { // a rewrite is under way when the file is full, or begins then
		synctest.Test(t, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			sf, _ := open(t, o)
			proceed := make(chan struct{})
			sf.o.New = func() State { return hooked{words: words{}, apply: func() { <-proceed }} }
			appended := words{}
			go func() {
				put := func(record string) {
					sf.Append([]byte(record))
					_ = appended.Apply([]byte(record))
				}
				put("first=1")
				for i := range 100 {
					put(fmt.Sprintf("k%d=%s", i%5, strings.Repeat("x", length)))
				}
			}()
			synctest.Wait()
			go sf.Freeze()
			synctest.Wait()
			close(proceed)
			synctest.Wait()
			_, got := open(t, options(t, o.Path))
			wantState(t, "in the next process", got, appended)
			sf.Close()
		})
	}
}

// The file is closed after a rewrite, so that the process does not run out of descriptors.
func TestDescriptorsEnd(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	count := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	sf, want := open(t, options(t, filepath.Join(t.TempDir(), "t")))
	before := count()
	for range 100 {
		fill(t, sf, want)
	}
	if after := count(); after > before+10 {
		t.Errorf("%d files are open after 100 rewrites, and %d before", after, before)
	}
	sf.Close()
}
