package statefile

import (
	"errors"
	"fmt"
	"slices"
)

// replay makes a state of files. The error says up to where it goes, or that it is
// of no use at all. Nothing behind a fault is taken: what it builds upon may be
// missing.
func (t *Table) replay(numbers []int) (State, error) {
	state := t.o.New()
	first := t.firstThatCounts(numbers)
	for i, number := range numbers[first:] {
		err := errGap
		if i == 0 || number == numbers[first+i-1]+1 {
			err = t.replayFile(state, number, i == 0)
		}
		switch {
		case errors.Is(err, errOwner):
			return t.o.New(), fmt.Errorf("%s: %w", t.file(number), err)
		case err != nil:
			return state, fmt.Errorf("%s: %w: what it said from there on is not known", t.file(number), err)
		}
	}
	return state, nil
}

// firstThatCounts is the last one that begins anew.
func (t *Table) firstThatCounts(numbers []int) int {
	for i, number := range slices.Backward(numbers) {
		if beginsAnew(t.file(number)) {
			return i
		}
	}
	return 0
}

func (t *Table) replayFile(state State, number int, first bool) error {
	content, err := readOwn(t.file(number))
	if err != nil {
		return err
	}
	records, err := t.recordsOf(content, first)
	if err != nil {
		return err
	}
	for record := range records.all {
		if err := state.Apply(record); err != nil {
			return err
		}
	}
	return records.end()
}

// recordsOf are those of a file, if they are about what this table is.
func (t *Table) recordsOf(content []byte, first bool) (*checked, error) {
	h, rest, err := splitHead(content)
	if err != nil && !errors.Is(err, errCut) {
		return nil, err
	}
	if cause := t.o.Check(h.owner); cause != nil {
		return nil, fmt.Errorf("%w: %w", errOwner, cause)
	}
	if first != h.begins {
		return nil, errGap
	}
	return &checked{content: rest, cut: err}, nil
}

var (
	errOwner = errors.New("of no use") // the files are about something else
	errGap   = errors.New("the one before it is missing")
)
