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
	segment *segment // nil: an earlier process wrote it
}

// length returns the size with which the file was created; 0: it is not known.
func (s sealed) length() int {
	if s.segment == nil {
		return 0
	}
	return len(s.segment.memory)
}

// setLent marks the mapping as lent to the goroutine that merges the file, or ends that. That
// goroutine unmaps it.
func (s sealed) setLent(lent bool) {
	if s.segment != nil {
		s.segment.isLent = lent
	}
}

func (f *File) numbers() (numbers []int) {
	for _, file := range f.sealed {
		numbers = append(numbers, file.number)
	}
	return numbers
}

// startMerge merges the sealed files in a goroutine, for which Freeze and Close wait. It
// requires mu.
func (f *File) startMerge() {
	if f.merging || f.stopping || f.closed {
		return
	}
	f.merging = true
	files := slices.Clone(f.sealed)
	for _, file := range files {
		file.setLent(true)
	}
	f.merges.Go(func() {
		merged, err := f.merge(files)
		f.endMerge(files, f.replaceMerged(files, merged, err))
	})
}

// merge replaces files by one file with the number of the last one. If merged is nil, the files are
// unchanged. The error missing says that files were removed or truncated.
func (f *File) merge(files []sealed) (merged *segment, missing error) {
	var state State
	err := guarded(func() (err error) {
		state, err = f.mergedState(files)
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
		return nil, nil // the cause may go away: the next merge retries
	}
	for _, file := range files[:len(files)-1] {
		os.Remove(f.path(file.number)) // if it stays, it does not count: the merged file begins anew
	}
	return merged, nil
}

// writeMerged replaces the file at path by one with the state of files. If it fails, that file is
// unchanged.
func (f *File) writeMerged(path string, state State, files []sealed) (*segment, error) {
	content, err := writeNew(path+incompleteSuffix, func(w io.Writer) error {
		return guarded(func() error { // the state may have slices of the mappings
			f.write(w, state, files)
			return nil
		})
	})
	if err != nil {
		os.Remove(path + incompleteSuffix)
		return nil, err
	}
	s := &segment{path: path + incompleteSuffix, memory: content, merged: true}
	if err := os.Rename(s.path, path); err != nil {
		s.discard()
		return nil, err
	}
	s.path = path
	return s, nil
}

// write writes the state of files as a file that begins anew: earlier files do not count.
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

// mergedState returns the state of all sealed files of this process. It reads their mappings, but
// fails if a file was removed.
func (f *File) mergedState(files []sealed) (State, error) {
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

// applyTo applies the records of a file to a state. It checks the checksums of a merged file, which
// was not read since it was written.
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

// replaceMerged records the result of a merge. It returns false if the files are still in use.
func (f *File) replaceMerged(files []sealed, merged *segment, missing error) (done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.active == nil: // all files were removed meanwhile
		merged.discard()
	case missing != nil:
		f.stopForGood(missing)
	case merged != nil:
		f.sealed = f.sealed[len(files)-1:]
		f.sealed[0].segment = merged
		f.size = f.sizeFor(len(merged.memory))
	default:
		for _, file := range files {
			file.setLent(false)
		}
		return false
	}
	return true
}

// sizeFor returns the size of the next file. It is at least as large as the merged file, so that
// merges write at most as much as was appended.
func (f *File) sizeFor(merged int) int { return max(f.o.SegmentSize, merged) }

// endMerge unmaps files that were replaced, and begins the next merge if there are files to merge.
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
