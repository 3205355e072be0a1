package statefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// segment is a file that records go into, or went.
type segment struct {
	path   string // as it is called
	memory []byte
	begin  int // where the records begin, behind the head
	used   int

	file   *os.File // as long as it is the last one, or is to be: see InUse
	merged bool     // it was written whole, and is not written to: the head is in memory, too
	lent   bool     // it is being merged: who does that ends the mapping
}

// newSegment makes a file without a head yet, under its name aside.
func newSegment(path string, size int) (*segment, error) {
	path += asideSuffix
	memory, file, err := mapFile(path, size)
	if err != nil {
		return nil, err
	}
	return &segment{path: path, memory: memory, file: file}, nil
}

// start has an empty file count, with records in it. It is there under its name with
// all of them, or not at all, and gone then.
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

// records are what was appended, as long as the mapping is there.
func (s *segment) records() *written { return &written{memory: s.memory[s.begin:s.used]} }

// fits tells whether it can be used for a file of that size, and is not far too
// large.
func (s *segment) fits(size int) bool {
	return s != nil && len(s.memory) >= size && len(s.memory) <= 2*size
}

// discard removes the file.
func (s *segment) discard() {
	if s != nil {
		s.close()
		os.Remove(s.path)
	}
}

// asideSuffix is what files are called that are not complete yet.
const asideSuffix = ".new"

// append tells whether there was room; if not, nothing was done.
func (s *segment) append(record []byte) (fits bool, err error) {
	size := frameSize(len(record))
	if size > len(s.memory)-s.used {
		return false, nil
	}
	err = guarded(func() error {
		putFrame(s.memory[s.used:], record)
		return nil
	})
	s.used += size
	return true, err
}

// full says that it is not the last one any more: another one is locked. (The mapping
// alone would keep the lock.)
func (s *segment) full() {
	if s.file != nil {
		_ = lock(s.file, syscall.LOCK_UN)
		s.file.Close()
		s.file = nil
	}
}

// close keeps the file.
func (s *segment) close() {
	s.full()
	if err := unmap(s.memory); err != nil {
		panic("table: " + err.Error()) // a defect: it is ours, and mapped
	}
	s.memory = nil
}

// head is the first record of every file.
type head struct {
	begins bool   // nothing before this file counts
	size   int    // of the file, at least: a shorter one was cut
	owner  []byte // what the owner wants to be the same
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
		return head{}, errors.New("it does not begin as a table does")
	}
	return head{begins: b[0] == 1, size: int(binary.LittleEndian.Uint64(b[1:])), owner: b[9:]}, nil
}

// splitHead reads the head of a file.
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

// errCut: what there is of the file is right, as far as it goes.
var errCut = errors.New("it was cut short")

// beginsAnew tells whether nothing before this file counts.
func beginsAnew(path string) bool {
	content, err := readOwn(path)
	if err != nil {
		return false
	}
	h, _, err := splitHead(content)
	return (err == nil || errors.Is(err, errCut)) && h.begins
}

// found are the files of a table that an earlier process left.
func found(path string) (files []frozen, err error) {
	numbers, err := numbered(path)
	for _, number := range numbers {
		files = append(files, frozen{number: number})
	}
	return files, err
}

// numbered are the files of a table, by number, in order.
func numbered(path string) (numbers []int, err error) {
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
