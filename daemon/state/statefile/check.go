package statefile

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// Check checks whether the files exist under their names and are whole, because an append notices
// only if a whole page was cut off. If files were removed, it begins a new file with the state of
// the mappings. If a file was truncated, or another process has begun a state file, it stops writing
// for good. It does not wait for other goroutines that use the File.
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
		f.stopForOtherProcess(used)
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
	f.switchToMemory(state, fmt.Errorf("somebody removed files of it: %w", missing))
	f.retryFiles()
}

// missing returns an error for a file that does not exist, and one for a file that was truncated. It
// requires mu.
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

// stateOfMappings reads the state from the mappings. The error says that somebody truncated a file
// or wrote into it. It requires mu.
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

// files returns the sealed files and the active one. It requires mu.
func (f *File) files() []sealed {
	if f.active == nil {
		return f.sealed
	}
	return append(slices.Clip(f.sealed), sealed{number: f.number, segment: f.active})
}
