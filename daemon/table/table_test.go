package table

import (
	"bytes"
	"encoding/hex"
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

// words is a state: "key=value" sets, "key" removes.
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

func (w words) ApplyAll(records iter.Seq[[]byte]) error {
	for record := range records {
		if err := w.Apply(record); err != nil {
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

// options are those of small files, so that there are many.
func options(t testing.TB, path string) Options {
	if runtime.GOOS != "linux" {
		t.Skip("the table needs Linux")
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
		New:         func() State { return words{} },
		SegmentSize: 256,
	}
}

func open(t testing.TB, o Options) (*Table, words) {
	t.Helper()
	table, state, damage, err := Open(o)
	if damage != nil || err != nil {
		t.Fatalf("Open: damage %v, error %v", damage, err)
	}
	return table, state.(words)
}

func wantState(t testing.TB, what string, got, want words) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Fatalf("%s: got %d words %v, want %d words %v", what, len(got), got, len(want), want)
	}
}

// Whatever was appended is there after a kill in any moment, through many files and
// their merging.
func TestEverythingIsThere(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	want := words{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		table, got := open(t, o)
		wantState(t, "after the restart", got, want)
		for range random.IntN(300) {
			record := fmt.Appendf(nil, "k%d", random.IntN(20))
			if random.IntN(3) > 0 {
				record = fmt.Appendf(record, "=%d%s", random.Int(), strings.Repeat("x", random.IntN(300)))
			}
			table.Append(record)
			if err := want.Apply(record); err != nil {
				t.Fatal(err)
			}
		}
		table.Freeze()
	}
}

// A table takes what OPERATING.md has who makes room for it expect.
func TestFreshTable(t *testing.T) {
	dir := t.TempDir()
	o := options(t, filepath.Join(dir, "t"))
	o.SegmentSize = 0
	table, _ := open(t, o)
	table.Freeze()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v; want one file", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Size() != 2<<20 {
		t.Errorf("%v, %v; want 2 MiB", info, err)
	}
	manual, err := os.ReadFile("../../packaging/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manual), "it is files of 2 MiB, one at first,") {
		t.Error("OPERATING.md says otherwise")
	}
}

// Files do not grow with what has been, nor in number.
func TestFilesStaySmall(t *testing.T) {
	dir := t.TempDir()
	o := options(t, filepath.Join(dir, "t"))
	table, _ := open(t, o)
	for i := range 20_000 {
		table.Append(fmt.Appendf(nil, "k%d=%d", i%5, i))
	}
	table.compacting.Wait()
	table.Freeze()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 3 {
		t.Errorf("%d files, %v; want 3 at most: %v", len(entries), err, entries)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Size() > 1024 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want 1 KiB at most, 0600", entry.Name(), info, err)
		}
	}
}

