package statefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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

// putFrame writes a record to the beginning of to, which is zeros. A kill at any moment
// leaves a whole record or none, because the length is written last.
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

// appendFrame is putFrame for memory that no other process can see yet.
func appendFrame(to, record []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, uint32(len(record)))
	to = binary.LittleEndian.AppendUint32(to, checksum(record))
	to = append(to, record...)
	for len(to)%frameAlign != 0 {
		to = append(to, 0)
	}
	return to
}

// nextFrame returns the record at the beginning of from, and the rest. A nil record without an error
// is the end.
func nextFrame(from []byte) (record, rest []byte, err error) {
	if len(from) < frameHead {
		return nil, nil, allZero(from)
	}
	n := binary.LittleEndian.Uint32(from)
	switch {
	case n == 0:
		return nil, nil, nil
	case uint64(n) > uint64(len(from)-frameHead):
		return nil, nil, fmt.Errorf("a record of %d bytes where %d are left", n, len(from)-frameHead)
	}
	record = from[frameHead : frameHead+n]
	if binary.LittleEndian.Uint32(from[4:]) != checksum(record) {
		return nil, nil, fmt.Errorf("a record of %d bytes does not match its checksum", n)
	}
	return record, from[min(frameSize(int(n)), len(from)):], nil
}

// mappedRecords is memory with records of this process. It does not check their checksums: no other
// process has written there.
type mappedRecords struct {
	memory []byte
	fault  error // set by all if some bytes are not a record
}

// all yields the records, which are slices of the memory.
func (w *mappedRecords) all(yield func(record []byte) bool) {
	for rest := w.memory; len(rest) > 0; {
		if len(rest) < frameHead {
			w.fault = fmt.Errorf("%d bytes are left, which is no record", len(rest))
			return
		}
		n := int(binary.LittleEndian.Uint32(rest))
		if n == 0 || n > len(rest)-frameHead {
			w.fault = fmt.Errorf("a record of %d bytes where %d are left", n, len(rest)-frameHead)
			return
		}
		if !yield(rest[frameHead : frameHead+n]) {
			return
		}
		rest = rest[frameSize(n):]
	}
}

// checkedRecords is the content of a file. Its method all checks the checksums.
type checkedRecords struct {
	content []byte
	cut     error // errCut if records are missing at the end
	fault   error // the error after the last record that was yielded
}

// all yields the records.
func (c *checkedRecords) all(yield func(record []byte) bool) {
	for rest := c.content; ; {
		var record []byte
		if record, rest, c.fault = nextFrame(rest); record == nil || c.fault != nil || !yield(record) {
			return
		}
	}
}

// end returns the error after the records that all yielded.
func (c *checkedRecords) end() error { return errors.Join(c.fault, c.cut) }

func allZero(b []byte) error {
	for _, c := range b {
		if c != 0 {
			return errors.New("its end is not zero")
		}
	}
	return nil
}
