package statefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"unsafe"
)

// A record in a file is its length, its checksum and its bytes, and begins at a
// multiple of four. Behind the last one there are zeros, which is no length.
const (
	frameHead  = 8
	frameAlign = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameSize is what a record of n bytes takes.
func frameSize(n int) int { return (frameHead + n + frameAlign - 1) &^ (frameAlign - 1) }

// checksum covers the length, too: a record that is cut short is none.
func checksum(record []byte) uint32 {
	sum := ^uint32(0)
	for shift := 0; shift < 32; shift += 8 { // of four bytes, by hand: they need no memory
		sum = castagnoli[byte(sum)^byte(len(record)>>shift)] ^ sum>>8
	}
	return crc32.Update(^sum, castagnoli, record)
}

// putFrame writes a record to the beginning of to, which is zeros, and which a
// process of another time may read after a kill in any moment: the length comes last.
func putFrame(to, record []byte) {
	copy(to[frameHead:], record)
	binary.LittleEndian.PutUint32(to[4:], checksum(record))
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&to[0])), littleEndian(uint32(len(record))))
}

// littleEndian is n such that its bytes in memory are those of little endian.
func littleEndian(n uint32) uint32 {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], n)
	return binary.NativeEndian.Uint32(b[:])
}

// appendFrame is putFrame for what nobody reads meanwhile.
func appendFrame(to, record []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, uint32(len(record)))
	to = binary.LittleEndian.AppendUint32(to, checksum(record))
	to = append(to, record...)
	for len(to)%frameAlign != 0 {
		to = append(to, 0)
	}
	return to
}

// nextFrame is the record at the beginning of from, and what comes after it. A nil
// record without an error is the end.
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

// written are records of this process, as they lie in memory. Their checksums are not
// looked at again: nobody but us has written there.
type written struct {
	memory []byte
	fault  error // known after all: not all of it is records
}

// all yields the records. They are valid until the memory is used for something else.
func (w *written) all(yield func(record []byte) bool) {
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

// checked are records of a file, with their checksums.
type checked struct {
	content []byte
	cut     error // what is known to be missing behind them: errCut; or nil
	fault   error // what is wrong behind the last one that was yielded
}

// all yields the records.
func (c *checked) all(yield func(record []byte) bool) {
	for rest := c.content; ; {
		var record []byte
		if record, rest, c.fault = nextFrame(rest); record == nil || c.fault != nil || !yield(record) {
			return
		}
	}
}

// end is what is wrong with those that were gone through.
func (c *checked) end() error { return errors.Join(c.fault, c.cut) }

func allZero(b []byte) error {
	for _, c := range b {
		if c != 0 {
			return fmt.Errorf("the end is not zero")
		}
	}
	return nil
}
