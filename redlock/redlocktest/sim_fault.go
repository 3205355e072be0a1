package redlocktest

import (
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// SetDelay sets how long each group takes to the node and back. The node calls fn once for each
// group and for the log-in of a connection, perhaps from several goroutines. Nil means no delay.
// The order within a connection is kept; the order between connections is not.
func (s *Sim) SetDelay(fn func() (request, reply time.Duration)) {
	s.lock()
	defer s.mu.Unlock()
	s.delay = fn
}

// SetWriteDelay sets how long the replies to a group are delayed if one of its commands changed data, as
// a slow disk does if the node syncs its append-only file always.
func (s *Sim) SetWriteDelay(d time.Duration) {
	s.lock()
	defer s.mu.Unlock()
	s.writeDelay = d
}

// Down makes the node unreachable: its connections break, messages in transit are lost, and dials
// are refused. It keeps its data. Up ends it.
func (s *Sim) Down() {
	s.lock()
	defer s.mu.Unlock()
	s.unreachable = true
	s.breakAll()
}

// Up makes the node reachable again after Down.
func (s *Sim) Up() {
	s.lock()
	defer s.mu.Unlock()
	s.unreachable = false
}

// Hang makes the node unresponsive, as SIGSTOP does. It accepts connections and bytes, also from
// clients that close or stop waiting, and answers nothing.
func (s *Sim) Hang() {
	s.lock()
	defer s.mu.Unlock()
	if !s.hung {
		s.hung = true
		s.breakListeners()
	}
}

// Resume ends a hang. Before it returns, the node executes everything that has arrived meanwhile,
// in the order of arrival.
func (s *Sim) Resume() {
	s.lock()
	defer s.mu.Unlock()
	s.hung = false
	s.forgetClosed()
	for len(s.stalled) > 0 && !s.hung { // the test's function may hang it again
		f := s.stalled[0]
		s.stalled = s.stalled[1:]
		f.stalled = false
		s.begin(f)
	}
}

// forgetClosed makes the node notice the clients that closed their connections while it hung, and
// had nothing in transit.
func (s *Sim) forgetClosed() {
	for i := len(s.conns) - 1; i >= 0; i-- {
		if c := s.conns[i]; c.fin && len(c.flights) == 0 {
			s.forget(c)
		}
	}
}

// Crash ends the node as kill -9 does. Connections break, and dials are refused. The node loses its
// scripts, messages in transit, and what it accepted while it was hung. It loses its keys unless
// keepData is true, as with an append-only file that is always synced. Restart ends it.
func (s *Sim) Crash(keepData bool) {
	s.lock()
	defer s.mu.Unlock()
	s.crash(keepData)
}

func (s *Sim) crash(keepData bool) {
	s.crashed, s.hung = true, false
	s.stalled = nil
	s.breakAll()
	if !keepData {
		s.state.Flush()
	}
}

// Restart starts the node again as a master, with a new run_id, connection ids from 1 and no
// scripts. If the node is up, it crashes first, without its data.
func (s *Sim) Restart() {
	s.lock()
	defer s.mu.Unlock()
	if !s.crashed {
		s.crash(false)
	}
	s.restart()
}

func (s *Sim) restart() {
	s.crashed = false
	s.state.Restart(s.clock.now())
}

// Flush deletes all keys, as FLUSHALL does. Scripts stay.
func (s *Sim) Flush() {
	s.lock()
	defer s.mu.Unlock()
	s.state.Flush()
}

// LoadScripts loads the scripts, as another daemon does.
func (s *Sim) LoadScripts() {
	for _, script := range script.Scripts() {
		s.Do("SCRIPT", "LOAD", script.Source)
	}
}

// Move makes the node's address lead to another Redis, which is new and empty. The next call makes
// it lead back. Both keep running. Connections break.
func (s *Sim) Move() {
	s.lock()
	defer s.mu.Unlock()
	s.breakAll()
	if s.other == nil {
		other := s.newState(s.name + "'")
		other.Durable, other.InfoOverrides = s.state.Durable, s.state.InfoOverrides
		other.PlantAs(&s.state)
		s.other = &other
	}
	s.state, *s.other = *s.other, s.state
}

// Cut breaks all connections. Messages in transit are lost.
func (s *Sim) Cut() {
	s.lock()
	defer s.mu.Unlock()
	s.breakAll()
}

// CutLate breaks all connections for their clients at once, but the node notices only after d. Then
// it executes the requests that are in transit now, unless CLIENT KILL ends their connections
// first. What a hung node has accepted already is executed when it resumes.
func (s *Sim) CutLate(d time.Duration) {
	s.lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.fail(errReset)
		c.fin = true
		s.cutLate(c, d)
	}
}

func (s *Sim) cutLate(c *simConn, d time.Duration) {
	s.endReplies(c, errReset)
	if len(c.flights) == 0 {
		end := &flight{conn: c, end: true, finished: true}
		c.flights = append(c.flights, end)
		s.arm(end, d, s.begin)
		return
	}
	for _, f := range c.flights {
		switch {
		case f.stalled || f.waits:
		case s.disarm(f):
			s.arm(f, d, s.begin)
		default:
			f.late = d // it is being executed; interrupted delays the rest
		}
	}
}

// DropRequests makes the next n groups cut their connection on arrival. The node executes none of
// their commands.
func (s *Sim) DropRequests(n int) {
	s.lock()
	defer s.mu.Unlock()
	s.dropRequests = n
}

// DropMessages makes the node lose all messages to listeners, or none.
func (s *Sim) DropMessages(drops bool) {
	s.lock()
	defer s.mu.Unlock()
	s.dropMessages = drops
}

// DropReplies makes the next n groups cut their connection after their execution. The client gets
// no reply.
func (s *Sim) DropReplies(n int) {
	s.lock()
	defer s.mu.Unlock()
	s.dropReplies = n
}

// Refuse makes the node answer every command with this error and execute none. Redis does so while
// it loads ("LOADING …") or cannot write ("MISCONF …"). "" ends it.
func (s *Sim) Refuse(answer redlock.ServerError) {
	s.lock()
	defer s.mu.Unlock()
	s.refusal = nil
	if answer != "" {
		s.refusal = answer
	}
}

// StepClock steps the node's clock forward, or back if d is negative.
func (s *Sim) StepClock(d time.Duration) {
	s.lock()
	defer s.mu.Unlock()
	s.clock.step(d)
}

// SetClockRate makes the node's clock run at rate seconds a second. 1 is right, 1.01 is fast, 0
// stops the clock.
func (s *Sim) SetClockRate(rate float64) {
	s.lock()
	defer s.mu.Unlock()
	s.clock.setRate(rate)
}

// clock is a node's clock: time.Now with an error.
type clock struct {
	base  int64 // what the node's clock showed at since, in microseconds since 1970
	since time.Time
	rate  float64
}

func newClock() clock {
	now := time.Now()
	return clock{base: now.UnixMicro(), since: now, rate: 1}
}

// now returns microseconds since 1970.
func (c *clock) now() int64 {
	elapsed := time.Since(c.since)
	if c.rate != 1 {
		elapsed = time.Duration(float64(elapsed) * c.rate)
	}
	return c.base + elapsed.Microseconds()
}

func (c *clock) step(d time.Duration) { c.base += d.Microseconds() }

func (c *clock) setRate(rate float64) {
	c.base, c.since, c.rate = c.now(), time.Now(), rate
}
