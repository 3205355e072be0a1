package term

import (
	"bytes"
	"cmp"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	ClearScreen = "\x1b[2J"
	CursorHome  = "\x1b[H"
	ClearLine   = "\x1b[K" // from the cursor to the end of the line
	ClearBelow  = "\x1b[J"
)

// Paint appends to out what replaces the screen's contents by text, cut to the screen's size.
func (s screen) Paint(out *bytes.Buffer, text []byte, first bool) {
	if first {
		out.WriteString(ClearScreen)
	}
	out.WriteString(CursorHome)
	n := 0
	for line := range strings.Lines(string(text)) {
		if n++; n == s.height {
			break // the last line is left for the cursor
		}
		out.WriteString(s.cut(strings.TrimSuffix(line, "\n")) + ClearLine + "\n")
	}
	out.WriteString(ClearBelow)
}

// screen is the size of a terminal when it was read. It may change at any time.
type screen struct{ width, height int }

// The size of a terminal that does not report one.
const (
	usualWidth  = 80
	usualHeight = 24
)

// ScreenOf returns the screen of the terminal behind a stream; ok is false if there is no terminal.
func ScreenOf(stream any) (s screen, ok bool) {
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

// Columns returns the width of the terminal behind a stream, or 0.
func Columns(stream any) int {
	size, err := sizeOf(stream)
	if err != nil {
		return 0
	}
	return cmp.Or(int(size.Col), usualWidth)
}

// sizeOf fails if the stream is not a terminal.
func sizeOf(stream any) (size *unix.Winsize, err error) {
	err = unix.ENOTTY
	Descriptor(stream, func(fd int) { size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ) })
	return size, err
}

// cut cuts a line so that it does not wrap. It counts each character as one column.
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
