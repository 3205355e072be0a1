package statefile

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// failCall makes a system call fail until the test ends or over is called.
func failCall(t *testing.T, call string, why error) (over func()) {
	t.Helper()
	f, m, u := fallocate, mmap, munmap
	over = func() { fallocate, mmap, munmap = f, m, u }
	t.Cleanup(over)
	switch call {
	case "fallocate":
		fallocate = func(int, uint32, int64, int64) error { return why }
	case "mmap":
		mmap = func(int, int64, int, int, int) ([]byte, error) { return nil, why }
	case "munmap":
		munmap = func([]byte) error { return why }
	}
	return over
}

// If there is no space for the next file, or it cannot be mapped, the state is kept in memory, which
// is reported once. No file stays that would be out of date. When files can be created again, they
// have the whole state.
func TestNoMemory(t *testing.T) {
	for _, test := range []struct {
		call string
		why  error
	}{{"fallocate", unix.ENOSPC}, {"fallocate", unix.ENOMEM}, {"mmap", unix.ENOMEM}, {"mmap", unix.ENFILE}} {
		t.Run(fmt.Sprint(test.call, " ", test.why), func(t *testing.T) {
			testShortage(t, test.why, func(t *testing.T, _ string) (over func()) { return failCall(t, test.call, test.why) }, (*File).Close)
		})
	}
}

// If Open cannot create a file, it returns no File and leaves no file. It still returns the state of
// the earlier one.
func TestNoMemoryAtOpen(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	before, want := open(t, o)
	before.Append([]byte("a=1"))
	_ = want.Apply([]byte("a=1"))
	before.Close()
	failCall(t, "mmap", unix.ENOMEM)
	sf, state, damage, err := Open(o)
	if sf != nil || damage != nil || !errors.Is(err, unix.ENOMEM) {
		t.Fatalf("Open: %v, damage %v, error %v; want none, and ENOMEM", sf, damage, err)
	}
	wantState(t, "without a state file", state.(words), want)
	if files, err := filepath.Glob(o.Path + ".*"); len(files) > 0 || err != nil {
		t.Errorf("the files %v are left (%v), want none", files, err)
	}
}

// If the kernel has no memory to end a mapping, the mapping stays, and nothing else fails.
func TestNoMemoryToUnmap(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, want := open(t, o)
	failCall(t, "munmap", unix.ENOMEM)
	for i := range 100 {
		record := fmt.Appendf(nil, "k%d=%d", i%7, i)
		sf.Append(record)
		_ = want.Apply(record)
	}
	sf.Close()
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// countMappings counts calls of mmap and munmap.
func countMappings(t *testing.T) (made, ended *int) {
	t.Helper()
	var mu sync.Mutex
	made, ended = new(int), new(int)
	m, u := mmap, munmap
	t.Cleanup(func() { mmap, munmap = m, u })
	mmap = func(fd int, offset int64, length, prot, flags int) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		*made++
		return m(fd, offset, length, prot, flags)
	}
	munmap = func(memory []byte) error {
		mu.Lock()
		defer mu.Unlock()
		*ended++
		return u(memory)
	}
	return made, ended
}

// Mapped files are closed, so that the process does not run out of descriptors.
func TestDescriptorsEnd(t *testing.T) {
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
		t.Errorf("%d files are open after 100 merges, and %d before", after, before)
	}
	sf.Close()
}

// All mappings end, also the mappings of merged files.
func TestMappingsEnd(t *testing.T) {
	made, ended := countMappings(t)
	sf, _ := open(t, options(t, filepath.Join(t.TempDir(), "t")))
	for i := range 1000 {
		sf.Append(fmt.Appendf(nil, "k%d=%d", i%10, i))
		sf.merges.Wait()
	}
	sf.Close()
	if *made < 10 || *made != *ended {
		t.Errorf("%d mappings were made and %d ended, want as many", *made, *ended)
	}
}

// A mapping keeps the memory of a removed file. So the mappings of files that could not be merged end
// as well, when the state is kept in memory, and at Close.
func TestMappingsOfUnmergedFilesEnd(t *testing.T) {
	for what, end := range map[string]func(*testing.T, *File){
		"no file can be created": func(t *testing.T, sf *File) {
			failCall(t, "fallocate", unix.ENOSPC)
			for sf.active != nil {
				sf.Append([]byte("a=1"))
				sf.merges.Wait()
			}
		},
		"Close": func(_ *testing.T, sf *File) { sf.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			made, ended := countMappings(t)
			o := options(t, filepath.Join(t.TempDir(), "t"))
			sf, want := open(t, o)
			blockFile(t, o.Path, 1)
			fill(t, sf, want)
			fill(t, sf, want)
			end(t, sf)
			if *made < 3 || *made != *ended {
				t.Errorf("%d mappings were made and %d ended, want as many", *made, *ended)
			}
		})
	}
}

