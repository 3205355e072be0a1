package statefile

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// State is the result of applying records.
type State interface {
	// Apply applies a record, and must not keep its bytes. An error says that the record
	// is invalid.
	Apply(record []byte) error
	// ApplyAll is Apply for many records. It may read them several times, and may skip records that do
	// not affect the result.
	ApplyAll(records iter.Seq[[]byte]) error
	// Dump yields records that turn a new state into this one. A record is valid until yield
	// returns.
	Dump(yield func(record []byte))
}

// Options are the options of Open.
type Options struct {
	Path string
	// Owner is written into the file. Check returns why a file with this Owner must not be used,
	// or nil.
	Owner []byte
	Check func(owner []byte) error
	// New makes an empty state.
	New func() State
	// Failed is called once with the reason why no file can be written, and with nil when a file is
	// written again. It must not block: the mutex of the File is held.
	Failed func(error)
	// MinSize is the minimum size of a file. 0: 2 MiB.
	MinSize int64
}

const minSize = 2 << 20

// ErrRemoved is why writing stops for good.
var ErrRemoved = errors.New("the state file was removed or cut short")

// File is a state file that is open for appending. It is safe for concurrent use.
type File struct {
	o        Options
	unfrozen chan struct{} // closed by Close

	// mu guards the fields below. No other mutex is taken inside it.
	mu         sync.Mutex
	active     *segment      // nil: the state is in inMemory, or the File is closed
	number     int           // of the active file, or of the last one
	rewriting  chan struct{} // closed when the goroutine of startRewriteLocked ends; nil: there is none
	rewriteErr error         // of the last rewrite
	frozen     bool
	closed     bool
	inMemory   State     // while no file can be written
	lastRetry  time.Time // of the last attempt to write a file
}

// segment is the open file.
type segment struct {
	*os.File     // locked: see InUse
	number       int
	memory       []byte // the file, mapped
	used, size   int64  // INVARIANT: used < size, and the bytes between them are zeros
	rewriteAbove int64  // if used is larger, a rewrite begins
	released     int64  // used at the last release of the mapping
}

// releaseEvery bounds how many bytes of the file count as memory of the process. The file is larger than
// the records of all leases.
const releaseEvery = 1 << 20

// append appends a record, for which there is room.
func (s *segment) append(record []byte) error {
	err := guarded(func() { putFrame(s.memory[s.used:], record) })
	if s.used += int64(frameSize(len(record))); s.used-s.released >= releaseEvery {
		release(s.memory)
		s.released = s.used
	}
	return err
}

// close ends the lock: the mapping and the file have it.
func (s *segment) close() {
	unmap(s.memory)
	s.File.Close()
}

// PathFor returns the path of the state file of a redlockd with that socket. Its directory should be
// one that a reboot empties and that only the daemon's user can write to.
func PathFor(socket string) string { return socket + ".table" }

func (f *File) path(number int) string { return fmt.Sprintf("%s.%d", f.o.Path, number) }

// Open reads the state that an earlier process left at the path, and begins a new file. If a part
// of the old files could not be used, damage says why, and state is the state of the rest. If err
// is not nil, no file can be written: the File is nil and the old files are removed, but state and
// damage are valid.
func Open(o Options) (f *File, state State, damage, err error) {
	if o.MinSize == 0 {
		o.MinSize = minSize
	}
	f = &File{o: o, unfrozen: make(chan struct{})}
	f.removeIncomplete()
	numbers, err := fileNumbers(o.Path)
	if err != nil {
		return nil, o.New(), nil, fmt.Errorf("finding the files of the last process: %w", err)
	}
	if n := len(numbers); n > 0 {
		f.number = numbers[n-1]
	}
	state, damage = f.recover(numbers)
	if err = f.beginLocked(state); err != nil {
		f.remove(numbers) // this makes room, and they would soon be out of date
		err = f.beginLocked(state)
	}
	if err != nil {
		return nil, state, damage, fmt.Errorf("writing a new one: %w", err)
	}
	f.remove(numbers)
	return f, state, damage, nil
}

