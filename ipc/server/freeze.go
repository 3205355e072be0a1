package server

import (
	"context"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// FreezeOptions are the arguments of Server.Freeze.
type FreezeOptions struct {
	// Keep reports whether a connection outlasts the process. It is called on the goroutine that
	// reads the connection, and must not block.
	Keep func(Session) bool
	// Bye returns the last line for the other connections, as in Shutdown. Nil: no line is sent.
	Bye func(Session) *ipc.Response
	// Seal is called when kept connections no longer read, begin or answer requests, and all other
	// connections have ended. After it, nothing may be recorded. It may be nil.
	Seal func()
}

// freezeState is a Freeze in progress.
type freezeState struct {
	FreezeOptions
	done chan struct{} // closed when Freeze returns
	kept []*Conn       // guarded by Server.mu; never closed, not even by the garbage collector
}

// Freeze ends serving so that another process can continue. A connection for which Keep returns
// true stops as it is: nothing more is read or begun, the Journal gets the last RecordUnread, and
// answers that the Journal has recorded are written. Its other requests are not answered, and its
// contexts and session do not end. All other connections end as in Shutdown, also those for which
// CloseAfterReplies was called. Then Freeze calls Seal. After Freeze has returned, events and
// replies are dropped.
//
// If ctx is done first, Freeze cuts the connections that have not ended, and the kept connections
// whose clients have not read their answers: the next process cannot continue half a line. It
// reports each to Server.Dropped before Seal, and returns ctx's error. If the server is already
// stopping, Freeze returns ErrShutdown and does nothing. Serve should have returned before: a
// connection that is accepted from now on is closed.
//
// The Journal may block after Seal, as if the process had been killed. So call Freeze only in a
// process that soon exits, or replaces itself.
func (s *Server) Freeze(ctx context.Context, options FreezeOptions) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return ErrShutdown
	}
	f := &freezeState{FreezeOptions: options, done: make(chan struct{})}
	defer close(f.done)
	s.freezing = f
	s.setStoppingLocked(options.Bye)
	s.mu.Unlock()
	for _, c := range s.allConns() {
		c.freezing.Store(true)
		c.wake()
	}
	var err error
	select {
	case <-s.empty:
	case <-ctx.Done():
		err = ctx.Err()
		s.cutRemaining()
	}
	if f.Seal != nil {
		f.Seal()
	}
	for _, c := range s.kept(f) {
		c.endOutput(ctx)
	}
	s.workers.end()
	return err
}

// Kept returns the sessions of the connections that Freeze has kept. The sockets stay open, also for a
// process that replaces this one. Call it after Freeze.
func (s *Server) Kept() (sessions []Session) {
	for _, c := range s.kept(s.freezeUnderWay()) {
		sessions = append(sessions, c.session)
	}
	return sessions
}

// cutRemaining cuts the connections that did not stop in time. If a session does not return, its
// connection stays as if the process had been killed.
func (s *Server) cutRemaining() {
	for _, c := range s.allConns() {
		switch {
		case c.stopping.Load():
			c.cutOff(ErrShutdown)
		case c.writesLastAnswers.Load() && !c.out.isDrained():
			c.cutOff(ErrSlow)
		}
	}
}

// kept returns nothing if f is nil, because Freeze did nothing.
func (s *Server) kept(f *freezeState) []*Conn {
	if f == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.kept
}

// moreEventsPause is how long endOutput waits for more events each time.
const moreEventsPause = time.Millisecond

// endOutput writes the events that are still being sent, and ends the output.
func (c *Conn) endOutput(ctx context.Context) {
	for !c.out.close() {
		select {
		case <-time.After(moreEventsPause):
		case <-ctx.Done():
			c.out.stop(ErrShutdown)
			return
		}
	}
}

// freezeHere ends reading for good if the connection is kept, after the answers in progress are
// written. It returns false if the connection must end instead: it is not kept, or the client did
// not read its answers in time.
func (c *Conn) freezeHere() bool {
	f, kept := c.server.freezeUnderWay(), false
	c.guard(func() { kept = f.Keep != nil && !c.isInputClosed.Load() && f.Keep(c.session) })
	if !kept {
		c.stop()
		return false
	}
	c.fairness.pause()
	c.isWaiting.Store(true)
	c.inflight.freeze()
	c.recordUnread()
	c.uncork()
	c.writesLastAnswers.Store(true)
	for !c.inflight.noAnswerUnderWay() || !c.out.isDrained() {
		c.waitForWakeup()
	}
	if c.WasCut() {
		c.stop()
		return false
	}
	c.server.mu.Lock()
	f.kept = append(f.kept, c)
	c.server.mu.Unlock()
	c.server.remove(c)
	<-f.done
	return true
}

func (s *Server) freezeUnderWay() *freezeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freezing
}
