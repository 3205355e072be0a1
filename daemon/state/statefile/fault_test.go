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

// Somebody who cuts a file short that is in use has the table given up, as one who removes
// it does, and does not end the process.
func TestCutShort(t *testing.T) {
	for what, when := range map[string]func(*cutting){
		"when it is appended to":       nil,
		"when it is read, to merge it": func(c *cutting) { c.whenRead = true },
		"when the merged is written":   func(c *cutting) { c.whenWritten = true },
	} {
		t.Run(what, func(t *testing.T) {
			var said []error
			o := options(t, filepath.Join(t.TempDir(), "t"))
			fresh := o
			o.Failed = func(err error) { said = append(said, err) }
			if when != nil {
				o.New = func() State {
					c := &cutting{words: words{}, path: o.Path}
					when(c)
					return c
				}
			}
			table, _, damage, err := Open(o)
			if damage != nil || err != nil {
				t.Fatalf("Open: damage %v, error %v", damage, err)
			}
			if when == nil {
				cutAll(o.Path)
			}
			for i := range 30 {
				table.Append(fmt.Appendf(nil, "k%d=%d", i, i))
				table.compacting.Wait()
			}
			if len(said) != 1 || !errors.Is(said[0], errShort) || !strings.Contains(said[0].Error(), "start the daemon again") {
				t.Errorf("said %v, want once that a file was cut short", said)
			}
			wantNoFiles(t, o.Path)
			table.Leave()
			table, got := open(t, fresh)
			wantState(t, "the next start", got, words{})
			table.Leave()
		})
	}
}

// A file that was made ahead and is cut short is not used, and nothing is lost.
func TestSpareFileCutShort(t *testing.T) {
	o := options(t, filepath.Join(t.TempDir(), "t"))
	table, want := open(t, o)
	for i := 0; table.spare == nil; i++ {
		record := fmt.Appendf(nil, "k%d=%d", i%7, i)
		table.Append(record)
		_ = want.Apply(record)
		table.compacting.Wait()
	}
	if err := os.Truncate(table.spare.path, 0); err != nil {
		t.Fatal(err)
	}
	number := table.number
	for i := 0; table.number == number; i++ {
		record := fmt.Appendf(nil, "k%d=%d", i%7, 100+i)
		table.Append(record)
		_ = want.Apply(record)
	}
	table.Freeze()
	_, got := open(t, o)
	wantState(t, "after the restart", got, want)
}

// A panic of another kind is what it was.
func TestGuardedPassesDefectsOn(t *testing.T) {
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
			t.Errorf("%s: got %v", what, guarded(do))
		}()
	}
	if err := guarded(func() error { return errGap }); err != errGap {
		t.Errorf("got %v, want the error that was returned", err)
	}
}

// cutAll cuts all files of a table short.
func cutAll(path string) {
	all, _ := filepath.Glob(path + ".*")
	for _, file := range all {
		os.Truncate(file, 0)
	}
}

// cutting is a state that keeps the bytes of what is merged, as it may, and has the file
// cut short in the middle of it: that one alone, so that nobody else notices.
type cutting struct {
	words
	path                  string
	whenRead, whenWritten bool
	kept                  [][]byte
}

func (c *cutting) ApplyAll(records iter.Seq[[]byte]) error {
	if c.whenRead {
		os.Truncate(c.path+".1", 0)
	}
	for record := range records {
		c.kept = append(c.kept, record)
	}
	return nil
}

func (c *cutting) Dump(yield func([]byte)) {
	if c.whenWritten && len(c.kept) > 0 {
		os.Truncate(c.path+".1", 0)
	}
	for _, record := range c.kept {
		yield(record)
	}
	c.words.Dump(yield)
}