// Remove removes the files of a state file that no process uses.
func Remove(path string) {
	f := &File{o: Options{Path: path}}
	f.removeIncomplete()
	numbers, _ := fileNumbers(path) // none if there is no such directory
	f.remove(numbers)
}

// remove removes files. If one stays, it does not count: the next file begins anew.
func (f *File) remove(numbers []int) {
	for _, number := range numbers {
		os.Remove(f.path(number))
	}
}

// incompleteSuffix ends the names of files that are not complete.
const incompleteSuffix = ".new"

// removeIncomplete removes files that were incomplete when a process was killed.
func (f *File) removeIncomplete() {
	half, _ := filepath.Glob(f.o.Path + ".*" + incompleteSuffix) // files at a path with special characters stay
	for _, path := range half {
		os.Remove(path)
	}
}

// Append appends a copy of a record. While no file can be written, it changes the state in memory
// instead. After Freeze it does not return, so that its caller does nothing that was not recorded:
// it blocks until Close, and then ends the goroutine. After Close without Freeze it does nothing.
func (f *File) Append(record []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	size := int64(frameSize(len(record)))
	for !f.frozen && !f.closed && f.active != nil && f.active.used+size >= f.active.size {
		f.awaitRoomLocked(size)
	}
	switch {
	case f.frozen:
		f.mu.Unlock()
		<-f.unfrozen
		f.mu.Lock() // for the deferred Unlock
		runtime.Goexit()
	case f.closed:
	case f.active != nil:
		if err := f.active.append(record); err != nil {
			f.stopForGoodLocked(err)
		} else if f.active.used > f.active.rewriteAbove && f.rewriting == nil {
			f.startRewriteLocked(0)
		}
	default:
		_ = f.inMemory.Apply(record) // it cannot fail: this process made the record
		if f.rewriting == nil && time.Since(f.lastRetry) >= retryAfter {
			f.retryLocked()
		}
	}
}

// Freeze ends all writing as if the process had been killed at this moment: calls of Append do not
// return. The file stays.
func (f *File) Freeze() { f.end(&f.frozen) }

// Close ends appending. The file stays for the next process. It must be called only once.
func (f *File) Close() {
	f.end(&f.closed)
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.unfrozen)
	if f.active != nil {
		f.active.close()
		f.active = nil
	}
}

// end sets frozen or closed, and waits for the goroutine of a rewrite, which then changes nothing.
func (f *File) end(how *bool) {
	f.mu.Lock()
	*how = true
	rewriting := f.rewriting
	f.mu.Unlock()
	if rewriting != nil {
		<-rewriting
	}
}

// continueInMemoryLocked removes the file, which would soon be out of date, and keeps the state in
// memory. If the state cannot be read, writing stops for good.
func (f *File) continueInMemoryLocked(why error) {
	state := f.o.New()
	if err := f.apply(state, f.active.File, f.active.used); err != nil {
		f.stopForGoodLocked(err)
		return
	}
	f.inMemory, f.lastRetry = state, time.Now()
	f.removeActiveLocked()
	f.report(why)
}

// stopForGoodLocked ends appending: somebody truncated the file, and a part of the state is not
// known. It removes the file, because the next process would take a part of the state for all of
// it.
func (f *File) stopForGoodLocked(err error) {
	f.removeActiveLocked()
	f.closed = true
	f.report(fmt.Errorf("%w: only a restart of redlockd creates a new one: %w", ErrRemoved, err))
}

func (f *File) removeActiveLocked() {
	os.Remove(f.path(f.active.number))
	f.active.close()
	f.active = nil
}

// retryAfter is the least time between attempts to write a file: each attempt copies the state.
const retryAfter = time.Second

// retryLocked writes the state in memory into a file, if one can be created.
func (f *File) retryLocked() {
	f.lastRetry = time.Now()
	if f.beginLocked(f.inMemory) == nil {
		f.inMemory = nil
		f.report(nil)
	}
}

func (f *File) report(err error) {
	if f.o.Failed != nil {
		f.o.Failed(err)
	}
}
