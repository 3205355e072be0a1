package statefile

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If somebody truncates a file in use, the process does not end. Writing stops for good, as if the
// file had been removed.
func TestTruncatedFileDoesNotEndTheProcess(t *testing.T) {
	for what, when := range map[string]func(*truncating){
		"during an append": nil,
		"during a merge":   func(*truncating) {},
	} {
		t.Run(what, func(t *testing.T) {
			var reported []error
			o := options(t, filepath.Join(t.TempDir(), "t"))
			fresh := o
			o.Failed = func(err error) { reported = append(reported, err) }
			if when != nil {
				o.New = func() State {
					c := &truncating{words: words{}, path: o.Path}
					when(c)
					return c
				}
			}
			sf, _, damage, err := Open(o)
			if damage != nil || err != nil {
				t.Fatalf("Open: damage %v, error %v", damage, err)
			}
			if when == nil {
				truncateAll(o.Path)
			}
			for i := range 30 {
				sf.Append(fmt.Appendf(nil, "k%d=%d", i, i))
				sf.merges.Wait()
			}
			if len(reported) != 1 || !errors.Is(reported[0], errShort) || !strings.Contains(reported[0].Error(), "only a restart of redlockd") {
				t.Errorf("Failed was called with %v, want once with a truncated file", reported)
			}
			wantNoFiles(t, o.Path)
			sf.Close()
			sf, got := open(t, fresh)
			wantState(t, "the next start", got, words{})
			sf.Close()
		})
	}
}

// guarded does not recover from other panics.
func TestGuardedKeepsOtherPanics(t *testing.T) {
	for what, do := range map[string]func() error{
		"a nil pointer": func() error { var s *segment; s.used++; return nil },
		"a defect":      func() error { panic("a defect") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			t.Errorf("%s: guarded returned %v", what, guarded(do))
		}()
	}
	if err := guarded(func() error { return errGap }); err != errGap {
		t.Errorf("got %v, want the error that was returned", err)
	}
}

// truncateAll truncates all files of a state file.
func truncateAll(path string) {
	all, _ := filepath.Glob(path + ".*")
	for _, file := range all {
		os.Truncate(file, 0)
	}
}

// truncating is a state that truncates the first file while it is merged. It leaves the other files, so
// that appends do not notice.
type truncating struct {
	words
	path string
}

func (c *truncating) Apply(record []byte) error {
	os.Truncate(c.path+".1", 0)
	return c.words.Apply(record)
}

func (c *truncating) ApplyAll(records iter.Seq[[]byte]) error { return applyAll(c, records) }
