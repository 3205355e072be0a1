package state

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"
)

// The codec refuses bytes that no daemon wrote, without allocating for them: a number that is cut,
// has no end or is out of its range, and a length above the number of bytes left.
func TestCodecRefuses(t *testing.T) {
	unsigned, signed := func(c *codec) { c.uint(new(uint64)) }, func(c *codec) { c.int(new(int)) }
	number, flag := func(c *codec) { c.number(new(int)) }, func(c *codec) { c.flag(new(bool)) }
	duration := func(c *codec) { c.duration(new(time.Duration)) }
	part, texts := func(c *codec) { c.part() }, func(c *codec) { c.texts(new([]string)) }
	endless := bytes.Repeat([]byte{0xff}, binary.MaxVarintLen64+1)
	wide := func(n uint64) []byte { return binary.AppendUvarint(nil, n) }
	for _, test := range []struct {
		what string
		b    []byte
		read func(*codec)
	}{
		{"a number that is cut", []byte{0x80}, unsigned},
		{"a number without an end", endless, unsigned},
		{"a signed one that is cut", []byte{0x80}, signed},
		{"a signed one without an end", endless, signed},
		{"a number that would be negative", wide(math.MaxInt + 1), number},
		{"a duration that would be negative", wide(math.MaxInt64 + 1), duration},
		{"neither true nor false", []byte{2}, flag},
		{"a part without its last byte", []byte{2, 'a'}, part},
		{"a part of a negative length", wide(math.MaxUint64), part},
		{"more texts than bytes", append(wide(math.MaxInt), 0), texts},
	} {
		c := &codec{b: test.b, reading: true}
		if test.read(c); c.err != errRecord || c.b != nil {
			t.Errorf("%s: error %v, and %q is left; want an invalid record", test.what, c.err, c.b)
		}
	}
}
