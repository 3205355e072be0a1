package statefile

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// State is what records come to.
type State interface {
	// Apply takes a record in, and keeps nothing of its bytes. An error says that it
	// is none that makes sense.
	Apply(record []byte) error
	// ApplyAll comes to the same as Apply for each of the records, in their order. It
	// may go through them several times, leave out what changes nothing in the end, and
	// keep their bytes: they stay as they are for as long as the state is used.
	ApplyAll(records iter.Seq[[]byte]) error
	// Dump gives records that make the same state of a new one. They are used before
	// yield returns.
	Dump(yield func(record []byte))
}

// Options say what a table is about.
type Options struct {
	Path string
	// Owner is kept in every file. Check says of the Owner of files that are found
	// whether what they say may be used; if not, why.
	Owner []byte
	Check func(owner []byte) error
	// New makes an empty state.
	New func() State
	// Failed is told why nothing can be written, once, and nil when that is over. It
	// must not block.
	Failed func(error)
	// SegmentSize is how large the files are at least. 0: 2 MiB.
	SegmentSize int
}

const segmentSize = 2 << 20

// ErrRemoved is why nothing is written any more, for good.
var ErrRemoved = errors.New("files of the table were removed, or cut short")

// Table is open for appending. It is safe for concurrent use.
type Table struct {
	o Options

	compacting sync.WaitGroup

	mu      sync.Mutex // guards what follows
	last    *segment   // nil: memory counts
	number  int        // of last, or of the last one that there was
	frozen  []frozen   // the files before it
	spare   *segment   // the next file, without a name that counts yet; or nil
	making  bool       // that one is being made
	tried   bool       // it was, since last was begun
	size    int        // of the next file
	busy    bool       // frozen files are being made one
	ending  bool       // nothing is begun in the background any more
	closed  bool
	memory  State     // while nothing can be written
	retried time.Time // when it was tried last
}

// Beside is the path of the table of a redlockd that listens at a socket: in a directory
// that is empty after a boot, and that others than its user cannot write to.
func Beside(socket string) string { return socket + ".table" }

// Open reads what an earlier process left at the path, and begins to append. damage
// says what of it was not usable: state is what could be made of the rest, and
// nothing where it belongs to another owner. err: the table cannot be written, and
// there is none, nor the old one; state and damage are told nevertheless.
func Open(o Options) (t *Table, state State, damage, err error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = segmentSize
	}
	t = &Table{o: o, size: o.SegmentSize}
	t.removeHalfMade()
	if t.frozen, err = found(o.Path); err != nil {
		return nil, o.New(), nil, fmt.Errorf("table: %w", err)
	}
	if n := len(t.frozen); n > 0 {
		t.number = t.frozen[n-1].number
	}
	state, damage = t.replay(t.numbers())
	err = t.begin(state)
	if err != nil {
		t.removeFrozen()     // what they say would be wrong soon
		err = t.begin(state) // where there was no space, there is theirs
	}
	if err != nil {
		return nil, state, damage, fmt.Errorf("table: %w", err)
	}
	return t, state, damage, nil
}

// Remove removes the files of a table that nobody is to go on with.
func Remove(path string) {
	t := &Table{o: Options{Path: path}}
	t.removeHalfMade()
	t.frozen, _ = found(path) // none where there is no such directory
	t.removeFrozen()
}

// removeHalfMade removes files that a kill has kept from being made.
func (t *Table) removeHalfMade() {
	half, _ := filepath.Glob(t.o.Path + ".*" + asideSuffix) // a path with odd characters keeps them
	for _, path := range half {
		os.Remove(path)
	}
}

// Append adds a record, which it copies. Where nothing can be written it is kept in
// memory. After Freeze it blocks for ever.
func (t *Table) Append(record []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
	case t.last == nil:
		t.keep(record)
	default:
		t.appendToLast(record)
	}
}

// appendToLast needs mu.
func (t *Table) appendToLast(record []byte) {
	switch fits, err := t.last.append(record); {
	case err != nil:
		t.lose(err)
	case fits:
		t.lookAhead()
	default:
		t.appendToNext(record)
	}
}

// Freeze has this process change nothing any more, as if it had been killed in this
// moment: whoever calls Append waits for ever. The files stay. It waits for what is done
// in the background, and not for more, which others would append enough for.
func (t *Table) Freeze() {
	t.mu.Lock() // and never unlocked
	t.ending = true
	for t.busy || t.making {
		t.mu.Unlock()
		t.compacting.Wait()
		t.mu.Lock()
	}
}

