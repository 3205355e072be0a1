package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress is a line on a terminal that shows how far something is that takes a
// known time; where there is no terminal, it shows nothing.
type progress struct {
	out    io.Writer // nil: nothing is shown
	length time.Duration
	start  time.Time

	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex // guards what follows
	what string
}

const (
	progressWidth = 30
	progressEvery = 200 * time.Millisecond
)

func newProgress(out io.Writer, length time.Duration) *progress {
	p := &progress{length: length, stop: make(chan struct{})}
	if _, ok := screenOf(out); ok {
		p.out = out
	}
	return p
}

// begin says that part i of n, which are equally long, begins.
func (p *progress) begin(what string, i, n int) {
	p.mu.Lock()
	p.what = fmt.Sprintf("%d/%d %s", i+1, n, what)
	p.mu.Unlock()
	if i == 0 && p.out != nil {
		p.start = time.Now()
		p.done.Go(p.draw)
	}
}

// end takes the line away.
func (p *progress) end() {
	close(p.stop)
	p.done.Wait()
}

func (p *progress) draw() {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		fmt.Fprint(p.out, "\r"+p.line(time.Since(p.start))+clearLine)
		select {
		case <-ticker.C:
		case <-p.stop:
			fmt.Fprint(p.out, "\r"+clearLine)
			return
		}
	}
}

// line is what is shown after so long.
func (p *progress) line(passed time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	passed = min(passed, p.length)
	full := int(progressWidth * passed / p.length)
	return fmt.Sprintf("[%s%s] %3d%% %s", strings.Repeat("#", full), strings.Repeat(" ", progressWidth-full), 100*passed/p.length, p.what)
}
