package term

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Progress draws a progress line for a task of known length. Without a terminal it draws nothing.
type Progress struct {
	out    io.Writer // nil: no terminal
	length time.Duration
	start  time.Time

	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex // guards what; no other mutex is taken inside it
	what string
}

const (
	progressWidth = 30
	ProgressEvery = 200 * time.Millisecond
)

func NewProgress(out io.Writer, length time.Duration) *Progress {
	p := &Progress{length: length, stop: make(chan struct{})}
	if _, ok := ScreenOf(out); ok {
		p.out = out
	}
	return p
}

// Begin starts part i of n parts of equal length. The first call starts the goroutine that draws;
// End waits for it.
func (p *Progress) Begin(what string, i, n int) {
	p.mu.Lock()
	p.what = fmt.Sprintf("%d/%d %s", i+1, n, what)
	p.mu.Unlock()
	if i == 0 && p.out != nil {
		p.start = time.Now()
		p.done.Go(p.draw)
	}
}

// End clears the line.
func (p *Progress) End() {
	close(p.stop)
	p.done.Wait()
}

func (p *Progress) draw() {
	ticker := time.NewTicker(ProgressEvery)
	defer ticker.Stop()
	for {
		fmt.Fprint(p.out, "\r"+p.line(time.Since(p.start))+ClearLine)
		select {
		case <-ticker.C:
		case <-p.stop:
			fmt.Fprint(p.out, "\r"+ClearLine)
			return
		}
	}
}

// line returns the line for the time that has passed.
func (p *Progress) line(passed time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	passed = min(passed, p.length)
	full := int(progressWidth * passed / p.length)
	return fmt.Sprintf("[%s%s] %3d%% %s", strings.Repeat("#", full), strings.Repeat(" ", progressWidth-full), 100*passed/p.length, p.what)
}

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
	if c.out == nil || time.Since(c.drawn) < ProgressEvery || !Writable(c.out) {
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
