package statefile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Open reads the rest of a truncated file, and reports that it was truncated. Files that it replaced do
// not count.
func TestTruncatedFileOfAnEarlierProcess(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	writeFile(t, o, 1, "a=1", "b=1")
	content := appendFrame(nil, head{size: 1000, owner: o.Owner}.encode())
	if err := os.WriteFile(o.Path+".2", appendFrame(content, []byte("a=2")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, state, damage, err := Open(o)
	if !errors.Is(damage, errCut) || err != nil {
		t.Errorf("damage %v, error %v; want damage because it was truncated", damage, err)
	}
	wantState(t, "what is left", state.(words), words{"a": "2"})
}

// An invalid record is a fault as well, and later records do not count: they may depend on it.
func TestFaultyRecord(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	writeFile(t, o, 1, "a=1", "=no key", "b=1")
	_, state, damage, err := Open(o)
	if damage == nil || err != nil {
		t.Errorf("damage %v, error %v; want damage", damage, err)
	}
	wantState(t, "before the fault", state.(words), words{"a": "1"})
}

// A frame whose length exceeds the bytes that are left is an error.
func TestFrameBeyondTheEnd(t *testing.T) {
	whole := appendFrame(nil, []byte("12345678"))
	if record, err := firstOf(whole); err != nil || string(record) != "12345678" {
		t.Fatalf("got %q, %v", record, err)
	}
	for n := frameHead; n < len(whole); n++ {
		if record, err := firstOf(whole[:n]); err == nil {
			t.Errorf("%d bytes of %d: got %q", n, len(whole), record)
		}
	}
}

// firstOf returns the first record.
func firstOf(content []byte) ([]byte, error) {
	return framesOf(bytes.NewReader(content), int64(len(content))).next()
}

// The next version of the daemon reads what this one writes. If this format changes, the formatVersion
// of package state must change as well.
func TestFrameFormat(t *testing.T) {
	got := appendFrame(nil, head{size: 0x0102, owner: []byte("us")}.encode())
	want := "0a000000" + "89074092" + "0201000000000000" + "7573" + "0000"
	if hex.EncodeToString(got) != want {
		t.Errorf("got %x, want %s", got, want)
	}
}

// Open reads a faulty file up to the fault. Its state is one that existed, and the next start finds a
// complete state file.
func TestFaults(t *testing.T) {
	var states []words
	o := options(t, filepath.Join(t.TempDir(), "t"))
	o.MinSize = 4096
	sf, now := open(t, o)
	states = append(states, maps.Clone(now))
	for i := range 10 {
		record := fmt.Appendf(nil, "k%d=%d", i%4, i)
		sf.Append(record)
		_ = now.Apply(record)
		states = append(states, maps.Clone(now))
	}
	sf.Freeze()
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
	sf, state, damage, err := Open(o)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	got := state.(words)
	whole := maps.Equal(got, states[len(states)-1])
	if damage == nil && !whole {
		t.Errorf("%s: got %v, and no damage is reported", what, got)
	}
	if !slices.ContainsFunc(states, func(s words) bool { return maps.Equal(s, got) }) {
		t.Errorf("%s: got %v, which was never a state", what, got)
	}
	sf.Freeze()
	_, again := open(t, o)
	wantState(t, what+", and the start after that", again, got)
}

// FuzzFile checks that Open returns for any content of a file. The state has only what is in the
// content, and the next start finds a complete state file with the same state.
func FuzzFile(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, head{owner: []byte("us")}.encode()), []byte("a=1")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		o := options(t, filepath.Join(t.TempDir(), "t"))
		if err := os.WriteFile(o.Path+".1", content, 0o600); err != nil {
			t.Fatal(err)
		}
		sf, state, _, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range state.(words) {
			if !bytes.Contains(content, []byte(key+"="+value)) {
				t.Errorf("the state has %q=%q, which is not in the file", key, value)
			}
		}
		sf.Append([]byte("z=9"))
		state.(words)["z"] = "9"
		sf.Close()
		sf, got := open(t, o)
		wantState(t, "the next start", got, state.(words))
		sf.Close()
	})
}

// If a later file has another owner, no file is used, also not the one before it. If it is not a state
// file, or cannot be read, the one before it counts.
func TestFaultInALaterFile(t *testing.T) {
	for what, test := range map[string]struct {
		change func(o Options) error
		want   words
	}{
		"another owner": {func(o Options) error {
			o.Owner = []byte("them")
			writeFile(t, o, 2, "b=1")
			return nil
		}, words{}},
		"no state file": {func(o Options) error { return os.WriteFile(o.Path+".2", []byte("not a state file"), 0o600) }, words{"a": "1"}},
		"an empty one":  {func(o Options) error { return os.WriteFile(o.Path+".2", nil, 0o600) }, words{"a": "1"}},
		"a directory":   {func(o Options) error { return os.Mkdir(o.Path+".2", 0o700) }, words{"a": "1"}},
	} {
		t.Run(what, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			writeFile(t, o, 1, "a=1")
			if err := test.change(o); err != nil {
				t.Fatal(err)
			}
			_, state, damage, err := Open(o)
			if damage == nil || err != nil {
				t.Errorf("damage %v, error %v; want damage", damage, err)
			}
			wantState(t, "of the first file", state.(words), test.want)
		})
	}
}

// Open reports damage also if it cannot create a new file.
func TestDamageWithoutANewFile(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	writeFile(t, o, 1, "a=1", "=no key")
	blockFile(t, o.Path, 2)
	_, state, damage, err := Open(o)
	if damage == nil || err == nil {
		t.Errorf("damage %v, error %v; want both", damage, err)
	}
	wantState(t, "before the fault", state.(words), words{"a": "1"})
}
