package statefile

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// Check finds out whether the files are there under their names, and whole: an append
// notices only that a whole page was cut off. If somebody has removed some, it begins a new
// file with the state of the mappings. If one was cut short, or another process has begun a
// state file meanwhile, it stops writing for good. It does not wait for other goroutines
// that use the File.
func (f *File) Check() {
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if f.closed || f.frozen || f.active == nil || f.merging {
		return
	}
	missing, short := f.missing()
	used := f.displaced()
	switch {
	case used != "":
		f.yield(used)
		return
	case short != nil:
		f.stopForGood(short)
		return
	case missing == nil:
		return
	}
	state, err := f.stateOfMappings()
	if err != nil {
		f.stopForGood(missing)
		return
	}
	f.leaveFiles(state, fmt.Errorf("somebody removed files of it: %w", missing))
	f.retryFiles()
}

// missing returns the error of a file that is not there, and of one that is shorter than it
// was made. It needs mu.
func (f *File) missing() (missing, short error) {
	for _, file := range f.files() {
		info, err := os.Lstat(f.path(file.number))
		switch {
		case errors.Is(err, os.ErrNotExist):
			missing = err
		case err == nil && info.Size() < int64(file.length()):
			short = fmt.Errorf("%s: %w: %d bytes of %d are left", f.path(file.number), errShort, info.Size(), file.length())
		}
	}
	return missing, short
}

// stateOfMappings makes a state of the mappings. The error says that somebody has cut a file
// short or written into it. It needs mu.
func (f *File) stateOfMappings() (state State, err error) {
	state = f.o.New()
	err = guarded(func() error {
		for _, file := range f.files() {
			if err := f.applyTo(state, file.segment); err != nil {
				return err
			}
		}
		return nil
	})
	return state, err
}

// files returns the sealed files and the active one. It needs mu.
func (f *File) files() []sealed {
	if f.active == nil {
		return f.sealed
	}
	return append(slices.Clip(f.sealed), sealed{number: f.number, segment: f.active})
}
