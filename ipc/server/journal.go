package server

import "slices"

// Journal is what a Session may be besides: it notes what must outlast the
// process, so that after a restart the same connection goes on where it was. A
// method of it may block for ever, as if the process had been killed in it.
type Journal interface {
	// Asked notes a request whose verb Waits, on the reading goroutine right
	// before Begin. The line, without its LF, is valid during the call. If rest
	// is not nil it belongs into the same record: the line was a part of what was
	// to be read again until now.
	Asked(call *Call, line []byte, rest *Rest)

	// Answered notes that such a request is answered, right before the answer is
	// put into the output: once for each Asked, whoever answers it, unless the
	// session called Noting. It is called on the goroutine that answers.
	Answered(call *Call)

	// Rest notes what was read and is not begun, on the reading goroutine before
	// that waits, or answers part of it. Only changes are told: a connection
	// whose lines come whole, and begin at once, causes none.
	Rest(rest Rest)
}

// Rest changes what is to be read again after a restart, before what the client
// sends then: lines that wait for their turn, and the beginning of one that is
// not complete. The requests that were Asked are not in it. In the beginning it is
// nothing. Of what it was, Keep bytes from byte Drop on stay, and Add follows.
type Rest struct {
	Drop, Keep int
	Add        []byte // valid during the call
	Skipping   bool   // what comes next is the rest of a line that is not to be begun
}

// Apply makes the change to what was to be read before. It reuses before.
func (r Rest) Apply(before []byte) []byte {
	kept := slices.Delete(before, 0, r.Drop)[:r.Keep]
	return append(kept, r.Add...)
}

// notes is the rest that the journal of a connection was told of last.
type notes struct {
	waiting  int  // bytes of lines that wait for their turn, the first ones of all
	taken    int  // of these, bytes that wait no more
	unread   int  // bytes behind them
	stale    bool // of these, something was taken
	skipping bool
}

// tookUnread is called for each line that is taken from the input.
func (n *notes) tookUnread() {
	if n.unread > 0 || n.skipping {
		n.stale = true
	}
}

// tookWaiting is called for each line whose turn has come.
func (n *notes) tookWaiting(line []byte) {
	if n.taken < n.waiting {
		n.taken += len(line) + 1
	}
}

// droppedWaiting is called before no line waits for its turn any more.
func (n *notes) droppedWaiting() { n.taken = n.waiting }

// noteRest tells the journal what is not begun, if that is news.
func (c *Conn) noteRest() {
	if c.journal == nil {
		return
	}
	c.in.skip()
	n := &c.notes
	kept, waiting, unread := n.waiting-n.taken, c.waiting.size(), c.in.unread()
	if n.taken == 0 && !n.stale && waiting == kept && unread == n.unread && c.in.skipping == n.skipping {
		return
	}
	rest := Rest{Drop: n.taken, Keep: kept, Skipping: c.in.skipping}
	add := newBuffer()
	defer add.free()
	add.b = append(add.b, c.waiting.rest()[kept:]...)
	add.b = c.in.appendUnread(add.b)
	if rest.Add = add.b; waiting == kept && !n.stale { // it has only become longer
		rest.Keep += n.unread
		rest.Add = add.b[n.unread:]
	}
	*n = notes{waiting: waiting, unread: unread, skipping: c.in.skipping}
	c.guard(func() { c.journal.Rest(rest) })
}

// takeLeft takes the beginning of a line that does not go on from the socket. Until the
// journal has it, it is one to be skipped: who is killed in between has lost what it was,
// and its rest must not become a request of its own.
func (c *Conn) takeLeft() {
	if c.journal != nil {
		n := &c.notes
		kept := n.waiting - n.taken
		rest := Rest{Drop: n.taken, Keep: kept, Add: c.waiting.rest()[kept:], Skipping: true}
		*n = notes{waiting: c.waiting.size(), skipping: true}
		c.guard(func() { c.journal.Rest(rest) })
	}
	c.in.takeLeft()
	c.noteRest()
}

// restAfter is the change that a line causes that is about to begin; nil where it
// was not noted. The lines that were read behind it, and are about to begin too, are
// not said: it would be often, and long.
func (c *Conn) restAfter() *Rest {
	n := &c.notes
	if c.journal == nil || n.taken == 0 && !n.stale {
		return nil
	}
	c.in.skip()
	kept := n.waiting - n.taken
	rest := Rest{Drop: n.taken, Keep: kept, Skipping: c.in.skipping}
	n.waiting, n.taken, n.skipping = kept, 0, c.in.skipping
	if !n.stale {
		rest.Keep += n.unread
		return &rest
	}
	rest.Add = c.waiting.rest()[kept:]
	n.waiting, n.unread, n.stale = c.waiting.size(), 0, false
	return &rest
}

// noteAsked notes a request that is about to begin.
func (c *Conn) noteAsked(call *Call, line []byte) {
	if c.journal == nil {
		return
	}
	rest := c.restAfter()
	switch {
	case call.Verb.Waits() && !call.Replayed:
		call.asked = true
		c.journal.Asked(call, line, rest)
	case rest != nil:
		c.journal.Rest(*rest) // an answer may be lost, but is not given twice
	}
}

// noteRefused is for a line that does not come to begin.
func (c *Conn) noteRefused(call *Call) {
	if rest := c.restAfter(); rest != nil {
		c.guard(func() { c.journal.Rest(*rest) })
	}
	c.noteAnswered(call)
}

// noteAnswered is called right before the answer is put into the output.
func (c *Conn) noteAnswered(call *Call) {
	if call.asked && !call.noting {
		c.answered(call)
	}
}

func (c *Conn) answered(call *Call) {
	var panicked bool
	defer c.recovered(&panicked) // the client is answered nevertheless
	c.journal.Answered(call)
}
