package server

import (
	"bytes"
	"net"

	"github.com/redlockd/redlockd/ipc"
)

// Restored is a connection from before a restart that is not read from yet.
// Its methods are called one after the other, Serve last and always.
type Restored struct{ c *Conn }

// replay is a request that was noted before a restart, and waits for its turn.
type replay struct {
	number uint64
	line   []byte
}

// Restore takes over a connection that outlasted another process: it makes its
// session (Server.Open), and reads nothing yet. Where there is no session the
// client is told why, and the connection ended; after Shutdown or Freeze it is left
// to whoever has a duplicate of it, with ErrShutdown.
func (s *Server) Restore(nc net.Conn) (*Restored, error) {
	c := s.add(nc)
	if c == nil {
		return nil, ErrShutdown
	}
	if err := c.open(); err != nil {
		go func() { // Shutdown waits for it
			defer s.remove(c)
			c.finish()
		}()
		return nil, err
	}
	return &Restored{c}, nil
}

// Conn is the connection. What is sent on it now stands before all answers.
func (r *Restored) Conn() *Conn { return r.c }

// Session is what Server.Open made.
func (r *Restored) Session() Session { return r.c.session }

// Begin begins a request that was Asked before the restart and not answered, as
// if it had been read now. The Call has the number, and Replayed: it is not Asked
// again, but Answered. Of requests without a tag one is begun, and others wait for
// their turn, in order. Once Freeze has begun nothing is done: the request
// stays as it is noted.
func (r *Restored) Begin(number uint64, line []byte) {
	c := r.c
	if c.freezing.Load() {
		return
	}
	c.replay(replay{number, line})
	c.uncork()
}

// replay begins a replay, or has it wait for its turn.
func (c *Conn) replay(p replay) {
	call, err := c.replayed(p)
	if call.Tag == "" && (c.inflight.untaggedPending() || len(c.replays) > 0) {
		c.replays = append(c.replays, replay{p.number, bytes.Clone(p.line)})
		call.free()
		return
	}
	c.startRequest(call, p.line, err)
}

// nextReplay begins the replay whose turn has come.
func (c *Conn) nextReplay() {
	p := c.replays[0]
	c.replays = c.replays[1:]
	if len(c.replays) == 0 {
		c.replays = nil
	}
	call, err := c.replayed(p)
	c.startRequest(call, p.line, err)
}

// replayed is the call of a request that was Asked by an earlier process.
func (c *Conn) replayed(p replay) (*Call, error) {
	call := newCall(c)
	call.Number, call.Replayed, call.recorded = p.number, true, c.journal != nil
	return call, ipc.ParseRequest(p.line, &call.Request)
}

// Serve begins to read: first the rest, which is what the journal was told to read
// again, and then what the client sends. It does not wait; Shutdown does.
func (r *Restored) Serve(rest []byte, skipping bool) {
	c := r.c
	c.setUnread(bytes.Clone(rest), skipping)
	go func() { // Shutdown waits for it
		defer c.server.remove(c)
		c.run()
	}()
}

// takeBack puts the rest before what comes. In front of a line that is skipped
// there are only lines that wait for their turn.
func (c *Conn) setUnread(rest []byte, skipping bool) {
	if skipping {
		c.queue.lines = rest
	} else {
		c.in.earlier = rest
	}
	c.in.skipping = skipping
	c.recordedUnread.queued, c.recordedUnread.unread, c.recordedUnread.skipping = c.queue.size(), len(c.in.earlier), skipping
}