// Leave ends appending: the files stay for the next process. Append does nothing
// after it.
func (t *Table) Leave() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.compacting.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		return
	}
	t.last.close()
	t.last = nil
	t.unmapFrozen()
	t.takeSpare().discard()
}

func (t *Table) file(number int) string { return fmt.Sprintf("%s.%d", t.o.Path, number) }

// begin makes a file of a state, beside which no other counts. It needs mu, or to
// be alone.
func (t *Table) begin(state State) error {
	content := t.content(state)
	if err := t.startFile(true, max(t.size, 2*len(content)), content); err != nil {
		return err
	}
	t.removeFrozen()
	t.memory = nil
	return nil
}

// startFile goes on in another file, of that size at least: the one that was made
// ahead, or a new one. It needs mu, or to be alone.
func (t *Table) startFile(begins bool, size int, content []byte) error {
	path := t.file(t.number + 1)
	t.tried = false
	s := t.takeSpare()
	if !s.fits(size) {
		s.discard()
	} else if s.start(path, t.head(begins, len(s.memory)), content) == nil {
		t.number, t.last = t.number+1, s
		return nil
	}
	s, err := newSegment(path, size)
	if err == nil {
		err = s.start(path, t.head(begins, size), content)
	}
	if err == nil {
		t.number, t.last = t.number+1, s
	}
	return err
}

// head is the first record of a file.
func (t *Table) head(begins bool, size int) []byte {
	return appendFrame(nil, head{begins: begins, size: size, owner: t.o.Owner}.encode())
}

// content is a state as records in a row.
func (t *Table) content(state State) (content []byte) {
	state.Dump(func(record []byte) { content = appendFrame(content, record) })
	return content
}

// appendToNext goes on in another file: this one is full. It needs mu.
func (t *Table) appendToNext(record []byte) {
	full := t.last
	t.frozen = append(t.frozen, frozen{number: t.number, mapped: full})
	t.last = nil
	if err := t.startFile(false, max(t.size, 2*frameSize(len(record))), nil); err != nil {
		if t.fail(err); !t.closed {
			t.keep(record)
		}
		return
	}
	full.full()
	if _, err := t.last.append(record); err != nil {
		t.lose(err)
	}
	t.compact()
}

// fail goes on in memory: what the files say would not be true for long. It needs mu.
func (t *Table) fail(err error) {
	state, missing := t.stateInMemory()
	if missing != nil {
		t.lose(missing)
		return
	}
	t.leaveFiles(state, err)
}

// leaveFiles has memory count: what the files say would be wrong soon. It needs mu.
func (t *Table) leaveFiles(state State, why error) {
	t.memory = state
	t.retried = time.Now()
	t.drop()
	t.tell(why)
}

// lose ends appending for good: somebody has removed files, or cut them short, and
// nobody knows all that they said. Rather nothing is left for the next process than
// what seems to be all, and is not. It needs mu.
func (t *Table) lose(err error) {
	t.drop()
	t.closed = true
	t.tell(fmt.Errorf("%w: start the daemon again to begin a new one: %w", ErrRemoved, err))
}

// retryAfter is how long nothing is written after a failure: a try costs a copy of
// the state.
const retryAfter = time.Second

// keep takes a record in while nothing can be written. It needs mu.
func (t *Table) keep(record []byte) {
	_ = t.memory.Apply(record) // it is ours
	if t.busy || time.Since(t.retried) < retryAfter {
		return
	}
	t.tryFiles()
}

// tryFiles begins a file of what is in memory, if one can be made. It needs mu.
func (t *Table) tryFiles() {
	t.retried = time.Now()
	if t.begin(t.memory) == nil {
		t.tell(nil)
	}
}

// drop removes all files. It needs mu.
func (t *Table) drop() {
	if t.last != nil {
		t.frozen = append(t.frozen, frozen{number: t.number, mapped: t.last})
		t.last = nil
	}
	t.takeSpare().discard()
	t.unmapFrozen()
	t.removeFrozen()
}

// unmapFrozen ends the mappings of frozen files, but for those that are being merged.
// It needs mu.
func (t *Table) unmapFrozen() {
	for _, f := range t.frozen {
		if f.mapped != nil && !f.mapped.lent {
			f.mapped.close()
		}
	}
}

func (t *Table) removeFrozen() {
	for _, f := range t.frozen {
		os.Remove(t.file(f.number)) // what cannot be removed does not count beside one that begins anew
	}
	t.frozen = nil
}

func (t *Table) tell(err error) {
	if t.o.Failed != nil {
		t.o.Failed(err)
	}
}
