package server

import "slices"

// Journal is an optional part of a Session. It records what must outlast the process, so that after
// a restart the same connection continues. A method of Journal may block for ever, as if the
// process had been killed in it.
type Journal interface {
	// RecordRequest records a request whose verb Waits. It is called on the reading goroutine, right
	// before Begin. The line, without its LF, is valid during the call. If rest is not nil, it
	// belongs into the same record: until now, the line was among the bytes to be read again.
	RecordRequest(call *Call, line []byte, rest *UnreadChange)

	// RecordAnswer records that such a request is answered, right before the answer is appended to
	// the output. It is called once for each RecordRequest, on the goroutine that answers, unless
	// the session called RecordingAnswer.
	RecordAnswer(call *Call)

	// RecordUnread records lines that were read and have not begun. It is called on the reading
	// goroutine, before that waits or answers part of them. Only changes are recorded: a connection
	// whose lines come whole, and begin at once, causes none.
	RecordUnread(rest UnreadChange)
}

// UnreadChange changes the bytes to be read again after a restart, before what the client sends
// then: the lines in the queue, and a partial line. They do not include recorded requests. The
// first change applies to no bytes. Apply keeps Keep bytes from byte Drop on, and adds Add.
type UnreadChange struct {
	Drop, Keep int
	Add        []byte // valid during the call
	Skipping   bool   // the next bytes are the rest of a line to be skipped
}

// Apply returns the bytes after the change. It reuses before.
func (r UnreadChange) Apply(before []byte) []byte {
	kept := slices.Delete(before, 0, r.Drop)[:r.Keep]
	return append(kept, r.Add...)
}

// recordedUnread is the state that the journal of a connection has.
type recordedUnread struct {
	queuedBytes int  // bytes of lines in the queue; they come first
	begunBytes  int  // how many of these have begun
	unread      int  // bytes after the queue
	stale       bool // some of the recorded unread bytes were taken
	skipping    bool
}

// recordUnread records the lines that have not begun, if they have changed.
func (c *Conn) recordUnread() {
	if c.journal == nil {
		return
	}
	c.in.skip()
	n := &c.recordedUnread
	kept, waiting, unread := n.queuedBytes-n.begunBytes, c.queue.size(), c.in.unread()
	if n.begunBytes == 0 && !n.stale && waiting == kept && unread == n.unread && c.in.skipping == n.skipping {
		return
	}
	rest := UnreadChange{Drop: n.begunBytes, Keep: kept, Skipping: c.in.skipping}
	add := newBuffer()
	defer add.free()
	add.b = append(add.b, c.queue.rest()[kept:]...)
	if c.in.from < c.in.to {
		add.b = append(add.b, c.in.buf[c.in.from:c.in.to]...)
	}
	add.b = append(add.b, c.in.earlier...)
	if rest.Add = add.b; waiting == kept && !n.stale { // the recorded bytes have only become more
		rest.Keep += n.unread
		rest.Add = add.b[n.unread:]
	}
	*n = recordedUnread{queuedBytes: waiting, unread: unread, skipping: c.in.skipping}
	c.guard(func() { c.journal.RecordUnread(rest) })
}

// takePartialLine takes a partial line from the socket. It first records that the line is to be
// skipped, and then its bytes. If the process is killed in between, the bytes are lost, and the
// rest of the line must not become a request of its own.
func (c *Conn) takePartialLine() {
	if c.journal != nil {
		n := &c.recordedUnread
		kept := n.queuedBytes - n.begunBytes
		rest := UnreadChange{Drop: n.begunBytes, Keep: kept, Add: c.queue.rest()[kept:], Skipping: true}
		*n = recordedUnread{queuedBytes: c.queue.size(), skipping: true}
		c.guard(func() { c.journal.RecordUnread(rest) })
	}
	c.in.takePartial()
	c.recordUnread()
}

// unreadAfterNextLine returns the change that the next line causes when it begins, or nil if the
// line was not recorded as unread. It does not add the lines after that line: they are about to
// begin too, and records of them would be frequent and long.
func (c *Conn) unreadAfterNextLine() *UnreadChange {
	n := &c.recordedUnread
	if c.journal == nil || n.begunBytes == 0 && !n.stale {
		return nil
	}
	c.in.skip()
	kept := n.queuedBytes - n.begunBytes
	rest := UnreadChange{Drop: n.begunBytes, Keep: kept, Skipping: c.in.skipping}
	n.queuedBytes, n.begunBytes, n.skipping = kept, 0, c.in.skipping
	if !n.stale {
		rest.Keep += n.unread
		return &rest
	}
	rest.Add = c.queue.rest()[kept:]
	n.queuedBytes, n.unread, n.stale = c.queue.size(), 0, false
	return &rest
}

// recordRequest records a request that is about to begin.
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
		c.journal.RecordUnread(*rest) // if the process is killed now, the answer is lost, but never sent twice
	}
}

// recordAnswer is called right before the answer is appended to the output.
func (c *Conn) recordAnswer(call *Call) {
	if !call.recorded || call.answerRecorded {
		return
	}
	var panicked bool
	defer c.recovered(&panicked) // the client gets the answer nevertheless
	c.journal.RecordAnswer(call)
}
