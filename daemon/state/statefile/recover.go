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
	errGap   = errors.New("the file before it is missing")
	// errCut says that a file was truncated. Only root and the daemon's user can do that. The bytes
	// that are left are valid.
	errCut = errors.New("it was cut short")
)

// recover reads the state from files: one, or the several files of an earlier version. The error says
// up to where they could be read, or that they cannot be used. It applies no record after a fault,
// because an earlier one that it needs may be missing.
func (f *File) recover(numbers []int) (State, error) {
	state := f.o.New()
	first := f.firstRelevant(numbers)
	for i, number := range numbers[first:] {
		err := errGap
		if i == 0 || number == numbers[first+i-1]+1 {
			err = f.recoverFile(state, number, i == 0)
		}
		switch {
		case errors.Is(err, errOwner):
			return f.o.New(), fmt.Errorf("%s: %w", f.path(number), err)
		case err != nil:
			return state, fmt.Errorf("%s: %w: the records from there on are lost", f.path(number), err)
		}
	}
	return state, nil
}

// firstRelevant returns the index of the last file that begins anew, or 0.
func (f *File) firstRelevant(numbers []int) int {
	for i, number := range slices.Backward(numbers) {
		if beginsAnew(f.path(number)) {
			return i
		}
	}
	return 0
}

// beginsAnew reports whether a file begins anew. It is false if the file cannot be read.
func beginsAnew(path string) bool {
	file, info, err := openOwn(path)
	if err != nil {
		return false
	}
	defer file.Close()
	h, err := framesOf(file, info.Size()).head()
	return err == nil && h.begins
}

func (f *File) recoverFile(state State, number int, first bool) error {
	file, info, err := openOwn(f.path(number))
	if err != nil {
		return err
	}
	defer file.Close()
	return f.apply(state, file, info.Size(), first)
}

// apply applies the records in the first used bytes of a file, if it has the right owner.
func (f *File) apply(state State, file *os.File, used int64, begins bool) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	length := min(used, info.Size())
	h, err := framesOf(file, length).head()
	if err != nil {
		return errors.Join(err, cut(info.Size(), used))
	}
	if cause := f.o.Check(h.owner); cause != nil {
		return fmt.Errorf("%w: %w", errOwner, cause)
	}
	if begins != h.begins {
		return errGap
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
