package term

import (
	"fmt"
	"io"
	"time"
)

// drawEvery is the time between two pictures of a progress line.
const drawEvery = 200 * time.Millisecond

// Counter draws a progress line for a task of unknown length. Without a terminal it draws nothing.
type Counter struct {
	out   io.Writer // nil: no terminal
	drawn time.Time
}

// NewCounter returns a Counter that draws on a terminal; out may be nil.
func NewCounter(out io.Writer) *Counter {
	c := &Counter{}
	if _, ok := ScreenOf(out); ok {
		c.out = out
	}
	return c
}

// Show draws the text, unless it drew a moment ago or the terminal would block.
func (c *Counter) Show(text string) {
	if c.out == nil || time.Since(c.drawn) < drawEvery || !Writable(c.out) {
		return
	}
	c.drawn = time.Now()
	fmt.Fprint(c.out, "\r"+text+ClearLine)
}

// End clears the line.
func (c *Counter) End() {
	if c.out != nil && !c.drawn.IsZero() {
		fmt.Fprint(c.out, "\r"+ClearLine)
	}
}
