package redlocktest

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// simConn is one connection to a Sim. Its fields are guarded by sim.mu.
//
// The two sides end apart, as with a real network: err says that the client
// cannot use it any more, gone that the server has forgotten it. In between the
// bytes that are under way arrive and are executed.
type simConn struct {
	sim    *Sim
	client simredis.Client // what the server knows of it; id 0: not accepted yet
	flight *flight         // the one group under way, or nil
	err    error
	fin    bool // the client's end is to be noticed once flight has been executed
	gone   bool

	// Of a listener; nil otherwise.
	told     chan struct{} // something has arrived
	ended    chan struct{} // closed when err is set
	heard    []string      // keys that have arrived
	lastTold time.Time     // when the last one arrives
}

// fail has the client's side be over. The caller holds sim.mu.
func (c *simConn) fail(err error) {
	if c.err == nil {
		c.err = err
		if c.ended != nil {
			close(c.ended)
		}
	}
}

// flight is one group on its way to the server and its replies on their way
// back. Its fields are guarded by sim.mu until done is closed.
type flight struct {
	conn    *simConn
	group   []redlock.Command
	replies []redlock.Reply
	login   bool   // the log-in, which takes the same way
	end     bool   // nothing but the client's end, which takes the same way, or what nobody sent
	key     string // what a listener is told

	next      int // how many of the group have been executed
	announced bool
	executed  bool
	stalled   bool          // waits for a hung node to go on
	late      time.Duration // cut off: what is left runs so much later
	reply     time.Duration // how long the replies take

	due      time.Time // when then is called, while it is in sim.pending
	then     func(*flight)
	done     chan struct{} // closed when finished; nil unless the client has to wait
	finished bool          // the client knows the outcome
	err      error
}

// Do sends a group and waits for its replies.
func (c *simConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	f := &flight{conn: c, group: group, replies: replies[:len(group)]}
	return c.roundTrip(ctx, f, replies)
}

// Close ends the client's side. What is under way still arrives.
func (c *simConn) Close() {
	s := c.sim
	s.lock()
	defer s.mu.Unlock()
	c.fail(net.ErrClosed)
	c.err, c.fin = net.ErrClosed, true
	f := c.flight
	if f != nil {
		f.finish(net.ErrClosed)
	}
	if f != nil && f.executed {
		s.disarm(f)
		s.countEnd(f)
		c.flight = nil
	}
	if c.flight == nil && !s.hung {
		s.forget(c)
	}
}

func (c *simConn) roundTrip(ctx context.Context, f *flight, replies []redlock.Reply) error {
	if err := c.send(ctx, f); err != nil {
		return err
	}
	if err := c.wait(ctx, f); err != nil {
		return err
	}
	if f.done != nil { // it was copied to its own memory when it had to wait
		copy(replies, f.replies)
	}
	return nil
}

// send puts a flight under way. Where nothing delays it, it is over on return.
func (c *simConn) send(ctx context.Context, f *flight) error {
	if err := over(ctx); err != nil {
		return err
	}
	s := c.sim
	request, reply := s.delays()
	s.lock()
	defer s.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if c.flight != nil {
		panic("redlocktest: two goroutines use one Conn of node " + s.name)
	}
	c.flight, f.reply = f, reply
	if request > 0 {
		s.arm(f, request, s.arrive)
	} else {
		s.arrive(f)
	}
	return nil
}

// over returns ctx's error, also at the very deadline, when its timer may not
// have fired yet.
func over(ctx context.Context) error {
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

// wait waits for the outcome of a flight. A flight that is given up on goes on.
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
	if f.finished { // at this very moment
		return f.err
	}
	f.finish(ctx.Err())
	c.fail(errGivenUp)
	return ctx.Err()
}

// finish tells the client the outcome, once. The caller holds mu.
func (f *flight) finish(err error) {
	if f.finished {
		return
	}
	f.finished, f.err = true, err
	if f.done != nil {
		close(f.done)
	}
}

// park makes a flight outlive the call that sent it: the lane uses the memory
// of its commands again as soon as it has given up. The caller holds mu, here
// and below.
func (f *flight) park() {
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

// cloneGroup copies commands into memory of their own, one piece of it.
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

// arrive: the request has reached the node.
func (s *Sim) arrive(f *flight) {
	if s.dropRequests > 0 && f.counts() {
		s.dropRequests--
		s.breakConn(f.conn)
		return
	}
	s.execute(f)
}

// counts tells a group of commands from the log-in and the end of a connection.
func (f *flight) counts() bool { return !f.login && !f.end }

// execute runs what is left of the group, until the node hangs or the
// connection is cut. Each of that can happen inside of the test's function,
// for which mu is given up.
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
			s.unattended(func() { hook(command) })
			continue
		}
		s.lag = f.reply
		f.replies[f.next] = s.executeCommand(f.conn, command)
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

// interrupted tells whether f cannot go on now, and sees to it that it goes on
// later where it will.
func (s *Sim) interrupted(f *flight) bool {
	switch {
	case f.conn.gone:
		return true
	case f.late > 0:
		late := f.late
		f.late = 0
		s.arm(f, late, s.execute)
		return true
	case s.hung:
		f.park()
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
	caches := c.client.Caching
	reply := s.state.Exec(&c.client, s.clock.now(), command)
	if caches {
		s.watchExpiry()
	}
	return reply
}

// answer sends the replies of a group that has been executed.
func (s *Sim) answer(f *flight) {
	f.executed = true
	if f.login {
		s.accept(f.conn)
	}
	if f.counts() {
		s.counts.Groups++
	}
	switch {
	case s.dropReplies > 0 && f.counts():
		s.dropReplies--
		s.breakConn(f.conn)
	case f.finished: // the client is gone or has given up
		s.deliver(f)
	case f.reply > 0:
		s.arm(f, f.reply, s.deliver)
	default:
		s.deliver(f)
	}
}

func (s *Sim) accept(c *simConn) {
	if c.told == nil {
		s.counts.Dials++
	} else {
		s.counts.Listens++
	}
	s.state.LastID++
	c.client.Id = s.state.LastID
}

// deliver: the replies have reached the client.
func (s *Sim) deliver(f *flight) {
	c := f.conn
	if f.finished {
		s.countEnd(f)
	}
	c.flight = nil
	f.finish(nil)
	if c.fin {
		s.forget(c)
	}
}
