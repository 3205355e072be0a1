package statefile

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
)

// Look finds out whether the files are there under their names, and whole: what is
// appended tells only of a page that was cut off. Where somebody has removed some, the
// table begins anew with what is in memory; where one was cut short, or another process
// has begun a table since, nothing is noted any more. It does not wait for others who use
// the table.
func (t *Table) Look() {
	if !t.mu.TryLock() {
		return // it is in use, or frozen
	}
	defer t.mu.Unlock()
	if t.closed || t.last == nil || t.busy {
		return
	}
	missing, short := t.missing()
	used := t.displaced()
	switch {
	case used != "":
		t.yield(used)
		return
	case short != nil:
		t.lose(short)
		return
	case missing == nil:
		return
	}
	state, err := t.stateInMemory()
	if err != nil {
		t.lose(missing)
		return
	}
	t.leaveFiles(state, fmt.Errorf("files of the table were removed: %w", missing))
	t.tryFiles()
}

// missing is the error of a file that is not there, and short that of one which is no
// longer as long as it was made. It needs mu.
func (t *Table) missing() (missing, short error) {
	for _, f := range t.files() {
		file, err := os.Lstat(t.file(f.number))
		switch {
		case errors.Is(err, os.ErrNotExist):
			missing = err
		case err == nil && file.Size() < int64(f.length()):
			short = fmt.Errorf("%s: %w: %d bytes of %d are left", t.file(f.number), errShort, file.Size(), f.length())
		}
	}
	return missing, short
}

// stateInMemory is made of the mappings. It keeps nothing of them. The error says that
// somebody has cut a file short, or written into it. It needs mu.
func (t *Table) stateInMemory() (state State, err error) {
	state = t.o.New()
	apply := func(records iter.Seq[[]byte]) error {
		for record := range records {
			if err := state.Apply(record); err != nil {
				return err
			}
		}
		return nil
	}
	err = guarded(func() error {
		for _, f := range t.files() {
			if err := t.add(f.mapped, apply); err != nil {
				return err
			}
		}
		return nil
	})
	return state, err
}

// files are all that the table has, the one that is appended to as well. It needs mu.
func (t *Table) files() []frozen {
	if t.last == nil {
		return t.frozen
	}
	return append(slices.Clip(t.frozen), frozen{number: t.number, mapped: t.last})
}
