package table

import (
	"errors"
	"fmt"
	"os"
)

// Look finds out whether the files are there under their names: what is appended tells
// only of those that were cut short. Where somebody has removed some, the table begins
// anew with what is in memory yet; where that is not all, nothing is noted any more. It
// does not wait for others who use the table.
func (t *Table) Look() {
	if !t.mu.TryLock() {
		return // it is in use, or frozen
	}
	defer t.mu.Unlock()
	if t.closed || t.last == nil || t.busy {
		return
	}
	missing := t.missing()
	if missing == nil {
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

// missing is the error of the first file that is not there. It needs mu.
func (t *Table) missing() error {
	for _, number := range append(t.numbers(), t.number) {
		if _, err := os.Lstat(t.file(number)); errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// stateInMemory is made of the mappings, and of the file that was merged. It needs mu.
func (t *Table) stateInMemory() (state State, err error) {
	state = t.o.New()
	err = guarded(func() error {
		for i, f := range append(t.frozen[:len(t.frozen):len(t.frozen)], frozen{t.number, t.last}) {
			if err := t.addFrozen(state, f, i == 0); err != nil {
				return err
			}
		}
		return nil
	})
	return state, err
}

func (t *Table) addFrozen(state State, f frozen, first bool) error {
	if f.mapped == nil {
		return t.replayFile(state, f.number, first)
	}
	records := f.mapped.records()
	for record := range records.all {
		if err := state.Apply(record); err != nil {
			return err
		}
	}
	return records.fault
}
