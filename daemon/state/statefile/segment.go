package statefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// segment is a mapped file of records.
type segment struct {
	path     string
	memory   []byte
	begin    int // index of the first record, after the head
	used     int
	released int // value of used at the last release

	file   *os.File // while it is the active file: see InUse
	merged bool     // a merge wrote it: nothing is appended, and memory contains the head
	isLent bool     // a merge reads it and later unmaps it; guarded by mu of the File
}

// newSegment creates a file without a head. It has a temporary name until start.
func newSegment(path string, size int) (*segment, error) {
	path += incompleteSuffix
	memory, file, err := mapFile(path, size)
	if err != nil {
		return nil, err
	}
	return &segment{path: path, memory: memory, file: file}, nil
}

// start writes the head and records into a new file, and then renames it to path. If that fails, it
// removes the file.
func (s *segment) start(path string, head, records []byte) error {
	err := guarded(func() error {
		s.begin = copy(s.memory, head)
		s.used = s.begin + copy(s.memory[s.begin:], records)
		return nil
	})
	if err == nil {
		err = os.Rename(s.path, path)
	}
	if err != nil {
		s.discard()
		return err
	}
	s.path = path
	return nil
}

// records returns the records, which are slices of the mapping.
func (s *segment) records() *mappedRecords { return &mappedRecords{memory: s.memory[s.begin:s.used]} }

// discard removes the file.
func (s *segment) discard() {
	if s != nil {
		s.close()
		os.Remove(s.path)
	}
}

// incompleteSuffix ends the names of files that are not complete.
const incompleteSuffix = ".new"

// append appends a record. If it does not fit, it does nothing.
func (s *segment) append(record []byte) (fits bool, err error) {
	size := frameSize(len(record))
	if size > len(s.memory)-s.used {
		return false, nil
	}
	err = guarded(func() error {
		putFrame(s.memory[s.used:], record)
		return nil
	})
	if s.used += size; s.used-s.released >= releaseEvery {
		release(s.memory)
		s.released = s.used
	}
	return true, err
}

// releaseEvery bounds how many bytes of a file count as memory of the process. A file can be as
// large as the records of all leases, and a merge reads two.
const releaseEvery = 1 << 20

// releasing yields the records of the segment, and releases the pages that were read.
func (s *segment) releasing(records iter.Seq[[]byte]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		defer release(s.memory)
		read := 0
		for record := range records {
			if !yield(record) {
				return
			}
			if read += frameSize(len(record)); read >= releaseEvery {
				release(s.memory)
				read = 0
			}
		}
	}
}

// seal unlocks the file: another file is active and locked. (Closing it is not enough: the mapping
// keeps the lock.)
func (s *segment) seal() {
	if s.file != nil {
		_ = lock(s.file, syscall.LOCK_UN)
		s.file.Close()
		s.file = nil
	}
}

// close unmaps the file, which stays.
func (s *segment) close() {
	s.seal()
	if err := unmap(s.memory); err != nil {
		panic("statefile: " + err.Error()) // a bug: the memory is mapped
	}
	s.memory = nil
}

// head is the first record of every file.
type head struct {
	begins bool   // the file begins anew: earlier files do not count
	size   int    // the minimum size of the file: a shorter one was truncated
	owner  []byte // see Options.Owner
}

func (h head) encode() []byte {
	b := []byte{0}
	if h.begins {
		b[0] = 1
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(h.size))
	return append(b, h.owner...)
}

func decodeHead(b []byte) (head, error) {
	if len(b) < 9 || b[0] > 1 {
		return head{}, errors.New("it is not a state file")
	}
	return head{begins: b[0] == 1, size: int(binary.LittleEndian.Uint64(b[1:])), owner: b[9:]}, nil
}

// splitHead reads the head of a file. If the error is errCut, the result is valid.
func splitHead(content []byte) (h head, rest []byte, err error) {
	first, rest, err := nextFrame(content)
	if err == nil {
		h, err = decodeHead(first)
	}
	if err == nil && len(content) < h.size {
		err = fmt.Errorf("%w: %d bytes of %d are left", errCut, len(content), h.size)
	}
	return h, rest, err
}

// errCut says that the file was truncated. The bytes that are left are valid.
var errCut = errors.New("it was cut short")

// beginsAnew reports whether a file begins anew. It is false if the file cannot be read.
func beginsAnew(path string) bool {
	content, err := readOwn(path)
	if err != nil {
		return false
	}
	h, _, err := splitHead(content)
	return (err == nil || errors.Is(err, errCut)) && h.begins
}

// findFiles returns the files that an earlier process left.
func findFiles(path string) (files []sealed, err error) {
	numbers, err := fileNumbers(path)
	for _, number := range numbers {
		files = append(files, sealed{number: number})
	}
	return files, err
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
