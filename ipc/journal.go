package ipc

// Journal is what a Session may be besides: it notes what must outlast the
// process, so that after a restart the same connection goes on where it was. A
// method of it may block for ever, as if the process had been killed in it.
type Journal interface {
	// Asked notes a request whose verb Waits, on the reading goroutine right
	// before Begin. The line, without its LF, is valid during the call. If rest
	// is not nil it takes the place of the last Rest, and belongs into the same
	// record: the line may have been a part of that.
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

// Rest is what was read from a connection and is not begun: lines that wait for
// their turn, and the beginning of one that is not complete. The requests that
// were Asked are not in it. The zero Rest is nothing.
type Rest struct {
	Lines    []byte // read again, before what comes next, they mean the same; valid during the call
	Skipping bool   // what comes next is the rest of a line that was too long, and answered
}

// extent is how much there is of a Rest. While nothing is taken from it, a Rest
// with the same extent is the same.
type extent struct {
	waiting, unread int // bytes of lines that wait for their turn, and behind them
	skipping        bool
}

// notes is what the journal of a connection was told. It belongs to the reading
// goroutine, but for journal, which does not change.
type notes struct {
	journal Journal // nil: the session is none
	said    extent
	stale   bool // something was taken of what was said
}

// tookUnread is called for each line that is taken from the input.
func (n *notes) tookUnread() {
	if n.said.unread > 0 || n.said.skipping {
		n.stale = true
	}
}

// tookWaiting is called for each line whose turn has come.
func (n *notes) tookWaiting() {
	if n.said.waiting > 0 {
		n.stale = true
	}
}

// noteRest tells the journal what is not begun, if that is news.
func (c *Conn) noteRest() {
	if c.notes.journal == nil {
		return
	}
	c.in.skip()
	now := extent{c.waiting.size(), c.in.unread(), c.in.skipping}
	if now == c.notes.said && !c.notes.stale {
		return
	}
	c.notes.said, c.notes.stale = now, false
	whole := newBuffer()
	defer whole.free()
	whole.b = append(whole.b, c.waiting.rest()...)
	whole.b = c.in.appendUnread(whole.b)
	c.guard(func() { c.notes.journal.Rest(Rest{whole.b, now.skipping}) })
}

// restAfter is what is left of the Rest once the line that is about to begin is
// taken; nil where that was no part of it. The lines behind it, which are about to
// begin too, are not said again: it would be often, and long.
func (c *Conn) restAfter() *Rest {
	if c.notes.journal == nil || !c.notes.stale {
		return nil
	}
	c.in.skip()
	c.notes.said, c.notes.stale = extent{waiting: c.waiting.size(), skipping: c.in.skipping}, false
	return &Rest{c.waiting.rest(), c.in.skipping}
}

// noteAsked notes a request that is about to begin.
func (c *Conn) noteAsked(call *Call, line []byte) {
	journal := c.notes.journal
	if journal == nil {
		return
	}
	rest := c.restAfter()
	switch {
	case call.Verb.Waits() && !call.Replayed:
		call.asked = true
		journal.Asked(call, line, rest)
	case rest != nil:
		journal.Rest(*rest) // an answer may be lost, but is not given twice
	}
}

// noteRefused is for a line that does not come to begin.
func (c *Conn) noteRefused(call *Call) {
	if rest := c.restAfter(); rest != nil {
		c.guard(func() { c.notes.journal.Rest(*rest) })
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
	c.notes.journal.Answered(call)
}
