package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// words is a state. A record "key=value" sets a key, and "key" removes it.
type words map[string]string

func (w words) Apply(record []byte) error {
	key, value, set := strings.Cut(string(record), "=")
	switch {
	case key == "":
		return errors.New("a record without a key")
	case set:
		w[key] = value
	default:
		delete(w, key)
	}
	return nil
}

func (w words) ApplyAll(records iter.Seq[[]byte]) error { return applyAll(w, records) }

// applyAll applies records one by one.
func applyAll(state State, records iter.Seq[[]byte]) error {
	for record := range records {
		if err := state.Apply(record); err != nil {
			return err
		}
	}
	return nil
}

func (w words) Dump(yield func([]byte)) {
	for _, key := range slices.Sorted(maps.Keys(w)) {
		yield([]byte(key + "=" + w[key]))
	}
}

var errOther = errors.New("another boot")

// options returns options with a small file, so that it is rewritten often.
func options(t testing.TB, path string) Options {
	if runtime.GOOS != "linux" {
		t.Skip("the state file needs Linux")
	}
	return Options{
		Path:  path,
		Owner: []byte("us"),
		Check: func(owner []byte) error {
			if string(owner) != "us" {
				return errOther
			}
			return nil
		},
		New:     func() State { return words{} },
		MinSize: 256,
	}
}

func open(t testing.TB, o Options) (*File, words) {
	t.Helper()
	sf, state, damage, err := Open(o)
	if damage != nil || err != nil {
		t.Fatalf("Open: damage %v, error %v", damage, err)
	}
	return sf, state.(words)
}

func wantState(t testing.TB, what string, got, want words) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Fatalf("%s: got %d words %v, want %d words %v", what, len(got), got, len(want), want)
	}
}

// All appended records are there after a kill at any moment, with many rewrites.
func TestKillLosesNothing(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	want := words{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		sf, got := open(t, o)
		wantState(t, "after the restart", got, want)
		for range random.IntN(300) {
			record := fmt.Appendf(nil, "k%d", random.IntN(20))
			if random.IntN(3) > 0 {
				record = fmt.Appendf(record, "=%d%s", random.Int(), strings.Repeat("x", random.IntN(300)))
			}
			sf.Append(record)
			if err := want.Apply(record); err != nil {
				t.Fatal(err)
			}
		}
		sf.Freeze()
	}
}

// A new state file takes as much space as INSTALL.md says.
func TestFreshStateFile(t *testing.T) {
	dir := t.TempDir()
	o := options(t, filepath.Join(dir, "t"))
	o.MinSize = 0
	sf, _ := open(t, o)
	sf.Freeze()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v; want one file", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Size() != 2<<20 {
		t.Errorf("%v, %v; want 2 MiB", info, err)
	}
	manual, err := os.ReadFile("../../../packaging/docs/INSTALL.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manual), "In detail: a file of 2 MiB at first,") {
		t.Error("INSTALL.md has another size")
	}
}

// The size of the file depends on the state, not on the number of appended records.
func TestFilesStaySmall(t *testing.T) {
	dir := t.TempDir()
	o := options(t, filepath.Join(dir, "t"))
	sf, _ := open(t, o)
	for i := range 20_000 {
		sf.Append(fmt.Appendf(nil, "k%d=%d", i%5, i))
	}
	settle(sf)
	sf.Freeze()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files, %v; want one: %v", len(entries), err, entries)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Size() > 1024 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want at most 1 KiB, 0600", entry.Name(), info, err)
		}
	}
}

// settle waits until no rewrite is in progress.
func settle(sf *File) {
	sf.mu.Lock()
	rewriting := sf.rewriting
	sf.mu.Unlock()
	if rewriting != nil {
		<-rewriting
	}
}

