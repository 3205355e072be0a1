package state

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// codec writes or reads the fields of a record, so that one list of fields serves both. After an
// error it reads nothing more.
type codec struct {
	b       []byte // written so far, or left to read
	reading bool
	err     error
}

var errRecord = errors.New("a record that makes no sense")

func (c *codec) fail() {
	c.b, c.err = nil, errRecord
}

func (c *codec) uint(v *uint64) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	n := 0
	if *v, n = binary.Uvarint(c.b); n <= 0 {
		c.fail()
		return
	}
	c.b = c.b[n:]
}

// int writes or reads a number that may be negative.
func (c *codec) int(v *int) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	wide, n := binary.Varint(c.b)
	if n <= 0 {
		c.fail()
		return
	}
	*v, c.b = int(wide), c.b[n:]
}

// number writes or reads a number that is not negative.
func (c *codec) number(v *int) {
	wide := uint64(*v)
	if c.uint(&wide); wide > math.MaxInt {
		c.fail()
		return
	}
	*v = int(wide)
}

func (c *codec) duration(v *time.Duration) {
	wide := uint64(*v)
	if c.uint(&wide); wide > math.MaxInt64 {
		c.fail()
		return
	}
	*v = time.Duration(wide)
}

func (c *codec) flag(v *bool) {
	n := 0
	if *v {
		n = 1
	}
	if c.number(&n); n > 1 {
		c.fail()
		return
	}
	*v = n == 1
}

func (c *codec) bytes(v *[]byte) {
	if !c.reading {
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*v))), *v...)
		return
	}
	*v = append([]byte(nil), c.part()...)
}

func (c *codec) text(v *string) {
	if !c.reading {
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*v))), *v...)
		return
	}
	*v = string(c.part())
}

// part reads a length, and then so many bytes.
func (c *codec) part() []byte {
	n := 0
	if c.number(&n); n > len(c.b) {
		c.fail()
		return nil
	}
	part := c.b[:n:n]
	c.b = c.b[n:]
	return part
}

func (c *codec) texts(v *[]string) {
	n := len(*v)
	if c.number(&n); c.reading {
		if n > len(c.b) { // each text takes at least a byte
			c.fail()
			return
		}
		*v = nil
		if n > 0 {
			*v = make([]string, n)
		}
	}
	for i := range *v {
		c.text(&(*v)[i])
	}
}

// end returns the error of reading. It is an error if bytes are left.
func (c *codec) end() error {
	if c.err == nil && len(c.b) > 0 {
		c.fail()
	}
	return c.err
}
