package statefile

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// beginLocked makes a new file with a state the active one.
func (f *File) beginLocked(state State) error {
	next, err := f.create(f.number+1, state, 0)
	if err == nil {
		err = f.activateLocked(next)
	}
	return err
}

// activateLocked gives a complete file its name. If that fails, it removes the file.
func (f *File) activateLocked(next *segment) error {
	if err := os.Rename(next.Name(), f.path(next.number)); err != nil {
		next.discard()
		return err
	}
	next.rewriteAbove = next.size / 5 * 4
	f.active, f.number = next, next.number
	return nil
}

// create writes a state into a new file, which is twice as large and has room for a record of that
// size. It has a temporary name.
func (f *File) create(number int, state State, room int64) (*segment, error) {
	path := f.path(number) + incompleteSuffix
	os.Remove(path) // if it fails, OpenFile reports an error
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	next := &segment{File: file, number: number}
	if err = lock(file, syscall.LOCK_EX); err == nil {
		err = f.write(next, state, room)
	}
	if err == nil {
		if next.memory, err = mapFile(file, next.size); err != nil {
			err = fmt.Errorf("its %d bytes cannot be mapped: %w", next.size, err)
		}
	}
	if err != nil {
		next.discard()
		return nil, err
	}
	return next, nil
}

// discard removes a file that has a temporary name.
func (s *segment) discard() {
	s.close()
	os.Remove(s.Name())
}

// write writes the head, the records of a state, and zeros up to the size of the file. The head has that
// size as well.
func (f *File) write(next *segment, state State, room int64) error {
	w := bufio.NewWriterSize(next, 64<<10) // it returns an error of any Write from Flush as well
	head := func() []byte {
		return appendFrame(nil, head{size: next.size, owner: f.o.Owner}.encode())
	}
	n, _ := w.Write(head())
	next.used = int64(n)
	var frame []byte
	state.Dump(func(record []byte) {
		frame = appendFrame(frame[:0], record)
		n, _ := w.Write(frame)
		next.used += int64(n)
	})
	next.size = max(f.o.MinSize, (next.used+room)/2*5) // so it doubles before the next rewrite
	zeros := make([]byte, 64<<10)
	for left := next.size - next.used; left > 0; left -= int64(len(zeros)) {
		w.Write(zeros[:min(left, int64(len(zeros)))])
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("no room for its %d bytes: %w", next.size, err)
	}
	_, err := next.WriteAt(head(), 0)
	return err
}

// startRewriteLocked replaces the active file by one with the same state and room for a record of that
// size. Its goroutine ends when that is done or has failed: Freeze and Close wait for it.
func (f *File) startRewriteLocked(room int64) {
	done, old, used, number := make(chan struct{}), f.active, f.active.used, f.number+1
	f.rewriting = done
	go func() {
		defer close(done)
		next, err := f.rewritten(old, used, number, room)
		f.mu.Lock()
		defer f.mu.Unlock()
		if err == nil {
			err = f.replaceLocked(next, old, used)
		}
		if err != nil { // the cause may go away
			old.rewriteAbove += (old.size - old.rewriteAbove) / 2
		}
		f.rewriting, f.rewriteErr = nil, err
	}()
}

// rewritten returns a new file with the state in the first bytes of another one.
func (f *File) rewritten(old *segment, used int64, number int, room int64) (*segment, error) {
	state := f.o.New()
	if err := f.apply(state, old.File, used); err != nil {
		return nil, err // Check or the next process finds the fault
	}
	return f.create(number, state, room)
}

var errSuperseded = errors.New("the file is not used any more")

// replaceLocked replaces old by next, which has the records in the first used bytes of old.
func (f *File) replaceLocked(next, old *segment, used int64) error {
	err := errSuperseded
	if f.active == old && !f.frozen && !f.closed && f.displacedLocked() == "" {
		err = next.copyFrom(old, used)
	}
	if err != nil {
		next.discard()
		return err
	}
	if err := f.activateLocked(next); err != nil {
		return err
	}
	os.Remove(f.path(old.number))
	old.close()
	return nil
}

// copyFrom appends the records of old from an offset on.
func (s *segment) copyFrom(old *segment, offset int64) error {
	records := make([]byte, old.used-offset)
	if s.used+int64(len(records)) >= s.size {
		return errors.New("there are too many new records")
	}
	if _, err := old.ReadAt(records, offset); err != nil {
		return err
	}
	if _, err := s.WriteAt(records, s.used); err != nil {
		return err
	}
	s.used += int64(len(records))
	return nil
}

// awaitRoomLocked waits for a file with room for a record of that size. If none can be written, the
// state is kept in memory.
func (f *File) awaitRoomLocked(size int64) {
	started := f.rewriting == nil
	if started {
		f.startRewriteLocked(size)
	}
	rewriting := f.rewriting
	f.mu.Unlock()
	<-rewriting
	f.mu.Lock()
	if started && f.rewriteErr != nil && !f.frozen && !f.closed && f.active != nil {
		f.continueInMemoryLocked(f.rewriteErr)
	}
}
