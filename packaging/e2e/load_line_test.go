//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"sync"
)

// line is clients who wait for one lock in a known order, behind one who holds it.
type line struct {
	load   *load
	holder *caller
	rest   []*caller
	waits  []*request
}

func newLine(l *load, n int) *line {
	line := &line{load: l, holder: l.connect()}
	for range n - 1 {
		line.rest = append(line.rest, l.connect())
	}
	for _, c := range append(line.rest, line.holder) {
		c.wantOK("PING")
	}
	return line
}

// form: the holder takes the lock, and the others stand in line one after the
// other: requests with tags begin in their order, so who is answered PING waits.
func (n *line) form() {
	n.waits = nil
	if !n.holder.take("line", "") {
		return
	}
	for _, c := range n.rest {
		requests := c.send("", c.lockText("line", ""), "PING")
		c.await(requests[1])
		n.waits = append(n.waits, requests[0])
	}
}

// pass: the holder gives the lock back, and those in line get it one after the
// other.
func (n *line) pass() {
	n.holder.check("line")
	n.holder.give("line")
	var mu sync.Mutex // guards got
	var got []string
	var all sync.WaitGroup
	for i, r := range n.waits {
		c := n.rest[i]
		all.Go(func() {
			if n.load.book.granted(c.name, "line", c.await(r)) {
				mu.Lock()
				got = append(got, c.name)
				mu.Unlock()
				c.give("line")
			}
		})
	}
	all.Wait()
	var want []string
	for _, c := range n.rest {
		want = append(want, c.name)
	}
	if !slices.Equal(got, want) {
		n.load.fault("the line lost its order: got %q, want %q", got, want)
	}
}

// half is a client in the middle of a line.
type half struct {
	c    *caller
	lock string
	text string
	r    *request
}

func newHalf(l *load) *half {
	h := &half{c: l.connect()}
	h.lock = fmt.Sprint("half-", len(l.halves))
	h.c.wantOK("PING")
	return h
}

// begin writes a whole line and, with it, the first bytes of another: when the
// first is answered the daemon has read the rest, too.
func (h *half) begin() {
	h.c.mu.Lock()
	h.r = &request{text: h.c.lockText(h.lock, ""), answers: make(chan string, 100)}
	text := h.c.tag(h.r)
	h.c.mu.Unlock()
	cut := len(text) / 2
	h.text = text[cut:]
	h.c.await(h.c.send(text[:cut], "PING")[0])
}

// end writes what is missing. A daemon that was killed while it took the beginning of the
// line may have lost that: the next one skips the rest then, and no answer comes, so that
// the whole line is sent again (repeatLost).
func (h *half) end() {
	h.c.write(h.text)
	if h.c.load.book.granted(h.c.name, h.lock, h.c.await(h.r)) {
		h.c.give(h.lock)
	}
}
