//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"sync"
)

// line is a group of clients that wait for one lock in a known order, and its holder.
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

// form lets the holder take the lock and the others queue for it in order. Requests with tags begin
// in order, so a client that gets the answer to PING waits.
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

// pass releases the lock, and checks that the waiters get it in order.
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
		n.load.fault("the waiters were served out of order: got %q, want %q", got, want)
	}
}

// half is a client that has sent half a line.
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

// begin writes a whole line together with the first bytes of another. When the first line is
// answered, the daemon has read those bytes too.
func (h *half) begin() {
	h.c.mu.Lock()
	h.r = &request{text: h.c.lockText(h.lock, ""), answers: make(chan string, 100)}
	text := h.c.tag(h.r)
	h.c.mu.Unlock()
	cut := len(text) / 2
	h.text = text[cut:]
	h.c.await(h.c.send(text[:cut], "PING")[0])
}

// end writes the rest of the line. If the daemon was killed while it took the first half, that may
// be lost. The next daemon then skips the rest without an answer, and repeatLost sends the whole
// line again.
func (h *half) end() {
	h.c.write(h.text)
	if h.c.load.book.granted(h.c.name, h.lock, h.c.await(h.r)) {
		h.c.give(h.lock)
	}
}
