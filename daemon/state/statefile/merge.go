package statefile

import (
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
)

// frozen is a file that nothing is appended to any more.
type frozen struct {
	number int
	mapped *segment // its records; nil: it is of an earlier process
}

// length is how long the file was made; 0: that is not known.
func (f frozen) length() int {
	if f.mapped == nil {
		return 0
	}
	return len(f.mapped.memory)
}

func (t *Table) numbers() (numbers []int) {
	for _, f := range t.frozen {
		numbers = append(numbers, f.number)
	}
	return numbers
}

// compact has the frozen files made one, in the background. It needs mu.
func (t *Table) compact() {
	if t.busy || t.ending || t.closed { // closed: there may be none, or nobody to wait for it
		return
	}
	t.busy = true
	files := slices.Clone(t.frozen)
	for _, f := range files {
		f.lend(true)
	}
	t.compacting.Go(func() {
		merged, err := t.merge(files)
		over := t.merged(files, merged, err)
		t.rest(files, over)
	})
}

// lend has the mapping be left to who merges the file, who ends it.
func (f frozen) lend(lent bool) {
	if f.mapped != nil {
		f.mapped.lent = lent
	}
}

// merge writes one file in the place of others, under the number of the last. nil: it
// could not, and they are as they were. The error says that some are not there, or not
// all of one.
func (t *Table) merge(files []frozen) (merged *segment, missing error) {
	var state State
	err := guarded(func() (err error) {
		state, err = t.sum(files)
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errShort):
		return nil, err
	case err != nil:
		return nil, nil // the next process finds the fault
	}
	merged, err = t.writeMerged(t.file(files[len(files)-1].number), state)
	switch {
	case errors.Is(err, errShort):
		return nil, err
	case err != nil:
		return nil, nil // which may pass
	}
	for _, f := range files[:len(files)-1] {
		os.Remove(t.file(f.number)) // what stays does not count: the merged one begins anew
	}
	return merged, nil
}

// writeMerged puts a file with a state in the place of the one at path, or leaves that.
func (t *Table) writeMerged(path string, state State) (*segment, error) {
	content, err := writeNew(path+asideSuffix, func(w io.Writer) error {
		return guarded(func() error {
			t.write(w, state)
			return nil
		})
	})
	if err != nil {
		os.Remove(path + asideSuffix)
		return nil, err
	}
	s := &segment{path: path + asideSuffix, memory: content, merged: true}
	if err := os.Rename(s.path, path); err != nil {
		s.discard()
		return nil, err
	}
	s.path = path
	return s, nil
}

// write writes a state as a file has it, beside which no other counts.
func (t *Table) write(w io.Writer, state State) {
	frame := t.head(true, 0)
	w.Write(frame)
	state.Dump(func(record []byte) {
		frame = appendFrame(frame[:0], record)
		w.Write(frame)
	})
}

// sum is the state that files of ours come to. They are taken from memory, but have to be
// there. The state is of use until their mappings end.
func (t *Table) sum(files []frozen) (State, error) {
	state := t.o.New()
	for _, f := range files {
		if _, err := os.Lstat(t.file(f.number)); err != nil {
			return nil, err
		}
		if err := t.add(f.mapped, state.ApplyAll); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// add has the records of a file applied. Those of one that was merged were looked at last
// when that was written: they are checked.
func (t *Table) add(s *segment, apply func(iter.Seq[[]byte]) error) error {
	if !s.merged {
		records := s.records()
		return errors.Join(apply(records.all), records.fault)
	}
	records, err := t.recordsOf(s.memory, true)
	if err != nil {
		return err
	}
	return errors.Join(apply(records.all), records.end())
}

// merged notes which files there are. It tells whether those that were merged are
// needed no more.
func (t *Table) merged(files []frozen, merged *segment, missing error) (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.last == nil: // all were dropped meanwhile
		merged.discard()
	case missing != nil:
		t.lose(missing)
	case merged != nil:
		t.frozen = t.frozen[len(files)-1:]
		t.frozen[0].mapped = merged
		t.size = t.sizeFor(len(merged.memory))
	default:
		for _, f := range files {
			f.lend(false)
		}
		return false
	}
	return true
}

// sizeFor is how large a file is to be beside a merged one: as large, so that of what is
// appended no more is merged again than it takes itself, and its memory stays in
// proportion.
func (t *Table) sizeFor(merged int) int { return max(t.o.SegmentSize, merged) }

// rest ends a merging.
func (t *Table) rest(files []frozen, over bool) {
	if over {
		for _, f := range files {
			if f.mapped != nil {
				f.mapped.close()
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = false
	if over && len(t.frozen) > 1 {
		t.compact()
	}
}
