package table

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// replay makes a state of files. The error says up to where it goes, or that it is
// of no use at all. Nothing behind a fault is taken: what it builds upon may be
// missing.
func (t *Table) replay(numbers []int) (State, error) {
	state := t.o.New()
	if len(numbers) == 0 {
		return state, nil
	}
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

// replayOurs is replay of our own files, which are whole: what can be wrong is that they
// are made one in this moment, which the second try finds done. It needs mu, so that
// this comes once.
func (t *Table) replayOurs() (State, error) {
	state, err := t.replay(t.frozen)
	if err != nil {
		state, err = t.replay(t.frozen)
	}
	return state, err
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
	h, records, err := openFile(t.file(number))
	if err != nil && !errors.Is(err, errCut) {
		return err
	}
	if cause := t.o.Check(h.owner); cause != nil {
		return fmt.Errorf("%w: %w", errOwner, cause)
	}
	if first != h.begins { // or it has just taken the place of those before it: see replayOurs
		return errGap
	}
	return errors.Join(applyAll(state, records), err)
}

var (
	errOwner = errors.New("of no use") // the files are about something else
	errGap   = errors.New("the one before it is missing")
)

func applyAll(state State, records []byte) error {
	for {
		record, rest, err := nextFrame(records)
		if record == nil || err != nil {
			return err
		}
		if err := state.Apply(record); err != nil {
			return err
		}
		records = rest
	}
}

// compact has the frozen files made one, in the background. It needs mu.
func (t *Table) compact() {
	if t.busy || t.closed || len(t.frozen) == 0 {
		return
	}
	t.busy = true
	numbers := slices.Clone(t.frozen)
	t.compacting.Go(func() {
		size, err := t.merge(numbers)
		t.merged(numbers, size, err)
	})
}

// merge writes one file in the place of others, under the number of the last. 0: it
// could not, and they are as they were. The error says that some are not there.
func (t *Table) merge(numbers []int) (size int, missing error) {
	state, err := t.replay(numbers)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, err
	case err != nil:
		return 0, nil // these are ours: they cannot be read now, which may pass
	}
	content := append(t.head(true, 0), t.content(state)...)
	last := t.file(numbers[len(numbers)-1])
	if err = writeNew(last+asideSuffix, content); err == nil {
		err = os.Rename(last+asideSuffix, last)
	}
	if err != nil {
		os.Remove(last + asideSuffix)
		return 0, nil
	}
	for _, number := range numbers[:len(numbers)-1] {
		os.Remove(t.file(number)) // what stays does not count: the merged one begins anew
	}
	return len(content), nil
}

// merged notes which files there are.
func (t *Table) merged(numbers []int, size int, missing error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = false
	switch {
	case t.last == nil: // all were dropped meanwhile
		os.Remove(t.file(numbers[len(numbers)-1]))
	case missing != nil:
		t.lose(missing)
	case size > 0:
		t.frozen = t.frozen[len(numbers)-1:]
		t.size = max(t.o.SegmentSize, 2*size)
		if len(t.frozen) > 1 {
			t.compact()
		}
	}
}
