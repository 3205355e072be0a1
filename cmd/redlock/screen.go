package main

import (
	"cmp"
	"syscall"

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

// sizeOf errs where there is no terminal. (It goes without File.Fd, which makes
// the stream a blocking one, for those as well that we share it with.)
func sizeOf(stream any) (size *unix.Winsize, err error) {
	file, has := stream.(syscall.Conn)
	if !has {
		return nil, unix.ENOTTY
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { size, err = unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ) })
	return size, cmp.Or(failed, err)
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
