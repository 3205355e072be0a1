package statefile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync/atomic"
	"unsafe"
)

// A frame is the length of a record, its checksum and its bytes. It begins at a multiple of
// four. Zeros follow the last frame: no record has the length 0.
const (
	frameHead  = 8
	frameAlign = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameSize returns the size of the frame of a record of n bytes.
func frameSize(n int) int { return (frameHead + n + frameAlign - 1) &^ (frameAlign - 1) }

// checksum covers the length as well, so that it also detects a record that was cut.
func checksum(record []byte) uint32 {
	sum := ^uint32(0)
	for shift := 0; shift < 32; shift += 8 { // the four bytes of the length, without allocating them
		sum = castagnoli[byte(sum)^byte(len(record)>>shift)] ^ sum>>8
	}
	return crc32.Update(^sum, castagnoli, record)
}

func appendFrame(to, record []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, uint32(len(record)))
	to = binary.LittleEndian.AppendUint32(to, checksum(record))
	to = append(to, record...)
	for len(to)%frameAlign != 0 {
		to = append(to, 0)
	}
	return to
}

// putFrame is appendFrame for the beginning of a mapping that is zeros. A kill at any moment leaves a
// whole record or none, because the length is written last.
func putFrame(to, record []byte) {
	copy(to[frameHead:], record)
	binary.LittleEndian.PutUint32(to[4:], checksum(record))
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&to[0])), littleEndian(uint32(len(record))))
}

// littleEndian returns the number whose bytes in memory are n in little endian.
func littleEndian(n uint32) uint32 {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], n)
	return binary.NativeEndian.Uint32(b[:])
}

// frames reads the frames of a file.
type frames struct {
	from   *bufio.Reader
	left   int64 // bytes of the file
	record []byte
}

// framesOf returns the frames in the first length bytes of a file.
func framesOf(file io.ReaderAt, length int64) *frames {
	return &frames{from: bufio.NewReaderSize(io.NewSectionReader(file, 0, length), 64<<10), left: length}
}

// next returns the next record, which is valid until the next call. A nil record without an error is
// the end.
func (f *frames) next() (record []byte, err error) {
	head, err := f.from.Peek(int(min(f.left, frameHead)))
	if err != nil {
		return nil, err
	}
	if len(head) < frameHead {
		return nil, allZero(head)
	}
	n, sum := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	switch {
	case n == 0:
		return nil, nil
	case int64(n) > f.left-frameHead:
		return nil, fmt.Errorf("a record of %d bytes where %d are left", n, f.left-frameHead)
	}
	size := int(min(int64(frameSize(int(n))), f.left))
	f.record = slices.Grow(f.record[:0], size)[:size]
	if _, err := io.ReadFull(f.from, f.record); err != nil {
		return nil, err
	}
	f.left -= int64(size)
	if record = f.record[frameHead : frameHead+n]; sum != checksum(record) {
		return nil, fmt.Errorf("a record of %d bytes does not match its checksum", n)
	}
	return record, nil
}

func allZero(b []byte) error {
	for _, c := range b {
		if c != 0 {
			return errors.New("its end is not zero")
		}
	}
	return nil
}

// head is the first record of every file.
type head struct {
	size  int64  // the minimum size of the file: a shorter one was truncated
	owner []byte // see Options.Owner
}

func (h head) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(h.size))
	return append(b, h.owner...)
}

// head reads the head, which is the first record.
func (f *frames) head() (head, error) {
	b, err := f.next()
	switch {
	case err != nil:
		return head{}, err
	case len(b) < 8:
		return head{}, errors.New("its first record is too short")
	}
	return head{size: int64(binary.LittleEndian.Uint64(b)), owner: slices.Clone(b[8:])}, nil
}