func TestConcurrentAppends(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, _ := open(t, o)
	want := words{}
	var all sync.WaitGroup
	for i := range 8 {
		want[fmt.Sprint("k", i)] = "499"
		all.Go(func() {
			for n := range 500 {
				sf.Append(fmt.Appendf(nil, "k%d=%d", i, n))
			}
		})
	}
	all.Wait()
	sf.Freeze()
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// An append after Freeze does not return, so that its caller does nothing that was not recorded.
func TestFreeze(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, _ := open(t, o)
	sf.Append([]byte("a=1"))
	sf.Freeze()
	began, appended := make(chan struct{}), make(chan struct{})
	go func() {
		close(began)
		sf.Append([]byte("b=2"))
		close(appended)
	}()
	<-began
	_, got := open(t, o)
	wantState(t, "after the restart", got, words{"a": "1"})
	select {
	case <-appended:
		t.Error("Append returned")
	default:
	}
}

func TestClose(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	sf, _ := open(t, o)
	for range 100 {
		sf.Append([]byte("a=1"))
	}
	sf.Close()
	sf.Append([]byte("b=1"))
	_, got := open(t, o)
	wantState(t, "after the restart", got, words{"a": "1"})
}

// A state file of another owner, such as another boot, is not used, and is removed.
func TestOtherOwner(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	theirs := o
	theirs.Owner, theirs.Check = []byte("them"), func([]byte) error { return nil }
	sf, _ := open(t, theirs)
	sf.Append([]byte("a=1"))
	sf.Freeze()
	sf, state, damage, err := Open(o)
	if !errors.Is(damage, errOther) || err != nil {
		t.Fatalf("damage %v, error %v; want damage that matches %v", damage, err, errOther)
	}
	wantState(t, "of another owner", state.(words), words{})
	sf.Append([]byte("b=1"))
	sf.Freeze()
	_, got := open(t, o)
	wantState(t, "our own", got, words{"b": "1"})
}

// writeFile writes a file as a kill leaves it: its head, and records.
func writeFile(t *testing.T, o Options, number int, records ...string) {
	t.Helper()
	content := appendFrame(nil, head{owner: o.Owner}.encode())
	for _, record := range records {
		content = appendFrame(content, []byte(record))
	}
	if err := os.WriteFile(fmt.Sprintf("%s.%d", o.Path, number), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Open reads the newest file alone after a kill in the middle of a rewrite.
func TestKilledWhileRewriting(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	writeFile(t, o, 2, "a=1", "b=1")
	writeFile(t, o, 4, "a=2", "c=2", "d=2") // the file that it replaces is still there
	if err := os.WriteFile(o.Path+".6.new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	sf, got := open(t, o)
	wantState(t, "after the restart", got, words{"a": "2", "c": "2", "d": "2"})
	sf.Freeze()
	if entries, _ := filepath.Glob(o.Path + "*"); len(entries) != 1 {
		t.Errorf("files %v, want one", entries)
	}
}

// Files with similar names are not part of the state file, and stay.
func TestOtherNames(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	before, want := open(t, o)
	before.Append([]byte("a=1"))
	_ = want.Apply([]byte("a=1"))
	before.Close()
	others := []string{".0", ".-1", ".01", ".+2", ".2x", ".", "2"}
	for _, name := range others {
		if err := os.WriteFile(o.Path+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sf, got := open(t, o)
	wantState(t, "beside them", got, want)
	sf.Close()
	for _, name := range others {
		if _, err := os.Stat(o.Path + name); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	o := options(b, filepath.Join(b.TempDir(), "t"))
	o.MinSize = 0
	sf, _ := open(b, o)
	record := []byte("k=" + strings.Repeat("v", 100))
	b.ReportAllocs()
	for b.Loop() {
		sf.Append(record)
	}
	sf.Close()
}

// A reader finds whole records and no fault at any moment during appends, and so does the next process
// after a kill: putFrame writes the length last.
func TestReadWhileAppending(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	o.MinSize = 64 << 20
	sf, _ := open(t, o)
	read, used := sf.active.memory, sf.active.used
	done := make(chan struct{})
	go func() {
		defer close(done)
		for record := bytes.Repeat([]byte("a=1"), 20_000); sf.active.used < 30<<20; {
			sf.Append(record)
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		for atomic.LoadUint32((*uint32)(unsafe.Pointer(&read[used]))) != 0 {
			record, err := firstOf(read[used:])
			if err != nil {
				t.Fatalf("at %d: %v", used, err)
			}
			used += int64(frameSize(len(record)))
		}
	}
	sf.Close()
}
