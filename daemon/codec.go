package daemon

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// codec writes the fields of a record, or reads them: what lists the fields once
// does both. After an error nothing more is read.
type codec struct {
	b        []byte // written so far, or what is left to read
	reading  bool
	skimming bool // texts are passed over
	err      error
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

// int is for what may be negative.
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

// number is for what is not negative.
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

// bytes are copied when read.
func (c *codec) bytes(v *[]byte) {
	n := len(*v)
	c.number(&n)
	switch {
	case !c.reading:
		c.b = append(c.b, *v...)
	case n > len(c.b):
		c.fail()
	case c.skimming:
		c.b = c.b[n:]
	default:
		*v = append([]byte(nil), c.b[:n]...)
		c.b = c.b[n:]
	}
}

func (c *codec) text(v *string) {
	if !c.reading {
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*v))), *v...)
		return
	}
	var b []byte
	c.bytes(&b)
	*v = string(b)
}

func (c *codec) texts(v *[]string) {
	n := len(*v)
	if c.number(&n); c.reading {
		if n > len(c.b) { // each takes a byte at least
			c.fail()
			return
		}
		if *v = nil; n > 0 && !c.skimming {
			*v = make([]string, n)
		}
	}
	for ; c.skimming && n > 0; n-- {
		var passed string
		c.text(&passed)
	}
	for i := range *v {
		c.text(&(*v)[i])
	}
}

// end is the error of what was read: nothing may be left.
func (c *codec) end() error {
	if c.err == nil && len(c.b) > 0 {
		c.fail()
	}
	return c.err
}
