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

// State is what records add up to.
type State interface {
	// Apply applies a record, and keeps nothing of its bytes. An error says that the record
	// makes no sense.
	Apply(record []byte) error
	// ApplyAll is Apply for many records, and may leave out what changes nothing in the end.
	ApplyAll(records iter.Seq[[]byte]) error
	// Dump yields records that make the same state of a new one. They are used before yield
	// returns.
	Dump(yield func(record []byte))
}

// Options say what a state file is about.
type Options struct {
	Path string
	// Owner is kept in every file. Check says of the Owner of a file that is found why the
	// file must not be used; nil: it may be.
	Owner []byte
	Check func(owner []byte) error
	// New makes an empty state.
	New func() State
	// Merge makes an empty state for a merge. It may keep the bytes of records until it is
	// dumped: they stay as they are. Nil: New.
	Merge func() State
	// Failed is called with the reason why nothing can be written, once, and with nil when
	// files are written again. It must not block, and is called with the mutex of the File.
	Failed func(error)
	// SegmentSize is how large the files are at least. 0: 2 MiB.
	SegmentSize int
}

const segmentSize = 2 << 20

// ErrRemoved is why writing stops for good.
var ErrRemoved = errors.New("the state file was removed or cut short")

// File is a state file that is open for appending. It is safe for concurrent use.
type File struct {
	o Options

	merges   sync.WaitGroup // the goroutine of startMerge; Freeze and Close wait for it
	unfrozen chan struct{}  // closed by Close

	// mu guards what follows. No other mutex is taken inside it.
	mu       sync.Mutex
	active   *segment // nil: the state is in inMemory, or the File is closed
	number   int      // of active, or of the last one that was
	sealed   []sealed // the files before active
	size     int      // of the next file
	merging  bool     // a goroutine merges sealed files
	stopping bool     // no merge begins any more
	frozen   bool
	closed   bool
	inMemory State     // while no file can be written
	retried  time.Time // when writing files was last tried
}

// PathFor returns the path of the state file of a redlockd with that socket. It is in a
// directory that is empty after a boot and that only its user can write to.
func PathFor(socket string) string { return socket + ".table" }

// Open reads what an earlier process left at the path, and begins to append. damage says
// what could not be used of that; state is made of the rest. If err is not nil, nothing can
// be written: the File is nil and the old files are removed, but state and damage are valid.
func Open(o Options) (f *File, state State, damage, err error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = segmentSize
	}
	if o.Merge == nil {
		o.Merge = o.New
	}
	f = &File{o: o, size: o.SegmentSize, unfrozen: make(chan struct{})}
	f.removeHalfMade()
	if f.sealed, err = found(o.Path); err != nil {
		return nil, o.New(), nil, fmt.Errorf("finding the files of the last process: %w", err)
	}
	if n := len(f.sealed); n > 0 {
		f.number = f.sealed[n-1].number
	}
	state, damage = f.recover(f.numbers())
	if err = f.beginAnew(state); err != nil {
		f.removeSealed() // they would soon be wrong
		err = f.beginAnew(state)
	}
	if err != nil {
		return nil, state, damage, fmt.Errorf("writing a new one: %w", err)
	}
	return f, state, damage, nil
}

// Remove removes the files of a state file that nobody goes on with.
func Remove(path string) {
	f := &File{o: Options{Path: path}}
	f.removeHalfMade()
	f.sealed, _ = found(path) // none if there is no such directory
	f.removeSealed()
}

// removeHalfMade removes files that were not complete when a process was killed.
func (f *File) removeHalfMade() {
	half, _ := filepath.Glob(f.o.Path + ".*" + halfMadeSuffix) // those at a path with special characters stay
	for _, path := range half {
		os.Remove(path)
	}
}

// Append adds a copy of a record. While no file can be written, it changes the state in
// memory instead. After Freeze it does not return, so that nothing is done that was not
// recorded: it blocks until Close, and then ends the goroutine. After Close without Freeze it
// does nothing.
func (f *File) Append(record []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen {
		f.mu.Unlock()
		<-f.unfrozen
		f.mu.Lock() // for the deferred Unlock
		runtime.Goexit()
	}
	switch {
	case f.closed:
	case f.active == nil:
		f.applyInMemory(record)
	default:
		f.appendToActive(record)
	}
}

// appendToActive needs mu.
func (f *File) appendToActive(record []byte) {
	switch fits, err := f.active.append(record); {
	case err != nil:
		f.stopForGood(err)
	case !fits:
		f.appendToNext(record)
	}
}

