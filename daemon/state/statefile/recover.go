package statefile

import (
	"errors"
	"fmt"
	"slices"
)

// recover reads the state from files. The error says up to where they could be read, or that they
// cannot be used. It applies no record after a fault, because an earlier one that it needs may be
// missing.
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

func (f *File) recoverFile(state State, number int, first bool) error {
	content, err := readOwn(f.path(number))
	if err != nil {
		return err
	}
	records, err := f.recordsOf(content, first)
	if err != nil {
		return err
	}
	if err := state.ApplyAll(records.all); err != nil {
		return err
	}
	return records.end()
}

// recordsOf returns the records of a file, if it has the right owner.
func (f *File) recordsOf(content []byte, first bool) (*checkedRecords, error) {
	h, rest, err := splitHead(content)
	if err != nil && !errors.Is(err, errCut) {
		return nil, err
	}
	if cause := f.o.Check(h.owner); cause != nil {
		return nil, fmt.Errorf("%w: %w", errOwner, cause)
	}
	if first != h.begins {
		return nil, errGap
	}
	return &checkedRecords{content: rest, cut: err}, nil
}

var (
	errOwner = errors.New("it cannot be used")
	errGap   = errors.New("the file before it is missing")
)
