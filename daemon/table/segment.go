package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// segment is the file that records go into.
type segment struct {
	memory []byte
	used   int
}

// newSegment makes a file with records in it. It is there under its name with all of
// them, or not at all.
func newSegment(path string, size int, records []byte) (*segment, error) {
	aside := path + asideSuffix
	memory, err := mapFile(aside, size)
	if err != nil {
		return nil, err
	}
	s := &segment{memory: memory, used: copy(memory, records)}
	if err := os.Rename(aside, path); err != nil {
		s.close()
		os.Remove(aside)
		return nil, err
	}
	return s, nil
}

// asideSuffix is what files are called that are not complete yet.
const asideSuffix = ".new"

// append is false if there is no room, and nothing was done.
func (s *segment) append(record []byte) bool {
	size := frameSize(len(record))
	if size > len(s.memory)-s.used {
		return false
	}
	putFrame(s.memory[s.used:], record)
	s.used += size
	return true
}

// close keeps the file.
func (s *segment) close() {
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

// openFile reads a file up to its head.
func openFile(path string) (h head, rest []byte, err error) {
	content, err := readOwn(path)
	if err != nil {
		return h, nil, err
	}
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
	h, _, err := openFile(path)
	return (err == nil || errors.Is(err, errCut)) && h.begins
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
