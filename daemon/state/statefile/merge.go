package statefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
)

// sealed is a full file.
type sealed struct {
	number  int
	segment *segment // nil: it is of an earlier process
}

// length returns how long the file was made; 0: that is not known.
func (s sealed) length() int {
	if s.segment == nil {
		return 0
	}
	return len(s.segment.memory)
}

// lend leaves the mapping to the goroutine that merges the file, which unmaps it.
func (s sealed) lend(lent bool) {
	if s.segment != nil {
		s.segment.lent = lent
	}
}

func (f *File) numbers() (numbers []int) {
	for _, file := range f.sealed {
		numbers = append(numbers, file.number)
	}
	return numbers
}

// startMerge merges the sealed files in a goroutine, for which Freeze and Close wait. It
// needs mu.
func (f *File) startMerge() {
	if f.merging || f.stopping || f.closed {
		return
	}
	f.merging = true
	files := slices.Clone(f.sealed)
	for _, file := range files {
		file.lend(true)
	}
	f.merges.Go(func() {
		merged, err := f.merge(files)
		f.endMerge(files, f.replaceMerged(files, merged, err))
	})
}

// merge writes one file in the place of others, under the number of the last one. If it
// returns nil, they are as they were. The error says that some are gone, or a part of one.
func (f *File) merge(files []sealed) (merged *segment, missing error) {
	var state State
	err := guarded(func() (err error) {
		state, err = f.sum(files)
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errShort):
		return nil, err
	case err != nil:
		return nil, nil // the next process finds the fault
	}
	merged, err = f.writeMerged(f.path(files[len(files)-1].number), state, files)
	switch {
	case errors.Is(err, errShort):
		return nil, err
	case err != nil:
		return nil, nil // which may pass
	}
	for _, file := range files[:len(files)-1] {
		os.Remove(f.path(file.number)) // one that stays does not count: the merged file begins anew
	}
	return merged, nil
}

// writeMerged puts a file with the state of files in the place of the one at path, or leaves
// that one.
func (f *File) writeMerged(path string, state State, files []sealed) (*segment, error) {
	content, err := writeNew(path+halfMadeSuffix, func(w io.Writer) error {
		return guarded(func() error { // the state may have parts of the mappings
			f.write(w, state, files)
			return nil
		})
	})
	if err != nil {
		os.Remove(path + halfMadeSuffix)
		return nil, err
	}
	s := &segment{path: path + halfMadeSuffix, memory: content, merged: true}
	if err := os.Rename(s.path, path); err != nil {
		s.discard()
		return nil, err
	}
	s.path = path
	return s, nil
}

// write writes the state of files as a file before which no other counts.
func (f *File) write(w io.Writer, state State, files []sealed) {
	frame := f.head(true, 0)
	w.Write(frame)
	written := 0
	state.Dump(func(record []byte) {
		frame = appendFrame(frame[:0], record)
		w.Write(frame)
		if written += len(frame); written >= releaseEvery {
			releaseAll(files)
			written = 0
		}
	})
}

func releaseAll(files []sealed) {
	for _, file := range files {
		release(file.segment.memory)
	}
}

// sum returns the state that sealed files of this process add up to. It reads their
// mappings, but the files have to be there.
func (f *File) sum(files []sealed) (State, error) {
	state := f.o.Merge()
	for _, file := range files {
		if _, err := os.Lstat(f.path(file.number)); err != nil {
			return nil, err
		}
		if err := f.applyTo(state, file.segment); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// applyTo applies the records of a file to a state. The checksums of a merged file are
// checked, because it was not read since it was written.
func (f *File) applyTo(state State, s *segment) error {
	if !s.merged {
		records := s.records()
		return errors.Join(state.ApplyAll(s.releasing(records.all)), records.fault)
	}
	records, err := f.recordsOf(s.memory, true)
	if err != nil {
		return err
	}
	return errors.Join(state.ApplyAll(s.releasing(records.all)), records.end())
}

// replaceMerged notes which files there are. It tells whether the merged file replaces them.
func (f *File) replaceMerged(files []sealed, merged *segment, missing error) (done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.active == nil: // all were removed meanwhile
		merged.discard()
	case missing != nil:
		f.stopForGood(missing)
	case merged != nil:
		f.sealed = f.sealed[len(files)-1:]
		f.sealed[0].segment = merged
		f.size = f.sizeFor(len(merged.memory))
	default:
		for _, file := range files {
			file.lend(false)
		}
		return false
	}
	return true
}

// sizeFor returns how large a file is to be beside a merged one: as large, so that a merge
// writes at most as much again as was appended.
func (f *File) sizeFor(merged int) int { return max(f.o.SegmentSize, merged) }

// endMerge unmaps files that were replaced, and begins the next merge if there is something
// to merge.
func (f *File) endMerge(files []sealed, done bool) {
	if done {
		for _, file := range files {
			if file.segment != nil {
				file.segment.close()
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.merging = false
	if done && len(f.sealed) > 1 {
		f.startMerge()
	}
}
