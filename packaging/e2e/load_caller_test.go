//go:build linux

package e2e

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// caller is one client of a load. Its requests have tags. If an answer does not come after a
// restart, the client resends the request: the answer was lost between the moment of sending and
// its record.
type caller struct {
	load *load
	name string
	conn net.Conn
	gone chan struct{} // closed at the end of the connection

	mu      sync.Mutex // guards the fields below
	closing bool
	tags    int
	pending map[string]*request // by tag
	heard   int                 // number of answers
	back    []time.Time         // when each BACK came
	samples []sample            // of answers from memory

	count, repeats int // numbers of requests
}

// request is a request until it is answered.
type request struct {
	text    string
	first   time.Time   // when it was sent
	at      time.Time   // when it was last sent
	again   bool        // it was resent
	done    bool        // it was answered
	open    int         // tags without an answer
	answers chan string // room for the answers to all resends
}

type sample struct {
	at   time.Time
	took time.Duration
}

// forgotten is how long after a restart an answer must be missing before it counts as lost.
const forgotten = 3 * time.Second

func (l *load) connect() *caller {
	l.t.Helper()
	conn, err := net.Dial("unix", l.socket)
	if err != nil {
		l.t.Fatal(err)
	}
	c := &caller{load: l, name: fmt.Sprint("client ", len(l.callers)), conn: conn, gone: make(chan struct{}), pending: map[string]*request{}}
	l.callers = append(l.callers, c)
	go c.read() // ends with the connection; close waits for it
	return c
}

func (c *caller) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.conn.Close()
	<-c.gone
}

// read reads the connection.
func (c *caller) read() {
	defer close(c.gone)
	lines := bufio.NewScanner(c.conn)
	for lines.Scan() {
		c.hear(lines.Text())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		c.load.fault("%s: its connection ended: %v", c.name, lines.Err())
	}
}

func (c *caller) hear(line string) {
	word, rest, _ := strings.Cut(line, " ")
	tag, tagged := strings.CutPrefix(word, "@")
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case word == "BACK":
		c.back = append(c.back, time.Now())
	case !tagged:
		c.load.fault("%s got %s", c.name, line)
		if word == "LOST" {
			c.load.book.lost(c.name, field(line, "lock"))
		}
	case c.pending[tag] == nil:
		c.load.fault("%s: an answer to nothing, or a second one: %s", c.name, line)
	default:
		r := c.pending[tag]
		delete(c.pending, tag)
		c.heard++
		r.open--
		r.done = true
		r.answers <- rest
	}
}

// ask returns the answer, or an empty text if the connection has ended, which was already reported
// as a fault.
func (c *caller) ask(text string) string { return c.askAll(text)[0] }

// quick sends a request that the daemon answers from memory, and records how long that takes.
func (c *caller) quick(text string) string {
	asked := time.Now()
	r := c.send("", text)[0]
	answer := c.await(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.again { // otherwise its answer was lost
		c.samples = append(c.samples, sample{asked, time.Since(asked)})
	}
	return answer
}

// askAll sends all requests in one write.
func (c *caller) askAll(texts ...string) (answers []string) {
	requests := c.send("", texts...)
	for _, r := range requests {
		answers = append(answers, c.await(r))
	}
	return answers
}

// send writes requests, and after them rest, which is not a whole line.
func (c *caller) send(rest string, texts ...string) (requests []*request) {
	var lines strings.Builder
	c.mu.Lock()
	for _, text := range texts {
		r := &request{text: text, answers: make(chan string, 100)}
		requests = append(requests, r)
		lines.WriteString(c.tag(r))
	}
	c.mu.Unlock()
	c.write(lines.String() + rest)
	return requests
}

// tag returns the line of a request with a new tag. The caller holds mu.
func (c *caller) tag(r *request) string {
	c.tags++
	c.count++
	tag := fmt.Sprint("t", c.tags)
	c.pending[tag] = r
	r.open++
	r.at = time.Now()
	if r.first.IsZero() {
		r.first = r.at
	}
	return fmt.Sprintf("@%s %s\n", tag, r.text)
}

func (c *caller) write(text string) {
	if _, err := c.conn.Write([]byte(text)); err != nil {
		c.load.fault("%s cannot write: %v", c.name, err)
	}
}

// await returns the first answer to the request.
func (c *caller) await(r *request) string {
	look := time.NewTicker(forgotten / 10)
	defer look.Stop()
	giveUp := time.After(2 * patience)
	for {
		select {
		case answer := <-r.answers:
			if r.again && strings.HasPrefix(r.text, "LOCK ") {
				c.awaitRest(r)
			}
			return answer
		case <-c.gone:
			return ""
		case <-c.load.hung:
			return ""
		case <-look.C:
			c.repeatLost()
		case <-giveUp:
			c.load.fault("%s: no answer within %v: %s", c.name, 2*patience, r.text)
			c.load.hang()
			return ""
		}
	}
}

// lost returns the requests whose first answer never came.
func (c *caller) lost() (all []*request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.pending {
		all = append(all, r)
	}
	return all
}

// repeatLost resends requests that were sent before a restart and have no answer.
func (c *caller) repeatLost() {
	var lines strings.Builder
	c.mu.Lock()
	for _, r := range slices.Collect(maps.Values(c.pending)) {
		if !r.done && c.isLost(r) {
			lines.WriteString(c.tag(r))
			r.again = true
			c.repeats++
		}
	}
	c.mu.Unlock()
	if lines.Len() > 0 {
		c.write(lines.String())
	}
}

// isLost reports whether a request counts as lost. The caller holds mu.
func (c *caller) isLost(r *request) bool {
	next := slices.IndexFunc(c.back, func(back time.Time) bool { return back.After(r.at) })
	return next >= 0 && time.Since(c.back[next]) > forgotten
}

// awaitRest waits a moment for the other answers to a resent LOCK. If the first answer was only
// slow, both must have come before the lock is used.
func (c *caller) awaitRest(r *request) {
	giveUp := time.After(forgotten)
	for {
		c.mu.Lock()
		open := r.open
		c.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-r.answers:
		case <-c.gone:
			return
		case <-giveUp:
			return
		}
	}
}

func (c *caller) answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}

func (c *caller) backs() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.back)
}

// pause returns the longest wait for an answer from memory that overlapped a round.
func (c *caller) pause(r round) (longest time.Duration, asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.samples {
		if s.in(r) {
			longest, asked = max(longest, s.took), true
		}
	}
	return longest, asked
}

func (s sample) in(r round) bool { return s.at.Before(r.to) && s.at.Add(s.took).After(r.from) }
