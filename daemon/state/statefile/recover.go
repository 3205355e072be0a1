package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

var (
	errOwner = errors.New("it cannot be used")
	errNone  = errors.New("it is no state file, or cannot be read")
	// errCut says that a file was truncated. Only root and the daemon's user can do that. The bytes
	// that are left are valid.
	errCut = errors.New("it was cut short")
)

// recover reads the state from the newest state file: it contains what older ones had, which a kill may
// have left. The error says up to where it could be read, which files are none, or that it cannot be used.
// Records after a fault do not count, because they may need what is missing.
func (f *File) recover(numbers []int) (state State, damage error) {
	for _, number := range slices.Backward(numbers) {
		state = f.o.New()
		err := f.recoverFile(state, number)
		switch {
		case errors.Is(err, errOwner):
			return f.o.New(), fmt.Errorf("%s: %w", f.path(number), err)
		case err != nil:
			damage = errors.Join(damage, fmt.Errorf("%s: %w: the records from there on are lost", f.path(number), err))
		}
		if !errors.Is(err, errNone) {
			return state, damage
		}
	}
	return f.o.New(), damage
}

func (f *File) recoverFile(state State, number int) error {
	file, info, err := openOwn(f.path(number))
	if err != nil {
		return fmt.Errorf("%w: %w", errNone, err)
	}
	defer file.Close()
	return f.apply(state, file, info.Size())
}

// apply applies the records in the first used bytes of a file, if it has the right owner.
func (f *File) apply(state State, file *os.File, used int64) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	length := min(used, info.Size())
	h, err := framesOf(file, length).head()
	if err != nil {
		return fmt.Errorf("%w: %w", errNone, errors.Join(err, cut(info.Size(), used)))
	}
	if cause := f.o.Check(h.owner); cause != nil {
		return fmt.Errorf("%w: %w", errOwner, cause)
	}
	var fault error
	err = state.ApplyAll(func(yield func([]byte) bool) {
		all, record := framesOf(file, length), []byte(nil)
		_, fault = all.head()
		for fault == nil {
			if record, fault = all.next(); record == nil || !yield(record) {
				return
			}
		}
	})
	return errors.Join(err, fault, cut(info.Size(), h.size))
}

// cut returns an error that matches errCut if a file is smaller than it was.
func cut(size, before int64) error {
	if size >= before {
		return nil
	}
	return fmt.Errorf("%w: %d bytes of %d are left", errCut, size, before)
}

// fileNumbers returns the numbers of the files at a path, in order.
func fileNumbers(path string) (numbers []int, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		suffix, ok := strings.CutPrefix(entry.Name(), filepath.Base(path)+".")
		if n, err := strconv.Atoi(suffix); ok && err == nil && n > 0 && suffix == strconv.Itoa(n) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
