package redlocktest

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// simConn is one connection to a Sim. sim.mu guards its fields.
//
// The two sides end separately, as in a real network. If err is set, the client can no longer use
// the connection. If gone is set, the server has forgotten it. Between the two, bytes in transit
// arrive and are executed.
type simConn struct {
	sim    *Sim
	client simredis.Client // the server's view of the connection; id 0: not accepted yet
	err    error
	fin    bool // the client has closed it; the server notices after it has executed all flights
	gone   bool

	flights []*flight // groups in transit, oldest first
	sent    []*flight // groups that were sent and not received yet, oldest first
	arrives time.Time // when the last request arrives; no later one overtakes it
	replies time.Time // when the last reply arrives; no later one overtakes it

	// The fields below belong to a listener. They are nil on other connections.
	notified    chan struct{} // something has arrived
	ended       chan struct{} // closed when err is set
	messages    []string      // messages that have arrived
	lastArrives time.Time     // when the last message arrives
}

// fail ends the client's side. The caller holds sim.mu.
func (c *simConn) fail(err error) {
	if c.err == nil {
		c.err = err
		if c.ended != nil {
			close(c.ended)
		}
	}
}

// flight is one group on its way to the server, and its replies on their way back. sim.mu guards
// the fields until done is closed.
type flight struct {
	conn    *simConn
	group   []redlock.Command
	replies []redlock.Reply
	alone   bool   // sent by Do: no other group may be in transit
	login   bool   // the log-in, which takes the same way
	end     bool   // the end of the client, which takes the same way, or a message that no client sent
	message string // for a listener

	next      int // how many commands of the group have been executed
	announced bool
	started   bool // the group has arrived, and earlier groups were executed
	waits     bool // the group has arrived, but an earlier one was not executed yet
	executed  bool
	wrote     bool          // one of its commands changed data
	stalled   bool          // waits until a hung node resumes
	late      time.Duration // after a cut: the delay of the rest of the group
	reply     time.Duration // the delay of the replies

	due      time.Time // when to call then, while the flight is in sim.pending
	then     func(*flight)
	done     chan struct{} // closed when finished; nil unless the client must wait
	finished bool          // the client knows the outcome
	err      error
}

// Do sends a group and waits for its replies.
func (c *simConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	f := &flight{conn: c, group: group, replies: replies[:len(group)], alone: true}
	return c.roundTrip(ctx, f, replies)
}

// Send sends a group after those in transit.
func (c *simConn) Send(ctx context.Context, group []redlock.Command) error {
	f := &flight{conn: c, group: group, replies: make([]redlock.Reply, len(group))}
	if err := c.send(ctx, f); err != nil {
		return err
	}
	c.sim.lock()
	defer c.sim.mu.Unlock()
	c.sent = append(c.sent, f)
	return nil
}

// Receive waits for the replies to the oldest group that was sent.
func (c *simConn) Receive(ctx context.Context, replies []redlock.Reply) error {
	f := c.oldestSent()
	if f == nil {
		panic("redlocktest: nothing was sent to node " + c.sim.name)
	}
	if err := c.wait(ctx, f); err != nil {
		return err
	}
	copy(replies, f.replies)
	return nil
}

func (c *simConn) oldestSent() *flight {
	c.sim.lock()
	defer c.sim.mu.Unlock()
	if len(c.sent) == 0 {
		return nil
	}
	f := c.sent[0]
	c.sent = c.sent[1:]
	return f
}

// Close ends the client's side. What is in transit still arrives.
func (c *simConn) Close() {
	s := c.sim
	s.lock()
	defer s.mu.Unlock()
	c.fail(net.ErrClosed)
	c.err, c.fin = net.ErrClosed, true
	s.endReplies(c, net.ErrClosed)
	if len(c.flights) == 0 && !s.hung {
		s.forget(c)
	}
}

// endReplies ends all flights of a connection for its client, and forgets those that were executed.
// The caller holds mu.
func (s *Sim) endReplies(c *simConn, err error) {
	for _, f := range slices.Clone(c.flights) {
		f.finish(err)
		if f.executed {
			s.disarm(f)
			s.countEnd(f)
			c.remove(f)
		}
	}
}

// remove forgets a flight that has ended.
func (c *simConn) remove(f *flight) {
	if i := slices.Index(c.flights, f); i >= 0 {
		c.flights = slices.Delete(c.flights, i, i+1)
	}
}

func (c *simConn) roundTrip(ctx context.Context, f *flight, replies []redlock.Reply) error {
	if err := c.send(ctx, f); err != nil {
		return err
	}
	if err := c.wait(ctx, f); err != nil {
		return err
	}
	if f.done != nil { // detach gave the flight its own memory
		copy(replies, f.replies)
	}
	return nil
}

// send starts a flight. Without a delay the flight has ended on return.
func (c *simConn) send(ctx context.Context, f *flight) error {
	if err := contextError(ctx); err != nil {
		return err
	}
	s := c.sim
	request, reply := s.delays()
	s.lock()
	defer s.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if f.alone && (len(c.flights) > 0 || len(c.sent) > 0) {
		panic("redlocktest: two goroutines use one Conn of node " + s.name)
	}
	c.flights = append(c.flights, f)
	f.reply = reply
	request = max(request, time.Until(c.arrives))
	c.arrives = time.Now().Add(request)
	if request > 0 {
		s.arm(f, request, s.arrive)
	} else {
		s.arrive(f)
	}
	return nil
}

