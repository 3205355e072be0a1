package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// Sim is a node inside this process. It executes the commands that a lane sends as Redis 7 does.
// The test makes its network, clock and memory fail. Any goroutine may call its methods at any
// time, also within OnCommand's function, except Close.
//
// It waits on timers only, so under testing/synctest a test sees exact instants. Events of one
// instant happen in the order in which they were started, and before anything that a test or a
// client does at that instant. So a reply that is due exactly at the deadline is in time. Nothing
// is random: the same calls at the same instants in the same order have the same outcome. If two
// goroutines call at the same instant, their order is undefined, so give each its own instants.
// Without a delay, a command is executed in the caller's goroutine, without a timer.
type Sim struct {
	name    string
	runners sync.WaitGroup // see runEvents

	mu    sync.Mutex // guards what follows; never held while waiting or while a function of the test runs
	clock clock
	state simredis.State
	other *simredis.State // the Redis that the address does not lead to now; nil if there was only one
	conns []*simConn      // connections that the server has not forgotten, in the order of dialling

	pending []*flight // flights in the order in which they are due
	running time.Time // the instant whose events are being run; zero if none is

	alarm   *time.Timer // wakes a runner; nil before the first delay
	alarmAt time.Time   // when the alarm fires; zero if it is not set
	surplus int         // runners that should end

	lag   time.Duration // the delay of a message, equal to the delay of the reply to the command that caused it
	hangs int           // how often it was hung

	stalled      []*flight // flights that arrived while the node was hung, in order
	hung         bool
	unreachable  bool
	crashed      bool
	closed       bool
	refusal      error // the reply to every command; nil if commands are executed
	delay        func() (request, reply time.Duration)
	writeDelay   time.Duration
	hook         func(redlock.Command)
	between      func(next redlock.Command) time.Duration // how long to serve other clients before the next command of a group; may be nil
	trace        func(redlock.Command, redlock.Reply)
	published    func(channel, message string)
	dropRequests int
	dropReplies  int
	dropMessages bool // messages to listeners are lost
	counts       Counts
}

// Counts holds what really happened at a Sim, whatever its clients believe.
type Counts struct {
	Dials        int // connections that were made, without those of listeners
	Listens      int // connections of listeners
	RefusedDials int // dials that failed at once because the node was down
	Groups       int // groups that were executed completely
	Lost         int // groups that were sent but not executed completely
	Unanswered   int // groups that were executed completely, but whose replies did not reach a client
	Killed       int // connections ended by CLIENT KILL

	// Commands counts the executed commands by name: "GET", "CLIENT KILL". An EVALSHA counts under
	// the name of its script, such as "ballot".
	Commands map[string]int
}

// NewSim returns a node that is up and empty, with the time of time.Now.
func NewSim(name string) *Sim {
	s := &Sim{name: name, clock: newClock(), counts: Counts{Commands: map[string]int{}}}
	s.state = s.newState(name)
	return s
}

func (s *Sim) newState(name string) simredis.State {
	state := simredis.NewState(name, s.clock.now())
	state.Kill, state.Clients, state.Deliver = s.killLocked, s.clients, s.publish
	state.Published = func(channel, message string) {
		if s.published != nil {
			s.published(channel, message)
		}
	}
	return state
}

// Close cuts all connections and waits until all goroutines of the node have ended.
// OnCommand's function must not call it.
func (s *Sim) Close() {
	s.lock()
	s.closed = true
	s.stalled = nil
	s.breakAll()
	if s.alarm != nil {
		s.setAlarm(time.Now())
	}
	s.mu.Unlock()
	s.runners.Wait()
}

// Node returns the node for package redlock.
func (s *Sim) Node() redlock.Node {
	return redlock.Node{Name: s.name, Address: "sim:" + s.name, Dial: s.dial, Listen: s.listen}
}

// dial connects and logs in. As with Redis, that takes a round trip: a hung node accepts the
// connection but never answers.
func (s *Sim) dial(ctx context.Context) (redlock.Conn, error) {
	c := &simConn{sim: s}
	if err := s.login(ctx, c); err != nil {
		return nil, fmt.Errorf("dial sim:%s: %w", s.name, err)
	}
	return c, nil
}

func (s *Sim) login(ctx context.Context, c *simConn) error {
	if err := s.admit(c); err != nil {
		return err
	}
	err := c.roundTrip(ctx, &flight{conn: c, alone: true, login: true}, nil)
	if err != nil {
		c.Close()
		return &redis.LoginError{Connect: 1, Err: err}
	}
	return nil
}