// appendToNext seals the active file, which is full, and goes on in another one. It needs mu.
func (f *File) appendToNext(record []byte) {
	full := f.active
	f.sealed = append(f.sealed, sealed{number: f.number, segment: full})
	f.active = nil
	if err := f.beginFile(false, max(f.size, 2*frameSize(len(record))), nil); err != nil {
		if f.continueInMemory(err); !f.closed {
			f.applyInMemory(record)
		}
		return
	}
	full.seal()
	if _, err := f.active.append(record); err != nil {
		f.stopForGood(err)
	}
	f.startMerge()
}

// Freeze ends all writing, as if the process had been killed in this moment: calls of Append
// do not return. The files stay. It waits for a merge that is under way, but begins no other.
func (f *File) Freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopping = true
	for f.merging {
		f.mu.Unlock()
		f.merges.Wait()
		f.mu.Lock()
	}
	f.frozen = true
}

// Close ends appending. The files stay for the next process. Close it once.
func (f *File) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.merges.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.unfrozen)
	if f.active == nil {
		return
	}
	f.active.close()
	f.active = nil
	f.unmapSealed()
}

func (f *File) path(number int) string { return fmt.Sprintf("%s.%d", f.o.Path, number) }

// beginAnew writes a state into a new file, before which no other counts, and removes the
// others. It needs mu, or no other goroutine.
func (f *File) beginAnew(state State) error {
	content := encode(state)
	if err := f.beginFile(true, max(f.size, 2*len(content)), content); err != nil {
		return err
	}
	f.removeSealed()
	f.inMemory = nil
	return nil
}

// beginFile makes a new active file of that size. If anew, no file before it counts. It
// needs mu, or no other goroutine.
func (f *File) beginFile(anew bool, size int, content []byte) error {
	path := f.path(f.number + 1)
	s, err := newSegment(path, size)
	if err == nil {
		err = s.start(path, f.head(anew, size), content)
	}
	if err == nil {
		f.number, f.active = f.number+1, s
	}
	return err
}

// head returns the first record of a file.
func (f *File) head(anew bool, size int) []byte {
	return appendFrame(nil, head{begins: anew, size: size, owner: f.o.Owner}.encode())
}

// encode returns the records of a state in a row.
func encode(state State) (content []byte) {
	state.Dump(func(record []byte) { content = appendFrame(content, record) })
	return content
}

// continueInMemory removes the files, which would soon be wrong, and keeps the state in
// memory. It needs mu.
func (f *File) continueInMemory(why error) {
	state, err := f.stateOfMappings()
	if err != nil {
		f.stopForGood(err)
		return
	}
	f.leaveFiles(state, why)
}

// leaveFiles needs mu.
func (f *File) leaveFiles(state State, why error) {
	f.inMemory = state
	f.retried = time.Now()
	f.removeAll()
	f.tell(why)
}

// stopForGood ends appending: somebody has removed files or cut one short, and not all that
// they said is known. No file is left for the next process, which would take a part for all.
// It needs mu.
func (f *File) stopForGood(err error) {
	f.removeAll()
	f.closed = true
	f.tell(fmt.Errorf("%w: only a restart of redlockd begins a new one: %w", ErrRemoved, err))
}

// retryAfter is how long nothing is written after a failure: a try copies the state.
const retryAfter = time.Second

// applyInMemory needs mu.
func (f *File) applyInMemory(record []byte) {
	_ = f.inMemory.Apply(record) // it makes sense: this process made it
	if !f.merging && time.Since(f.retried) >= retryAfter {
		f.retryFiles()
	}
}

// retryFiles writes the state in memory into a file, if one can be made. It needs mu.
func (f *File) retryFiles() {
	f.retried = time.Now()
	if f.beginAnew(f.inMemory) == nil {
		f.tell(nil)
	}
}

// removeAll removes all files. It needs mu.
func (f *File) removeAll() {
	if f.active != nil {
		f.sealed = append(f.sealed, sealed{number: f.number, segment: f.active})
		f.active = nil
	}
	f.unmapSealed()
	f.removeSealed()
}

// unmapSealed ends the mappings of sealed files, except where a merge reads them. It
// needs mu.
func (f *File) unmapSealed() {
	for _, file := range f.sealed {
		if file.segment != nil && !file.segment.lent {
			file.segment.close()
		}
	}
}

func (f *File) removeSealed() {
	for _, file := range f.sealed {
		os.Remove(f.path(file.number)) // one that cannot be removed does not count: the next file begins anew
	}
	f.sealed = nil
}

func (f *File) tell(err error) {
	if f.o.Failed != nil {
		f.o.Failed(err)
	}
}
