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

// caller is one client of a load. Its requests carry tags. Where the daemon was
// restarted and an answer does not come, the request is sent again: the answer was
// lost in the instant between being given and being noted.
type caller struct {
	load *load
	name string
	conn net.Conn
	gone chan struct{} // closed at the end of the connection

	mu      sync.Mutex // guards what follows
	closing bool
	tags    int
	pending map[string]*request // by tag
	heard   int                 // answers
	back    []time.Time         // of each BACK
	samples []sample            // of answers from memory

	count, repeats int // of requests
}

// request is what is asked, until it is answered.
type request struct {
	text    string
	first   time.Time   // when it was sent
	at      time.Time   // when it was sent last
	again   bool        // it was sent more than once
	done    bool        // it was answered
	open    int         // its tags without an answer
	answers chan string // as wide as the repeats
}

type sample struct {
	at   time.Time
	took time.Duration
}

// forgotten is how long after a restart an answer has to be missing before it is
// taken for lost.
const forgotten = 3 * time.Second

func (l *load) connect() *caller {
	l.t.Helper()
	conn, err := net.Dial("unix", l.socket)
	if err != nil {
		l.t.Fatal(err)
	}
	c := &caller{load: l, name: fmt.Sprint("client ", len(l.callers)), conn: conn, gone: make(chan struct{}), pending: map[string]*request{}}
	l.callers = append(l.callers, c)
	go c.read() // ends with the connection, for which close waits
	return c
}

func (c *caller) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.conn.Close()
	<-c.gone
}

// read takes every line that comes.
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
		c.load.fault("%s heard %s", c.name, line)
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

// ask returns the answer; "" where the connection has ended, which is a fault
// already.
func (c *caller) ask(text string) string { return c.askAll(text)[0] }

// quick asks for what the daemon answers from memory: how long that takes counts.
func (c *caller) quick(text string) string {
	asked := time.Now()
	r := c.send("", text)[0]
	answer := c.await(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.again { // else it is among the lost ones
		c.samples = append(c.samples, sample{asked, time.Since(asked)})
	}
	return answer
}

// askAll sends all in one write.
func (c *caller) askAll(texts ...string) (answers []string) {
	requests := c.send("", texts...)
	for _, r := range requests {
		answers = append(answers, c.await(r))
	}
	return answers
}

// send writes requests, and after them what is no whole line.
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

// tag makes a line of a request; it needs mu.
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

// lost are the requests whose first answer never came.
func (c *caller) lost() (all []*request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.pending {
		all = append(all, r)
	}
	return all
}

// repeatLost sends requests again that were begun before a restart.
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

// isLost needs mu.
func (c *caller) isLost(r *request) bool {
	next := slices.IndexFunc(c.back, func(back time.Time) bool { return back.After(r.at) })
	return next >= 0 && time.Since(c.back[next]) > forgotten
}

// awaitRest gives the other answers to a repeated LOCK a moment: where the first was
// only slow, both are to be over before anything else is done with the lock.
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

// pause is the longest wait for an answer from memory that was under way in a
// round.
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