func (s *Sim) admit(c *simConn) error {
	s.lock()
	defer s.mu.Unlock()
	if s.closed || s.unreachable || s.crashed {
		s.counts.RefusedDials++
		return syscall.ECONNREFUSED
	}
	s.conns = append(s.conns, c)
	return nil
}

// Do executes a command at once, without faults or delays, as if typed at the node itself. Counts
// does not include it.
func (s *Sim) Do(args ...string) redlock.Reply {
	s.lock()
	defer s.mu.Unlock()
	var nobody simredis.Client
	return s.state.Exec(&nobody, s.clock.now(), args)
}

// Get returns the string at key; "" if there is none.
func (s *Sim) Get(key string) string { return s.Do("GET", key).Str }

// Keys returns all keys, sorted.
func (s *Sim) Keys() []string {
	found := s.Do("KEYS", "*").Array
	keys := make([]string, 0, len(found))
	for _, key := range found {
		keys = append(keys, key.Str)
	}
	return keys
}

// PTTL returns the milliseconds until key expires by the node's clock. As in Redis, -1 means never,
// and -2 means that there is no such key.
func (s *Sim) PTTL(key string) int64 { return s.Do("PTTL", key).Int }

// Now returns the time of the node's own clock.
func (s *Sim) Now() time.Time {
	s.lock()
	defer s.mu.Unlock()
	return time.UnixMicro(s.clock.now())
}

// RunID returns the run_id of the current incarnation.
func (s *Sim) RunID() string {
	s.lock()
	defer s.mu.Unlock()
	return s.state.RunID
}

// Counts returns what has happened so far.
func (s *Sim) Counts() Counts {
	s.lock()
	defer s.mu.Unlock()
	counts := s.counts
	counts.Commands = maps.Clone(counts.Commands)
	return counts
}

// OnCommand makes the node call fn before it executes a command that has arrived, in the goroutine
// that executes it. fn may do anything to the node; the effect applies to this command. While fn
// runs, other goroutines may use the node, also at the same instant. If a function only records,
// use OnReply instead. fn must not keep or change the command. Nil removes the function.
func (s *Sim) OnCommand(fn func(redlock.Command)) {
	s.lock()
	defer s.mu.Unlock()
	s.hook = fn
}

// Between makes the node serve other clients before the next command of a group, for as long as
// pause returns. Redis does so with a group that arrives in pieces. Nil removes the function.
func (s *Sim) Between(pause func(next redlock.Command) time.Duration) {
	s.lock()
	defer s.mu.Unlock()
	s.between = pause
}

// OnReply makes the node call fn with each executed command and its reply, in the order of
// execution, before anything else happens at the node. fn must not call the node, or keep or change
// its arguments. Nil removes the function.
func (s *Sim) OnReply(fn func(redlock.Command, redlock.Reply)) {
	s.lock()
	defer s.mu.Unlock()
	s.trace = fn
}

// OnPublish makes the node call fn with each message that it publishes, whether anybody gets it or
// not. fn must not call the node. Nil removes the function.
func (s *Sim) OnPublish(fn func(channel, message string)) {
	s.lock()
	defer s.mu.Unlock()
	s.published = fn
}

var errReset = fmt.Errorf("the connection broke: %w", syscall.ECONNRESET)
var errTimedOut = errors.New("a call on this connection timed out: the connection can only be closed")

// breakAll cuts every connection and loses what is in transit. The caller holds mu, here and below.
func (s *Sim) breakAll() {
	for _, c := range slices.Clone(s.conns) {
		s.breakConn(c)
	}
}

// breakConn ends a connection for both sides and loses what is in transit.
func (s *Sim) breakConn(c *simConn) {
	for _, f := range c.flights {
		s.disarm(f)
		s.countEnd(f)
		f.finish(errReset)
	}
	c.fail(errReset)
	s.forget(c)
}

// countEnd counts a flight whose replies will reach no client.
func (s *Sim) countEnd(f *flight) {
	switch {
	case f.login || f.end:
	case f.executed:
		s.counts.Unanswered++
	default:
		s.counts.Lost++
	}
}

// forget ends the server's side of a connection. Groups that have not arrived yet are not executed.
func (s *Sim) forget(c *simConn) {
	c.gone, c.flights = true, nil
	if i := slices.Index(s.conns, c); i >= 0 {
		s.conns = slices.Delete(s.conns, i, i+1)
	}
}

// killLocked executes CLIENT KILL ID.
func (s *Sim) killLocked(id int64) int64 {
	for _, c := range s.conns {
		if c.client.Id == id {
			s.counts.Killed++
			s.breakConn(c)
			return 1
		}
	}
	return 0
}
