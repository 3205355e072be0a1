package session

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"
)

var searchNames = []string{"a", "b", "c"}

type searchClient struct {
	s      *daemonSearch
	number int
	host   *searchHost
	random *rand.Rand
	conn   net.Conn
	lines  chan string
	held   *searchHold // also of a connection that has ended
	isCalm bool        // no more faults are made

	repeat   *searchRequest // to be repeated on the next connection; nil: none
	requests int            // with an id=
}

func (c *searchClient) run() {
	for {
		select {
		case <-c.s.calm:
			c.isCalm = true
		default:
		}
		if c.conn == nil && !c.connect() {
			time.Sleep(time.Duration(1 + c.random.Int64N(int64(50*time.Millisecond))))
			continue
		}
		if c.once() && c.isCalm && c.held == nil {
			if c.conn != nil {
				c.disconnect()
			}
			c.s.clients.Done()
			return
		}
	}
}

func (c *searchClient) connect() bool {
	conn := c.host.dial()
	if conn == nil {
		return false
	}
	lines := make(chan string, 100)
	go func() { // ends with the connection
		defer close(lines)
		for in := bufio.NewScanner(conn); in.Scan(); {
			switch word, _, _ := strings.Cut(in.Text(), " "); word {
			case "LOST":
				c.s.referee.lost(c)
			case "OK", "ERR":
				lines <- in.Text()
			}
		}
		c.s.referee.cut(c)
	}()
	c.conn, c.lines = conn, lines
	return true
}

// disconnect ends the connection. What it holds ends before.
func (c *searchClient) disconnect() {
	c.s.referee.end(c.held)
	c.conn.Close()
	for range c.lines {
	}
	c.conn, c.held = nil, nil
}

// resume takes over, on a new connection, the lease of one that ended. It reports whether it holds it.
func (c *searchClient) resume() bool {
	h := c.held
	c.held = nil // the connection may end again
	answer := c.ask(0, fmt.Sprintf("RESUME %s lease=%s", h.name, h.lease))
	deadline, ok := answerField(answer, "deadline")
	if !strings.HasPrefix(answer, "OK ") || !ok {
		c.s.referee.end(h)
		return false
	}
	c.held = h
	c.s.referee.resumed(h, deadline)
	return true
}

// ask returns "" if the connection has ended.
func (c *searchClient) ask(wait time.Duration, request string) string {
	asked := time.Now()
	go fmt.Fprintf(c.conn, "%s\n", request) // a pipe takes it when the daemon reads; the daemon or disconnect ends it
	select {
	case line, open := <-c.lines:
		if !open {
			c.conn.Close()
			c.conn = nil
			return ""
		}
		if took := time.Since(asked); took > wait+answerWithin {
			c.s.t.Errorf("client %d: %s was answered after %v: %s", c.number, request, took, line)
		}
		return line
	case <-time.After(time.Minute + wait):
		c.s.t.Errorf("client %d: %s was not answered within a minute", c.number, request)
		c.disconnect()
		return ""
	}
}

// once takes a lock, holds it and releases it. It reports whether it was granted.
func (c *searchClient) once() bool {
	switch {
	case c.held == nil:
		if !c.lock() {
			return false
		}
	case c.random.IntN(4) == 0: // it does not resume
		c.s.referee.end(c.held)
		c.held = nil
		return false
	case !c.resume():
		return false
	}
	c.hold()
	if c.conn == nil || c.held == nil {
		return true
	}
	if c.random.IntN(10) == 0 {
		c.disconnect()
		return true
	}
	h := c.held
	c.held = nil
	c.s.referee.end(h)
	answer := c.ask(searchTimeout, "UNLOCK "+h.name+[]string{"", " wait=0"}[c.random.IntN(2)])
	if answer != "" && !strings.HasPrefix(answer, "OK ") && !strings.HasPrefix(answer, "ERR LOST ") && !c.s.referee.wasLost(h) {
		c.s.t.Errorf("client %d: UNLOCK %s: %s", c.number, h.name, answer)
	}
	return true
}

// lock requests a lock, and reports whether it was granted. If the connection ends before the answer,
// it repeats the request, with the same id=.
func (c *searchClient) lock() bool {
	r := c.repeat
	if r == nil {
		r = &searchRequest{name: searchNames[c.random.IntN(len(searchNames))], wait: time.Duration(c.random.Int64N(int64(3 * time.Second))).Truncate(time.Millisecond)}
		if c.isCalm {
			r.wait = calmWithin
		}
		switch n := c.random.IntN(12); {
		case n == 0:
			r.shared, r.options = true, " mode=shared"
		case n == 1:
			r.options = " min=20"
		case n < 5:
			c.requests++
			r.options = fmt.Sprintf(" id=%d-%d", c.number, c.requests)
		}
		r.asked = c.s.referee.ask()
	}
	c.repeat = nil
	answer := c.ask(r.wait, fmt.Sprintf("LOCK %s wait=%d ttl=%d%s", r.name, r.wait.Milliseconds(), searchTTL.Milliseconds(), r.options))
	switch {
	case answer == "" && strings.HasPrefix(r.options, " id="):
		c.repeat = r
	case strings.HasPrefix(answer, "OK "):
		c.held = c.s.referee.grant(c, r, answer)
		return true
	case answer != "":
		time.Sleep(time.Duration(c.random.Int64N(int64(20 * time.Millisecond))))
	}
	return false
}

// searchRequest is a LOCK.
type searchRequest struct {
	name    string
	shared  bool
	wait    time.Duration
	options string
	asked   int // see referee.asked
}

// hold holds the lock for a while, mostly briefly.
func (c *searchClient) hold() {
	most := 2 * time.Millisecond
	switch n := c.random.IntN(100); {
	case c.isCalm:
	case n < 3:
		most = 2 * searchMaxTTL
	case n < 20:
		most = 300 * time.Millisecond
	}
	time.Sleep(time.Duration(c.random.Int64N(int64(most))))
	if c.random.IntN(4) == 0 {
		answer := c.ask(0, "CHECK "+c.held.name)
		if ms, ok := answerField(answer, "deadline"); ok {
			c.s.referee.extend(c.held, ms)
		}
	}
}

// answerWord returns a field of an answer.
func answerWord(answer, key string) string {
	for word := range strings.FieldsSeq(answer) {
		if value, found := strings.CutPrefix(word, key+"="); found {
			return value
		}
	}
	return ""
}

// answerField returns a number of an answer.
func answerField(answer, key string) (n int64, ok bool) {
	n, err := strconv.ParseInt(answerWord(answer, key), 10, 64)
	return n, err == nil
}
