package main

import (
	"fmt"
	"math"
	"strconv"
)

// numberFlag is a flag whose value is a whole number within bounds.
type numberFlag struct {
	to          *int
	name        string // of the value, in help
	least, most int
}

// anyNumber is for a number whose bounds are checked by others, which say more.
func anyNumber(to *int, name string) *numberFlag {
	return &numberFlag{to, name, math.MinInt, math.MaxInt}
}

// Set is called for a value on the command line.
func (n *numberFlag) Set(word string) error {
	value, err := strconv.ParseInt(word, 0, strconv.IntSize)
	switch {
	case err == nil && n.least <= int(value) && int(value) <= n.most:
		*n.to = int(value)
		return nil
	case n.least == math.MinInt:
		return fmt.Errorf("wanted is a number")
	case n.most == math.MaxInt:
		return fmt.Errorf("wanted is a number from %d on", n.least)
	}
	return fmt.Errorf("wanted is a number, %d to %d", n.least, n.most)
}

func (n *numberFlag) String() string { return strconv.Itoa(*n.to) }

// Type is what help calls the value.
func (n *numberFlag) Type() string { return n.name }
