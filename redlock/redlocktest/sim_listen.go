package redlocktest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

const (
	// expiryLag is how long after the expiry of a key the clients that read it are notified. Redis
	// looks for expired keys only now and then.
	expiryLag = 100 * time.Millisecond
	// listenerSilence is how long a node must hang until a listener breaks. A listener pings once a
	// second, and waits three seconds for the answer.
	listenerSilence = 4 * time.Second
)

// simListener is the client's side of a connection on which only the node sends messages.
type simListener struct {
	conn *simConn
	id   int64
}

func (l *simListener) ID() int64             { return l.id }
func (l *simListener) Done() <-chan struct{} { return l.conn.ended }
func (l *simListener) Close()                { l.conn.Close() }

// Subscribe sends SUBSCRIBE on this connection. From then on, the function of Listen gets the messages
// of the channel.
func (l *simListener) Subscribe(ctx context.Context, channel string) error {
	var replies [1]redlock.Reply
	if err := l.conn.Do(ctx, []redlock.Command{{"SUBSCRIBE", channel}}, replies[:]); err != nil {
		return err
	}
	return replies[0].Err
}

// listen connects as dial does. It calls receive in a separate goroutine.
func (s *Sim) listen(ctx context.Context, receive func(keys []string)) (redlock.Listener, error) {
	c := &simConn{sim: s, ended: make(chan struct{}), notified: make(chan struct{}, 1)}
	if err := s.login(ctx, c); err != nil {
		return nil, fmt.Errorf("listen to sim:%s: %w", s.name, err)
	}
	s.lock()
	defer s.mu.Unlock()
	s.runners.Go(func() { c.deliverKeys(receive) })
	return &simListener{c, c.client.Id}, nil
}

// deliverKeys calls receive with the keys that arrive, until the connection ends.
func (c *simConn) deliverKeys(receive func(keys []string)) {
	for {
		select {
		case <-c.notified:
		case <-c.ended:
			return
		}
		for _, key := range c.takeKeys() {
			if key == simredis.AllKeys {
				receive(nil)
			} else {
				receive([]string{key})
			}
		}
	}
}

// takeKeys returns the keys that have arrived, or none if the connection has ended.
func (c *simConn) takeKeys() []string {
	c.sim.lock()
	defer c.sim.mu.Unlock()
	keys := c.keys
	c.keys = nil
	if c.err != nil {
		return nil
	}
	return keys
}

// notify sends a key to a listener, after everything that was sent earlier. The caller holds mu, here
// and below.
func (s *Sim) notify(id int64, key string) {
	i := slices.IndexFunc(s.conns, func(c *simConn) bool { return c.client.Id == id && c.notified != nil })
	if i < 0 {
		return
	}
	c := s.conns[i]
	wait := max(s.lag, time.Until(c.lastArrives))
	if s.lag > 0 { // an instant that no reply and no other listener uses
		wait = max(s.lag+time.Duration(id%64+1)*977, time.Until(c.lastArrives))
	}
	c.lastArrives = time.Now().Add(wait)
	s.arm(&flight{conn: c, end: true, finished: true, key: key}, wait, s.arriveAtListener)
}

func (s *Sim) arriveAtListener(f *flight) {
	c := f.conn
	if c.err != nil {
		return
	}
	c.keys = append(c.keys, f.key)
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

// watchExpiry schedules the notification of clients about the next key that expires.
func (s *Sim) watchExpiry() {
	if s.expiry != nil {
		s.disarm(s.expiry)
		s.expiry = nil
	}
	if at := s.state.NextExpiry(); at != 0 && !s.hung {
		s.expiry = &flight{end: true, finished: true}
		s.arm(s.expiry, max(s.clock.until(at), 0)+expiryLag, s.expire)
	}
}

func (s *Sim) expire(*flight) {
	s.expiry = nil
	if s.hung {
		return // Resume schedules it again
	}
	now := s.clock.now()
	for _, key := range slices.Sorted(maps.Keys(s.state.Readers)) {
		s.state.Lookup(key, now)
	}
	s.watchExpiry()
}

// clients returns the server's view of the connections.
func (s *Sim) clients() []*simredis.Client {
	all := make([]*simredis.Client, len(s.conns))
	for i, c := range s.conns {
		all[i] = &c.client
	}
	return all
}
