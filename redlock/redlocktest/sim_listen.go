package redlocktest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// listenerSilence is how long a node must hang until a listener breaks. A listener pings every
// five seconds, and waits three seconds for the answer.
const listenerSilence = 8 * time.Second

// simListener is the client's side of a connection on which only the node sends messages.
type simListener struct{ conn *simConn }

func (l *simListener) Done() <-chan struct{} { return l.conn.ended }
func (l *simListener) Close()                { l.conn.Close() }

// listen connects as dial does, and subscribes to the channel. It calls heard in a separate
// goroutine.
func (s *Sim) listen(ctx context.Context, channel string, heard func(message string)) (redlock.Listener, error) {
	c := &simConn{sim: s, ended: make(chan struct{}), notified: make(chan struct{}, 1)}
	if err := s.login(ctx, c); err != nil {
		return nil, fmt.Errorf("listen to sim:%s: %w", s.name, err)
	}
	reply := make([]redlock.Reply, 1)
	if err := c.Do(ctx, []redlock.Command{{"SUBSCRIBE", channel}}, reply); err != nil || reply[0].Err != nil {
		c.Close()
		return nil, &redis.LoginError{Connect: 1, Err: cmp.Or(err, reply[0].Err)}
	}
	s.lock()
	defer s.mu.Unlock()
	s.runners.Go(func() { c.deliverMessages(heard) })
	return &simListener{c}, nil
}

// deliverMessages calls heard with the messages that arrive, until the connection ends.
func (c *simConn) deliverMessages(heard func(message string)) {
	for {
		select {
		case <-c.notified:
		case <-c.ended:
			return
		}
		for _, message := range c.takeMessages() {
			heard(message)
		}
	}
}

// takeMessages returns the messages that have arrived, or none if the connection has ended.
func (c *simConn) takeMessages() []string {
	c.sim.lock()
	defer c.sim.mu.Unlock()
	messages := c.messages
	c.messages = nil
	if c.err != nil {
		return nil
	}
	return messages
}

// publish sends a message to a listener, after everything that was sent earlier. The caller holds mu,
// here and below.
func (s *Sim) publish(id int64, _, message string) {
	i := slices.IndexFunc(s.conns, func(c *simConn) bool { return c.client.Id == id && c.notified != nil })
	if i < 0 || s.dropMessages {
		return
	}
	c := s.conns[i]
	wait := max(s.lag, time.Until(c.lastArrives))
	if s.lag > 0 { // an instant that no reply and no other listener uses
		wait = max(s.lag+time.Duration(id%64+1)*977, time.Until(c.lastArrives))
	}
	c.lastArrives = time.Now().Add(wait)
	s.arm(&flight{conn: c, end: true, finished: true, message: message}, wait, s.arriveAtListener)
}

func (s *Sim) arriveAtListener(f *flight) {
	c := f.conn
	if c.err != nil {
		return
	}
	c.messages = append(c.messages, f.message)
	select {
	case c.notified <- struct{}{}:
	default: // a signal is already waiting
	}
}

// breakListeners breaks the listeners if the node stays hung for listenerSilence.
func (s *Sim) breakListeners() {
	if !slices.ContainsFunc(s.conns, func(c *simConn) bool { return c.notified != nil }) {
		return
	}
	s.hangs++
	hang := s.hangs
	s.arm(&flight{end: true, finished: true}, listenerSilence, func(*flight) {
		for _, c := range s.conns {
			if c.notified != nil && s.hung && s.hangs == hang {
				c.fail(errReset)
				c.fin = true
			}
		}
	})
}

// clients returns the server's view of the connections.
func (s *Sim) clients() []*simredis.Client {
	all := make([]*simredis.Client, len(s.conns))
	for i, c := range s.conns {
		all[i] = &c.client
	}
	return all
}
