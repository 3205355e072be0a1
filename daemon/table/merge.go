package table

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
)

// frozen is a file that nothing is appended to any more.
type frozen struct {
	number int
	mapped *segment // it was just filled; nil: it was merged
	merged int      // its length then
}

// length is how long the file was made.
func (f frozen) length() int {
	if f.mapped != nil {
		return len(f.mapped.memory)
	}
	return f.merged
}

func (t *Table) numbers() (numbers []int) {
	for _, f := range t.frozen {
		numbers = append(numbers, f.number)
	}
	return numbers
}

// compact has the frozen files made one, in the background. It needs mu.
func (t *Table) compact() {
	if t.busy || t.closed { // closed: there may be none, or nobody to wait for it
		return
	}
	t.busy = true
	files := slices.Clone(t.frozen)
	for _, f := range files {
		f.lend(true)
	}
	t.compacting.Go(func() {
		size, err := t.merge(files)
		over := t.merged(files, size, err)
		t.rest(files, over)
	})
}

// lend has the mapping be left to who merges the file, who ends it.
func (f frozen) lend(lent bool) {
	if f.mapped != nil {
		f.mapped.lent = lent
	}
}

// merge writes one file in the place of others, under the number of the last. 0: it
// could not, and they are as they were. The error says that some are not there, or not
// all of one.
func (t *Table) merge(files []frozen) (size int, missing error) {
	var read mappings
	defer read.end()
	var state State
	err := guarded(func() (err error) {
		state, err = t.sum(files, &read)
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errShort):
		return 0, err
	case err != nil:
		return 0, nil // these are ours: they cannot be read now, which may pass
	}
	size, err = t.writeMerged(t.file(files[len(files)-1].number), state)
	switch {
	case errors.Is(err, errShort):
		return 0, err
	case err != nil:
		return 0, nil
	}
	for _, f := range files[:len(files)-1] {
		os.Remove(t.file(f.number)) // what stays does not count: the merged one begins anew
	}
	return size, nil
}

// writeMerged puts a file with a state in the place of the one at path, or leaves that.
func (t *Table) writeMerged(path string, state State) (size int, err error) {
	size, err = writeNew(path+asideSuffix, func(w io.Writer) error {
		return guarded(func() error {
			t.write(w, state)
			return nil
		})
	})
	if err == nil {
		err = os.Rename(path+asideSuffix, path)
	}
	if err != nil {
		os.Remove(path + asideSuffix)
	}
	return size, err
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

// mappings are of files that a state was made of.
type mappings [][]byte

func (m *mappings) end() {
	for _, memory := range *m {
		if err := unmap(memory); err != nil {
			panic("table: " + err.Error()) // a defect: it is ours, and mapped
		}
	}
}

// sum is the state that files of ours come to. Those that were just filled are taken
// from memory, but have to be there. The state is of use until the mappings end.
func (t *Table) sum(files []frozen, read *mappings) (State, error) {
	state := t.o.New()
	for i, f := range files {
		if err := t.add(state, f, i == 0, read); err != nil {
			return nil, err
		}
	}
	return state, nil
}

func (t *Table) add(state State, f frozen, first bool, read *mappings) error {
	if f.mapped == nil {
		return t.addFile(state, f.number, first, read)
	}
	if _, err := os.Lstat(t.file(f.number)); err != nil {
		return err
	}
	records := f.mapped.records()
	return errors.Join(state.ApplyAll(records.all), records.fault)
}

func (t *Table) addFile(state State, number int, first bool, read *mappings) error {
	content, err := mapOwn(t.file(number))
	if err != nil {
		return err
	}
	*read = append(*read, content)
	records, err := t.recordsOf(content, first)
	if err != nil {
		return err
	}
	return errors.Join(state.ApplyAll(records.all), records.end())
}

// merged notes which files there are. It tells whether those that were merged are
// needed no more.
func (t *Table) merged(files []frozen, size int, missing error) (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.last == nil: // all were dropped meanwhile
		os.Remove(t.file(files[len(files)-1].number))
	case missing != nil:
		t.lose(missing)
	case size > 0:
		t.frozen = t.frozen[len(files)-1:]
		t.frozen[0].mapped, t.frozen[0].merged = nil, size
		t.size = t.sizeFor(size)
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