func TestConcurrentAppends(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	table, _ := open(t, o)
	want := words{}
	var all sync.WaitGroup
	for i := range 8 {
		want[fmt.Sprint("k", i)] = "499"
		all.Go(func() {
			for n := range 500 {
				table.Append(fmt.Appendf(nil, "k%d=%d", i, n))
			}
		})
	}
	all.Wait()
	table.Freeze()
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// Who appends after Freeze waits for ever: nothing is done that was not noted.
func TestFreeze(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	table, _ := open(t, o)
	table.Append([]byte("a=1"))
	table.Freeze()
	began, appended := make(chan struct{}), make(chan struct{})
	go func() {
		close(began)
		table.Append([]byte("b=2"))
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

func TestLeave(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	table, _ := open(t, o)
	for range 100 {
		table.Append([]byte("a=1"))
	}
	table.Leave()
	table.Append([]byte("b=1"))
	_, got := open(t, o)
	wantState(t, "after the restart", got, words{"a": "1"})
}

// A table of another boot, say, is not used, and is gone.
func TestOtherOwner(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	theirs := o
	theirs.Owner, theirs.Check = []byte("them"), func([]byte) error { return nil }
	table, _ := open(t, theirs)
	table.Append([]byte("a=1"))
	table.Freeze()
	table, state, damage, err := Open(o)
	if !errors.Is(damage, errOther) || err != nil {
		t.Fatalf("damage %v, error %v; want damage that matches %v", damage, err, errOther)
	}
	wantState(t, "of another owner", state.(words), words{})
	table.Append([]byte("b=1"))
	table.Freeze()
	_, got := open(t, o)
	wantState(t, "our own", got, words{"b": "1"})
}

// left makes files as a kill leaves them: their first record, and some more.
func left(t *testing.T, o Options, number int, begins bool, records ...string) {
	t.Helper()
	content := appendFrame(nil, head{begins: begins, owner: o.Owner}.encode())
	for _, record := range records {
		content = appendFrame(content, []byte(record))
	}
	if err := os.WriteFile(fmt.Sprintf("%s.%d", o.Path, number), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a kill leaves in the middle of making one file of several.
func TestKilledWhileMerging(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	left(t, o, 2, true, "a=1", "b=1")
	left(t, o, 3, false, "c=1")
	left(t, o, 4, true, "a=2", "c=2") // merged, and what it takes the place of is still there
	left(t, o, 5, false, "d=2", "a")
	if err := os.WriteFile(o.Path+".6.new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	table, got := open(t, o)
	wantState(t, "after the restart", got, words{"c": "2", "d": "2"})
	table.Freeze()
	if entries, _ := filepath.Glob(o.Path + "*"); len(entries) != 1 {
		t.Errorf("files %v, want one", entries)
	}
}

// What is called otherwise than the files of a table is none of them.
func TestOtherNames(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	before, want := open(t, o)
	before.Append([]byte("a=1"))
	_ = want.Apply([]byte("a=1"))
	before.Leave()
	others := []string{".0", ".-1", ".01", ".+2", ".2x", ".", "2"}
	for _, name := range others {
		if err := os.WriteFile(o.Path+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table, got := open(t, o)
	wantState(t, "beside them", got, want)
	table.Leave()
	for _, name := range others {
		if _, err := os.Stat(o.Path + name); err != nil {
			t.Error(err)
		}
	}
}

func TestMissingFiles(t *testing.T) {
	for what, numbers := range map[string][]int{"the first": {2, 3}, "one in the middle": {1, 3}} {
		o := options(t, filepath.Join(t.TempDir(), "t"))
		for _, number := range numbers {
			left(t, o, number, number == 1, fmt.Sprintf("k%d=1", number))
		}
		_, state, damage, err := Open(o)
		if !errors.Is(damage, errGap) || err != nil {
			t.Errorf("%s: damage %v, error %v; want damage that says so", what, damage, err)
		}
		if got := state.(words); got["k3"] != "" {
			t.Errorf("%s: what came after the gap was taken: %v", what, got)
		}
	}
}

// A file that was cut short says what is left of it, and that there was more; the files
// that it had taken the place of say nothing beside it.
func TestCutFileOfBefore(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	left(t, o, 1, true, "a=1", "b=1")
	content := appendFrame(nil, head{begins: true, size: 1000, owner: o.Owner}.encode())
	if err := os.WriteFile(o.Path+".2", appendFrame(content, []byte("a=2")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, state, damage, err := Open(o)
	if !errors.Is(damage, errCut) || err != nil {
		t.Errorf("damage %v, error %v; want that it was cut", damage, err)
	}
	wantState(t, "what is left", state.(words), words{"a": "2"})
}

// A record that makes no sense is a fault as well: what follows may be about what it said.
func TestFaultyRecord(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	left(t, o, 1, true, "a=1", "=no key", "b=1")
	_, state, damage, err := Open(o)
	if damage == nil || err != nil {
		t.Errorf("damage %v, error %v; want damage", damage, err)
	}
	wantState(t, "before the fault", state.(words), words{"a": "1"})
}

// A length of more than there is belongs to no record.
func TestFrameBeyondTheEnd(t *testing.T) {
	whole := appendFrame(nil, []byte("12345678"))
	if record, _, err := nextFrame(whole); err != nil || string(record) != "12345678" {
		t.Fatalf("got %q, %v", record, err)
	}
	for n := frameHead; n < len(whole); n++ {
		if record, _, err := nextFrame(slices.Clip(whole[:n])); err == nil {
			t.Errorf("%d bytes of %d: got %q", n, len(whole), record)
		}
	}
}

// What one version of the daemon writes the next one reads: a format that changes needs
// another name (tableFormat of the daemon), which has the old one's table not be used.
func TestFrameFormat(t *testing.T) {
	got := appendFrame(nil, head{begins: true, size: 0x0102, owner: []byte("us")}.encode())
	want := "0b000000" + "ef8a68b9" + "01" + "0201000000000000" + "7573" + "00"
	if hex.EncodeToString(got) != want {
		t.Errorf("got %x, want %s", got, want)
	}
}

// Of a file with a fault there is left what was before it. Nothing is invented, and
// the next start finds a whole table.
func TestFaults(t *testing.T) {
	var states []words
	o := options(t, filepath.Join(t.TempDir(), "t"))
	o.SegmentSize = 4096
	table, now := open(t, o)
	states = append(states, maps.Clone(now))
	for i := range 10 {
		record := fmt.Appendf(nil, "k%d=%d", i%4, i)
		table.Append(record)
		_ = now.Apply(record)
		states = append(states, maps.Clone(now))
	}
	table.Freeze()
	whole, err := os.ReadFile(o.Path + ".1")
	if err != nil {
		t.Fatal(err)
	}
	used := len(bytes.TrimRight(whole, "\x00"))
	for at := range used + 4 {
		cut := slices.Clone(whole[:at])
		flipped := slices.Clone(whole)
		flipped[at] ^= 1 << (at % 8)
		for what, content := range map[string][]byte{"cut": cut, "flipped": flipped} {
			wantPrefix(t, fmt.Sprintf("%s at %d", what, at), content, states)
		}
	}
}

func wantPrefix(t *testing.T, what string, content []byte, states []words) {
	t.Helper()
	o := options(t, filepath.Join(t.TempDir(), "t"))
	if err := os.WriteFile(o.Path+".1", content, 0o600); err != nil {
		t.Fatal(err)
	}
	table, state, damage, err := Open(o)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	got := state.(words)
	whole := maps.Equal(got, states[len(states)-1])
	if damage == nil && !whole {
		t.Errorf("%s: got %v, and nothing is said of it", what, got)
	}
	if !slices.ContainsFunc(states, func(s words) bool { return maps.Equal(s, got) }) {
		t.Errorf("%s: got %v, which never was", what, got)
	}
	table.Freeze()
	_, again := open(t, o)
	wantState(t, what+", and the start after that", again, got)
}

// Whatever a file has in it: Open ends, invents nothing that is not in it, and the
// next start finds a whole table with the same.
func FuzzFile(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, head{begins: true, owner: []byte("us")}.encode()), []byte("a=1")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		o := options(t, filepath.Join(t.TempDir(), "t"))
		if err := os.WriteFile(o.Path+".1", content, 0o600); err != nil {
			t.Fatal(err)
		}
		table, state, _, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range state.(words) {
			if !bytes.Contains(content, []byte(key+"="+value)) {
				t.Errorf("%q=%q was invented", key, value)
			}
		}
		table.Append([]byte("z=9"))
		state.(words)["z"] = "9"
		table.Leave() // Freeze would keep all the mappings there ever were
		table, got := open(t, o)
		wantState(t, "the next start", got, state.(words))
		table.Leave()
	})
}

func BenchmarkAppend(b *testing.B) {
	o := options(b, filepath.Join(b.TempDir(), "t"))
	o.SegmentSize = 0
	table, _ := open(b, o)
	record := []byte("k=" + strings.Repeat("v", 100))
	b.ReportAllocs()
	for b.Loop() {
		table.Append(record)
	}
	table.Leave()
}

// What is of no use has nothing of it used, also where the files before it are ours; what
// is no table, or cannot be read, leaves what was before it.
func TestFaultInALaterFile(t *testing.T) {
	for what, test := range map[string]struct {
		spoil func(o Options) error
		want  words
	}{
		"another owner": {func(o Options) error {
			o.Owner = []byte("them")
			left(t, o, 2, false, "b=1")
			return nil
		}, words{}},
		"no table":     {func(o Options) error { return os.WriteFile(o.Path+".2", []byte("nothing of ours"), 0o600) }, words{"a": "1"}},
		"an empty one": {func(o Options) error { return os.WriteFile(o.Path+".2", nil, 0o600) }, words{"a": "1"}},
		"a directory":  {func(o Options) error { return os.Mkdir(o.Path+".2", 0o700) }, words{"a": "1"}},
	} {
		t.Run(what, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			left(t, o, 1, true, "a=1")
			if err := test.spoil(o); err != nil {
				t.Fatal(err)
			}
			_, state, damage, err := Open(o)
			if damage == nil || err != nil {
				t.Errorf("damage %v, error %v; want damage", damage, err)
			}
			wantState(t, "of the first", state.(words), test.want)
		})
	}
}

// The damage is told also where no new table can be made.
func TestDamageWithoutATable(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	left(t, o, 1, true, "a=1", "=no key")
	inTheWay(t, o.Path, 2)
	_, state, damage, err := Open(o)
	if damage == nil || err == nil {
		t.Errorf("damage %v, error %v; want both", damage, err)
	}
	wantState(t, "before the fault", state.(words), words{"a": "1"})
}

// Whoever reads a file while it is appended to finds records up to some moment, and no
// fault: so does the next process after a kill. Guards putFrame: the length comes last.
func TestReadWhileAppending(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	o.SegmentSize = 32 << 20
	table, _ := open(t, o)
	table.busy = true // or the mapping would end with the merging
	read, used := table.last.memory, table.last.begin
	done := make(chan struct{})
	go func() {
		defer close(done)
		for record := bytes.Repeat([]byte("a=1"), 20_000); table.number == 1; {
			table.Append(record)
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		for atomic.LoadUint32((*uint32)(unsafe.Pointer(&read[used]))) != 0 {
			_, rest, err := nextFrame(read[used:])
			if err != nil {
				t.Fatalf("at %d: %v", used, err)
			}
			used = len(read) - len(rest)
		}
	}
	table.Leave()
}
