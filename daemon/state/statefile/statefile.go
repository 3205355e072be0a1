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
	// ApplyAll is Apply for many records. It may skip records that do not affect the result.
	ApplyAll(records iter.Seq[[]byte]) error
	// Dump yields records that turn a new state into this one. A record is valid until yield
	// returns.
	Dump(yield func(record []byte))
}

// Options are the options of Open.
type Options struct {
	Path string
	// Owner is written into every file. Check returns why a file with this Owner must not be used,
	// or nil.
	Owner []byte
	Check func(owner []byte) error
	// New makes an empty state.
	New func() State
	// Merge makes an empty state for a merge. That state may keep the bytes of records until it is
	// dumped: they do not change. Nil: New.
	Merge func() State
	// Failed is called once with the reason why no file can be written, and with nil when files are
	// written again. It must not block: the mutex of the File is held.
	Failed func(error)
	// SegmentSize is the minimum size of a file. 0: 2 MiB.
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

	// mu guards the fields below. No other mutex is taken inside it.
	mu        sync.Mutex
	active    *segment // nil: the state is in inMemory, or the File is closed
	number    int      // of the active file, or of the last one
	sealed    []sealed // the files before active
	size      int      // of the next file
	merging   bool     // a goroutine merges sealed files
	stopping  bool     // no new merge begins
	frozen    bool
	closed    bool
	inMemory  State     // while no file can be written
	lastRetry time.Time // of the last attempt to write a file
}

// PathFor returns the path of the state file of a redlockd with that socket. Its directory should be
// one that a reboot empties and that only the daemon's user can write to.
func PathFor(socket string) string { return socket + ".table" }

// Open reads the state that an earlier process left at the path, and begins a new file. If a part
// of the old files could not be used, damage says why, and state is the state of the rest. If err
// is not nil, no file can be written: the File is nil and the old files are removed, but state and
// damage are valid.
func Open(o Options) (f *File, state State, damage, err error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = segmentSize
	}
	if o.Merge == nil {
		o.Merge = o.New
	}
	f = &File{o: o, size: o.SegmentSize, unfrozen: make(chan struct{})}
	f.removeIncomplete()
	if f.sealed, err = findFiles(o.Path); err != nil {
		return nil, o.New(), nil, fmt.Errorf("finding the files of the last process: %w", err)
	}
	if n := len(f.sealed); n > 0 {
		f.number = f.sealed[n-1].number
	}
	state, damage = f.recover(f.numbers())
	if err = f.beginAnew(state); err != nil {
		f.removeSealed() // this makes room, and they would soon be out of date
		err = f.beginAnew(state)
	}
	if err != nil {
		return nil, state, damage, fmt.Errorf("writing a new one: %w", err)
	}
	return f, state, damage, nil
}

// Remove removes the files of a state file that no process uses.
func Remove(path string) {
	f := &File{o: Options{Path: path}}
	f.removeIncomplete()
	f.sealed, _ = findFiles(path) // none if there is no such directory
	f.removeSealed()
}

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

// appendToActive requires mu.
func (f *File) appendToActive(record []byte) {
	switch fits, err := f.active.append(record); {
	case err != nil:
		f.stopForGood(err)
	case !fits:
		f.appendToNext(record)
	}
}

// appendToNext seals the active file, which is full, and appends to a new one. It requires mu.
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

// Freeze ends all writing as if the process had been killed at this moment: calls of Append do not
// return. The files stay. It waits for a merge that is in progress, and no other merge begins.
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

// Close ends appending. The files stay for the next process. It must be called only once.
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

// beginAnew writes a state into a new file that begins anew, and removes the earlier files. It
// requires mu, or that no other goroutine uses f.
func (f *File) beginAnew(state State) error {
	content := encode(state)
	if err := f.beginFile(true, max(f.size, 2*len(content)), content); err != nil {
		return err
	}
	f.removeSealed()
	f.inMemory = nil
	return nil
}

// beginFile creates a new active file. If supersedes is set, earlier files do not count. It
// requires mu, or that no other goroutine uses f.
func (f *File) beginFile(supersedes bool, size int, content []byte) error {
	path := f.path(f.number + 1)
	s, err := newSegment(path, size)
	if err == nil {
		err = s.start(path, f.head(supersedes, size), content)
	}
	if err == nil {
		f.number, f.active = f.number+1, s
	}
	return err
}

// head returns the first record of a file.
func (f *File) head(supersedes bool, size int) []byte {
	return appendFrame(nil, head{begins: supersedes, size: size, owner: f.o.Owner}.encode())
}

// encode returns the records of a state in a row.
func encode(state State) (content []byte) {
	state.Dump(func(record []byte) { content = appendFrame(content, record) })
	return content
}

// continueInMemory removes the files, which would soon be out of date, and keeps the state in
// memory. It requires mu.
func (f *File) continueInMemory(why error) {
	state, err := f.stateOfMappings()
	if err != nil {
		f.stopForGood(err)
		return
	}
	f.switchToMemory(state, why)
}

// switchToMemory requires mu.
func (f *File) switchToMemory(state State, why error) {
	f.inMemory = state
	f.lastRetry = time.Now()
	f.removeAll()
	f.reportFailure(why)
}

// stopForGood ends appending: somebody removed or truncated files, and a part of the state is not
// known. It removes all files, because the next process would take a part of the state for all of
// it. It requires mu.
func (f *File) stopForGood(err error) {
	f.removeAll()
	f.closed = true
	f.reportFailure(fmt.Errorf("%w: only a restart of redlockd creates a new one: %w", ErrRemoved, err))
}

// retryAfter is the least time between attempts to write files: each attempt copies the state.
const retryAfter = time.Second

// applyInMemory requires mu.
func (f *File) applyInMemory(record []byte) {
	_ = f.inMemory.Apply(record) // it cannot fail: this process made the record
	if !f.merging && time.Since(f.lastRetry) >= retryAfter {
		f.retryFiles()
	}
}

// retryFiles writes the state in memory into a file, if one can be created. It requires mu.
func (f *File) retryFiles() {
	f.lastRetry = time.Now()
	if f.beginAnew(f.inMemory) == nil {
		f.reportFailure(nil)
	}
}

// removeAll removes all files. It requires mu.
func (f *File) removeAll() {
	if f.active != nil {
		f.sealed = append(f.sealed, sealed{number: f.number, segment: f.active})
		f.active = nil
	}
	f.unmapSealed()
	f.removeSealed()
}

// unmapSealed unmaps the sealed files that no merge reads. It
// requires mu.
func (f *File) unmapSealed() {
	for _, file := range f.sealed {
		if file.segment != nil && !file.segment.isLent {
			file.segment.close()
		}
	}
}

func (f *File) removeSealed() {
	for _, file := range f.sealed {
		os.Remove(f.path(file.number)) // if it stays, it does not count: the next file begins anew
	}
	f.sealed = nil
}

func (f *File) reportFailure(err error) {
	if f.o.Failed != nil {
		f.o.Failed(err)
	}
}
