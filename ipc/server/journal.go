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
	RecordRequest(call *Call, line []byte, rest *UnreadChange)

	// Answered notes that such a request is answered, right before the answer is
	// put into the output: once for each Asked, whoever answers it, unless the
	// session called Noting. It is called on the goroutine that answers.
	RecordAnswer(call *Call)

	// Rest notes what was read and is not begun, on the reading goroutine before
	// that waits, or answers part of it. Only changes are told: a connection
	// whose lines come whole, and begin at once, causes none.
	RecordUnread(rest UnreadChange)
}

// Rest changes what is to be read again after a restart, before what the client
// sends then: lines that wait for their turn, and the beginning of one that is
// not complete. The requests that were Asked are not in it. In the beginning it is
// nothing. Of what it was, Keep bytes from byte Drop on stay, and Add follows.
type UnreadChange struct {
	Drop, Keep int
	Add        []byte // valid during the call
	Skipping   bool   // what comes next is the rest of a line that is not to be begun
}

// Apply makes the change to what was to be read before. It reuses before.
func (r UnreadChange) Apply(before []byte) []byte {
	kept := slices.Delete(before, 0, r.Drop)[:r.Keep]
	return append(kept, r.Add...)
}

// notes is the rest that the journal of a connection was told of last.
type recordedUnread struct {
	queued   int  // bytes of lines that wait for their turn, the first ones of all
	begun    int  // of these, bytes that wait no more
	unread   int  // bytes behind them
	stale    bool // of these, something was taken
	skipping bool
}

// tookUnread is called for each line that is taken from the input.
func (n *recordedUnread) tookLine() {
	if n.unread > 0 || n.skipping {
		n.stale = true
	}
}

// tookWaiting is called for each line whose turn has come.
func (n *recordedUnread) tookQueued(line []byte) {
	if n.begun < n.queued {
		n.begun += len(line) + 1
	}
}

// droppedWaiting is called before no line waits for its turn any more.
func (n *recordedUnread) droppedQueue() { n.begun = n.queued }

// noteRest tells the journal what is not begun, if that is news.
func (c *Conn) recordUnread() {
	if c.journal == nil {
		return
	}
	c.in.skip()
	n := &c.recordedUnread
	kept, waiting, unread := n.queued-n.begun, c.queue.size(), c.in.unread()
	if n.begun == 0 && !n.stale && waiting == kept && unread == n.unread && c.in.skipping == n.skipping {
		return
	}
	rest := UnreadChange{Drop: n.begun, Keep: kept, Skipping: c.in.skipping}
	add := newBuffer()
	defer add.free()
	add.b = append(add.b, c.queue.rest()[kept:]...)
	add.b = c.in.appendUnread(add.b)
	if rest.Add = add.b; waiting == kept && !n.stale { // it has only become longer
		rest.Keep += n.unread
		rest.Add = add.b[n.unread:]
	}
	*n = recordedUnread{queued: waiting, unread: unread, skipping: c.in.skipping}
	c.guard(func() { c.journal.RecordUnread(rest) })
}

// takeLeft takes the beginning of a line that does not go on from the socket. Until the
// journal has it, it is one to be skipped: who is killed in between has lost what it was,
// and its rest must not become a request of its own.
func (c *Conn) takePartialLine() {
	if c.journal != nil {
		n := &c.recordedUnread
		kept := n.queued - n.begun
		rest := UnreadChange{Drop: n.begun, Keep: kept, Add: c.queue.rest()[kept:], Skipping: true}
		*n = recordedUnread{queued: c.queue.size(), skipping: true}
		c.guard(func() { c.journal.RecordUnread(rest) })
	}
	c.in.takePartial()
	c.recordUnread()
}

// restAfter is the change that a line causes that is about to begin; nil where it
// was not noted. The lines that were read behind it, and are about to begin too, are
// not said: it would be often, and long.
func (c *Conn) unreadAfterNextLine() *UnreadChange {
	n := &c.recordedUnread
	if c.journal == nil || n.begun == 0 && !n.stale {
		return nil
	}
	c.in.skip()
	kept := n.queued - n.begun
	rest := UnreadChange{Drop: n.begun, Keep: kept, Skipping: c.in.skipping}
	n.queued, n.begun, n.skipping = kept, 0, c.in.skipping
	if !n.stale {
		rest.Keep += n.unread
		return &rest
	}
	rest.Add = c.queue.rest()[kept:]
	n.queued, n.unread, n.stale = c.queue.size(), 0, false
	return &rest
}

// noteAsked notes a request that is about to begin.
func (c *Conn) recordRequest(call *Call, line []byte) {
	if c.journal == nil {
		return
	}
	rest := c.unreadAfterNextLine()
	switch {
	case call.Verb.Waits() && !call.Replayed:
		call.recorded = true
		c.journal.RecordRequest(call, line, rest)
	case rest != nil:
		c.journal.RecordUnread(*rest) // an answer may be lost, but is not given twice
	}
}

// noteRefused is for a line that does not come to begin.
func (c *Conn) recordRejected(call *Call) {
	if rest := c.unreadAfterNextLine(); rest != nil {
		c.guard(func() { c.journal.RecordUnread(*rest) })
	}
	c.recordAnswer(call)
}

// noteAnswered is called right before the answer is put into the output.
func (c *Conn) recordAnswer(call *Call) {
	if call.recorded && !call.answerRecorded {
		c.callRecordAnswer(call)
	}
}

func (c *Conn) callRecordAnswer(call *Call) {
	var panicked bool
	defer c.recovered(&panicked) // the client is answered nevertheless
	c.journal.RecordAnswer(call)
}