// If a merged file cannot be used, it is removed and its mapping ends.
func TestUnusableMergedFileIsRemoved(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, sf *File, merged *segment){
		"the state is kept in memory": func(t *testing.T, sf *File, merged *segment) {
			sf.mu.Lock()
			sf.removeAll()
			sf.mu.Unlock()
			if !sf.replaceMerged([]sealed{{}}, merged, nil) {
				t.Error("the files of the merge are still in use")
			}
		},
		"it cannot be renamed": func(t *testing.T, sf *File, merged *segment) {
			merged.discard()
			if s, err := sf.writeMerged(t.TempDir(), words{}, nil); err == nil {
				t.Errorf("writeMerged returned %+v, want an error", s)
			}
			sf.Close()
			Remove(sf.o.Path)
		},
	} {
		t.Run(what, func(t *testing.T) {
			made, ended := countMappings(t)
			sf, _ := open(t, options(t, filepath.Join(t.TempDir(), "t")))
			sf.Append([]byte("a=1"))
			merged, err := sf.writeMerged(sf.path(7), words{"a": "1"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			end(t, sf, merged)
			if *made < 2 || *made != *ended {
				t.Errorf("%d mappings were made and %d ended, want as many", *made, *ended)
			}
			wantNoFiles(t, sf.o.Path)
		})
	}
}

// If a file was truncated, the mappings do not have the whole state, so writing stops for good.
func TestTruncatedFileStopsWriting(t *testing.T) {
	for what, notice := range map[string]func(*File) error{
		"another file was removed": func(sf *File) error {
			err := os.Remove(sf.path(sf.number))
			sf.merging = false
			sf.Check()
			return err
		},
		"no file can be created": func(sf *File) error {
			fallocate = func(int, uint32, int64, int64) error { return unix.ENOSPC }
			for range 100 {
				sf.Append([]byte("a=1"))
			}
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			reported := recordFailures(&o)
			sf, want := open(t, o)
			fill(t, sf, want)
			failCall(t, "", nil) // restores fallocate at the end
			sf.merging = true    // a merge would notice the truncation
			if err := os.Truncate(sf.path(sf.sealed[0].number), 0); err != nil {
				t.Fatal(err)
			}
			if err := notice(sf); err != nil {
				t.Fatal(err)
			}
			if *reported != "lost " {
				t.Errorf("Failed was called with %q, want that the state is lost", *reported)
			}
			sf.merging = false
			sf.Close()
			wantNoFiles(t, o.Path)
		})
	}
}

// Freeze waits for a merge, which would otherwise remove and rename files after Freeze.
func TestFreezeWaitsForAMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, filepath.Join(t.TempDir(), "t"))
		proceed := make(chan struct{})
		o.New = func() State { return waiting{words{}, proceed, new(sync.Once)} }
		sf, _, _, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		for !sf.merging {
			sf.Append([]byte("a=1"))
			synctest.Wait()
		}
		checkFreezeWaits(t, sf, proceed, "Freeze does not wait for the merge")
	})
}

// Freeze waits for the merge that is in progress, and not for others that appends would begin
// meanwhile.
func TestFreezeWaitsForOneMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, filepath.Join(t.TempDir(), "t"))
		proceed := make(chan struct{})
		o.New = func() State { return waiting{words{}, proceed, new(sync.Once)} }
		sf, _, _, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		fillOne := func() {
			for full := sf.number; sf.number == full; synctest.Wait() {
				sf.Append([]byte("a=1"))
			}
		}
		fillOne()
		frozen := false
		go func() {
			sf.Freeze()
			frozen = true
		}()
		synctest.Wait()
		fillOne()
		fillOne()
		proceed <- struct{}{}
		synctest.Wait()
		if !frozen {
			t.Error("Freeze waits for a merge that began later")
			close(proceed)
		}
	})
}

// checkFreezeWaits checks that Freeze returns after proceed is closed, and not before. early is the
// message if it returns before.
func checkFreezeWaits(t *testing.T, sf *File, proceed chan struct{}, early string) {
	t.Helper()
	frozen := false
	go func() {
		sf.Freeze()
		frozen = true
	}()
	synctest.Wait()
	if frozen {
		t.Fatal(early)
	}
	close(proceed)
	synctest.Wait()
	if !frozen {
		t.Error("Freeze never returns")
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
}

// waiting is a state whose first Apply waits for proceed.
type waiting struct {
	words
	proceed chan struct{}
	once    *sync.Once
}

func (w waiting) Apply(record []byte) error {
	w.once.Do(func() { <-w.proceed })
	return w.words.Apply(record)
}

func (w waiting) ApplyAll(records iter.Seq[[]byte]) error { return applyAll(w, records) }

// The old files stay until the new one is complete, so a kill at any moment loses nothing.
func TestOldFilesStayUntilTheNewOneIsComplete(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	writeFile(t, o, 1, true, "a=1")
	m := mmap
	t.Cleanup(func() { mmap = m })
	created := 0
	mmap = func(fd int, offset int64, length, prot, flags int) ([]byte, error) {
		created++
		if _, err := os.Lstat(o.Path + ".1"); err != nil {
			t.Errorf("while the new file is made: %v", err)
		}
		return m(fd, offset, length, prot, flags)
	}
	sf, _ := open(t, o)
	sf.Close()
	if created != 1 {
		t.Errorf("%d files were created, want one", created)
	}
}

// If the head of a new file cannot be written, the file does not get its name, and is removed.
func TestFileWithoutItsContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.1")
	s, err := newSegment(path, 256)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.path, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.start(path, []byte("head"), nil); !errors.Is(err, errShort) {
		t.Errorf("error %v, want %v", err, errShort)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) > 0 {
		t.Errorf("left the files %v, %v; want none", entries, err)
	}
}

// As TestNoMemory, if the process can open no more files. The merged file is read through its mapping,
// without opening it.
func TestNoDescriptors(t *testing.T) {
	testShortage(t, unix.EMFILE, func(t *testing.T, _ string) (over func()) {
		var before unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		over = sync.OnceFunc(func() {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
				t.Fatal(err)
			}
		})
		t.Cleanup(over)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		return over
	}, (*File).Close)
}
