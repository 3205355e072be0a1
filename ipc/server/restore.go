package server

import (
	"bytes"
	"net"

	"github.com/redlockd/redlockd/ipc"
)

// Restored is a connection from before a restart that is not read from yet. Do not call its methods
// concurrently. Always call Serve, last.
type Restored struct{ c *Conn }

// replay is a request that was recorded before a restart and waits for its turn.
type replay struct {
	number uint64
	line   []byte
}

// Restore takes over a connection that outlasted the previous process. It makes the session
// (Server.Open), and reads nothing yet. If Open fails, Restore sends the error to the client and
// closes the connection. After Shutdown or Freeze it returns ErrShutdown, and leaves the connection
// to the process that has a duplicate of it.
func (s *Server) Restore(nc net.Conn) (*Restored, error) {
	c := s.add(nc)
	if c == nil {
		return nil, ErrShutdown
	}
	if err := c.open(); err != nil {
		go func() { // it ends when the output is written; Shutdown waits for it
			defer s.remove(c)
			c.finish()
		}()
		return nil, err
	}
	return &Restored{c}, nil
}

// Conn returns the connection. What is sent on it before Begin comes before all answers.
func (r *Restored) Conn() *Conn { return r.c }

// Session returns what Server.Open made.
func (r *Restored) Session() Session { return r.c.session }

// Begin begins a request that was recorded before the restart and not answered, as if it had just
// been read. The Call has that number, and Replayed is true. The request is not recorded again, but
// its answer is. Requests without a tag begin one after the other, in order. Once Freeze has begun,
// Begin does nothing: the request stays recorded.
func (r *Restored) Begin(number uint64, line []byte) {
	c := r.c
	if c.freezing.Load() {
		return
	}
	call, err := c.replayed(replay{number, line})
	if call.Tag == "" && (c.inflight.untaggedPending() || len(c.replays) > 0) {
		c.replays = append(c.replays, replay{number, bytes.Clone(line)})
		call.free()
	} else {
		c.startRequest(call, line, err)
	}
	c.uncork()
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

// replayed returns the call of a request that an earlier process recorded.
func (c *Conn) replayed(p replay) (*Call, error) {
	call := newCall(c)
	call.Number, call.Replayed, call.recorded = p.number, true, c.journal != nil
	return call, ipc.ParseRequest(p.line, &call.Request)
}

// Serve starts to read: first rest, the bytes that the journal kept to be read again, and then new
// input. If a line is being skipped, rest has only lines of the queue. Serve does not wait; Shutdown
// does.
func (r *Restored) Serve(rest []byte, skipping bool) {
	c := r.c
	if c.in.skipping = skipping; skipping {
		c.queue.lines = bytes.Clone(rest)
	} else {
		c.in.earlier = bytes.Clone(rest)
	}
	c.recordedUnread.queuedBytes, c.recordedUnread.unread, c.recordedUnread.skipping = c.queue.size(), len(c.in.earlier), skipping
	go func() { // it ends with the connection; Shutdown waits for it
		defer c.server.remove(c)
		c.run()
	}()
}
