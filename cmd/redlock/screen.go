package main

import (
	"cmp"

	"golang.org/x/sys/unix"
)

// screen is a terminal that something is shown on. Its size is what was there
// last: it may change at any time.
type screen struct{ width, height int }

// The size of a terminal that does not tell it.
const (
	usualWidth  = 80
	usualHeight = 24
)

// screenOf is the terminal behind a stream; ok is false where there is none.
func screenOf(stream any) (s screen, ok bool) {
	size, err := sizeOf(stream)
	if err != nil {
		return s, false
	}
	s = screen{int(size.Col), int(size.Row)}
	if s.width == 0 || s.height == 0 {
		s = screen{usualWidth, usualHeight}
	}
	return s, true
}

// columns is the width of the terminal behind a stream; 0 where there is none.
func columns(stream any) int {
	size, err := sizeOf(stream)
	if err != nil {
		return 0
	}
	return cmp.Or(int(size.Col), usualWidth)
}

// sizeOf errs where there is no terminal.
func sizeOf(stream any) (size *unix.Winsize, err error) {
	err = unix.ENOTTY
	descriptor(stream, func(fd int) { size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ) })
	return size, err
}

// cut is a line that does not wrap. A character is taken to be as wide as any other.
func (s screen) cut(line string) string {
	n := 0
	for i := range line {
		if n == s.width {
			return line[:i]
		}
		n++
	}
	return line
}