// contextError returns ctx's error. It also returns one exactly at the deadline, even if the timer
// of ctx has not fired yet.
func contextError(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if ctx.Err() == nil && ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

func (s *Sim) delays() (request, reply time.Duration) {
	s.lock()
	delay := s.delay
	s.mu.Unlock()
	if delay == nil {
		return 0, 0
	}
	return delay()
}

// wait waits for the outcome of a flight. If the client stops waiting, the flight continues.
func (c *simConn) wait(ctx context.Context, f *flight) error {
	if f.done == nil {
		return f.err
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return c.giveUp(ctx, f)
	}
}

func (c *simConn) giveUp(ctx context.Context, f *flight) error {
	c.sim.lock()
	defer c.sim.mu.Unlock()
	if f.finished { // it finished meanwhile
		return f.err
	}
	for _, other := range c.flights {
		other.finish(ctx.Err())
	}
	c.fail(errTimedOut)
	return ctx.Err()
}

// finish reports the outcome to the client, once. The caller holds mu.
func (f *flight) finish(err error) {
	if f.finished {
		return
	}
	f.finished, f.err = true, err
	if f.done != nil {
		close(f.done)
	}
}

// detach lets a flight outlive the call that sent it, because a lane reuses the memory of its
// commands as soon as it stops waiting. The caller holds mu, here and below.
func (f *flight) detach() {
	if f.done != nil {
		return
	}
	f.done = make(chan struct{})
	if f.finished {
		close(f.done)
	}
	f.replies = slices.Clone(f.replies)
	f.group = cloneGroup(f.group)
}

// cloneGroup copies commands into one new block of memory.
func cloneGroup(group []redlock.Command) []redlock.Command {
	n := 0
	for _, command := range group {
		n += len(command)
	}
	words, clone := make([]string, 0, n), make([]redlock.Command, len(group))
	for i, command := range group {
		first := len(words)
		words = append(words, command...)
		clone[i] = words[first:len(words):len(words)]
	}
	return clone
}

// arrive handles a request that has reached the node.
func (s *Sim) arrive(f *flight) {
	if s.dropRequests > 0 && f.counts() {
		s.dropRequests--
		s.breakConn(f.conn)
		return
	}
	s.begin(f)
}

// begin executes a flight that has arrived. If an earlier one was not executed yet, it waits for
// that.
func (s *Sim) begin(f *flight) {
	if !f.started && f.conn.firstUnexecuted() != f {
		f.waits = true
		f.detach()
		return
	}
	f.started, f.waits = true, false
	s.execute(f)
}

// firstUnexecuted returns the oldest flight that the node has not executed, or nil.
func (c *simConn) firstUnexecuted() *flight {
	for _, f := range c.flights {
		if !f.executed {
			return f
		}
	}
	return nil
}

// counts reports whether a flight is a group of commands, not a log-in or the end of a connection.
func (f *flight) counts() bool { return !f.login && !f.end }

// execute runs the rest of the group until the node hangs or the connection is cut. Both may happen
// inside the test's function, for which mu is released.
func (s *Sim) execute(f *flight) {
	for !s.interrupted(f) {
		if f.next == len(f.group) {
			s.answer(f)
			return
		}
		command := f.group[f.next]
		if s.hook != nil && !f.announced {
			f.announced = true
			hook := s.hook
			s.callUnlocked(func() { hook(command) })
			continue
		}
		s.lag = f.reply
		before := s.state.Changes
		f.replies[f.next] = s.executeCommand(f.conn, command)
		f.wrote = f.wrote || s.state.Changes != before
		if s.trace != nil {
			s.trace(command, f.replies[f.next])
		}
		f.next++
		f.announced = false
		if s.between != nil && f.next < len(f.group) {
			f.late = s.between(f.group[f.next])
		}
	}
}

// interrupted reports whether f cannot continue now. If f can continue later, interrupted schedules
// that.
func (s *Sim) interrupted(f *flight) bool {
	switch {
	case f.conn.gone:
		return true
	case f.late > 0:
		late := f.late
		f.late = 0
		s.arm(f, late, s.begin)
		return true
	case s.hung:
		f.detach()
		f.stalled = true
		s.stalled = append(s.stalled, f)
		return true
	}
	return false
}

func (s *Sim) executeCommand(c *simConn, command redlock.Command) redlock.Reply {
	if s.refusal != nil {
		return redlock.Reply{Err: s.refusal}
	}
	s.counts.Commands[s.state.Label(command)]++
	reply := s.state.Exec(&c.client, s.clock.now(), command)
	return reply
}

// answer sends the replies of an executed group. If the next group of the connection has arrived,
// answer begins it.
func (s *Sim) answer(f *flight) {
	f.executed = true
	if f.login {
		s.accept(f.conn)
	}
	if f.counts() {
		s.counts.Groups++
	}
	c := f.conn
	reply := max(f.reply, time.Until(c.replies))
	if f.wrote {
		reply += s.writeDelay
	}
	switch {
	case s.dropReplies > 0 && f.counts():
		s.dropReplies--
		s.breakConn(c)
	case f.finished: // the client has closed the connection or no longer waits
		s.deliver(f)
	case reply > 0:
		c.replies = time.Now().Add(reply)
		s.arm(f, reply, s.deliver)
	default:
		s.deliver(f)
	}
	if next := c.firstUnexecuted(); next != nil && next.waits {
		s.begin(next)
	}
}

func (s *Sim) accept(c *simConn) {
	if c.notified == nil {
		s.counts.Dials++
	} else {
		s.counts.Listens++
	}
	s.state.LastID++
	c.client.Id = s.state.LastID
}

// deliver ends a flight whose replies have reached the client.
func (s *Sim) deliver(f *flight) {
	c := f.conn
	if f.finished {
		s.countEnd(f)
	}
	c.remove(f)
	f.finish(nil)
	if c.fin && len(c.flights) == 0 {
		s.forget(c)
	}
}
