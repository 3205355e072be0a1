package server

import (
	"context"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Freezing is how a Server freezes.
type FreezeOptions struct {
	// Keep tells which connections outlast the process. It is called on the
	// goroutine that reads the connection, and must not block.
	Keep func(Session) bool
	// Bye is of the others, as in Shutdown. Nil: nothing is said.
	Bye func(Session) *ipc.Response
	// Seal is called when nothing is read, begun or answered any more on
	// connections that are kept, and the others are over: from now on nothing is to
	// be noted. May be nil.
	Seal func()
}

// freezeState is a Freeze under way. Its fields but the channels are guarded by
// Server.mu.
type freezeState struct {
	FreezeOptions
	running int           // connections that go on
	quiet   chan struct{} // closed when none does
	done    chan struct{} // closed when Freeze is done
	kept    []*Conn       // as they are: never closed, not by the garbage collector either
}

// Freeze ends serving so that another process can go on. The connections to be
// kept stop as they are: no more is read or begun, the Journal is told the Rest,
// answers that it was told of are written, and nothing else is answered or ended:
// not requests, contexts, sessions nor connections. The others end as in Shutdown,
// and so does a connection that was told to CloseAfterReplies. Then Seal is
// called, and when Freeze returns, what is sent or replied goes nowhere.
//
// If ctx is done before, what is not over is cut, as are kept connections whose
// clients have not read their answers by then (Server.Dropped, before Seal): half a
// line cannot be continued. Freeze returns ctx's error then. It returns ErrShutdown
// and does nothing if the server is stopping already. Serve should have returned
// before: a connection that is accepted from now on is closed unserved.
func (s *Server) Freeze(ctx context.Context, how FreezeOptions) error {
	f := s.startFreezing(how)
	if f == nil {
		return ErrShutdown
	}
	defer close(f.done)
	err := s.await(ctx, f)
	if f.Seal != nil {
		f.Seal()
	}
	for _, c := range s.kept(f) {
		c.endOutput(ctx)
	}
	s.workers.end()
	return err
}

// await waits until no connection goes on, but not longer than ctx.
func (s *Server) await(ctx context.Context, f *freezeState) error {
	select {
	case <-f.quiet:
		return nil
	case <-ctx.Done():
	}
	s.cutRemaining()
	return ctx.Err()
}

// startFreezing tells all connections. It is nil if the server stops already.
func (s *Server) startFreezing(how FreezeOptions) *freezeState {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return nil
	}
	f := &freezeState{FreezeOptions: how, running: len(s.conns), quiet: make(chan struct{}), done: make(chan struct{})}
	if f.running == 0 {
		close(f.quiet)
	}
	s.freezing = f
	s.setStopping(how.Bye)
	s.mu.Unlock()
	for _, c := range s.all() {
		c.freezing.Store(true)
		c.wake()
	}
	return f
}

// cutRest is for the connections that have not come to an end in time. Where it is
// the session that does not come back, nothing can be done: the connection is
// left as if the process had been killed.
func (s *Server) cutRemaining() {
	for _, c := range s.all() {
		switch {
		case c.stopping.Load():
			c.cutOff(ErrShutdown)
		case c.lastAnswers.Load() && !c.out.written():
			c.cutOff(ErrSlow)
		}
	}
}

func (s *Server) kept(f *freezeState) []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.kept
}

// mutePause is how long the last events may take at a time.
const mutePause = time.Millisecond

// mute ends the output: events that were sent meanwhile are written before.
func (c *Conn) endOutput(ctx context.Context) {
	for !c.out.close() {
		select {
		case <-time.After(mutePause):
		case <-ctx.Done():
			c.out.stop(ErrShutdown)
			return
		}
	}
}

// freeze ends reading for good, if the connection is kept: it waits until answers
// that are on their way are written. Otherwise, and where the client does not
// read them in time, it is false, and the connection is to end.
func (c *Conn) freezeHere() bool {
	f := c.server.freezeUnderWay()
	if c.quitting.Load() || !c.isKept(f) {
		c.stop()
		return false
	}
	c.fairness.pause()
	c.wantsNews.Store(true)
	c.inflight.freeze()
	c.recordUnread()
	c.uncork()
	c.lastAnswers.Store(true)
	for !c.inflight.noAnswerUnderWay() || !c.out.written() {
		c.waitForNews()
	}
	if c.WasCut() {
		c.stop()
		return false
	}
	c.server.park(c, f)
	<-f.done
	return true
}

func (c *Conn) isKept(f *freezeState) (kept bool) {
	c.guard(func() { kept = f.Keep != nil && f.Keep(c.session) })
	return kept
}

func (s *Server) freezeUnderWay() *freezeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freezing
}

// park makes c one of the kept connections.
func (s *Server) park(c *Conn, f *freezeState) {
	s.mu.Lock()
	f.kept = append(f.kept, c)
	s.mu.Unlock()
	s.remove(c)
}

// ended counts a connection that goes on no more. It needs Server.mu.
func (f *freezeState) ended() {
	if f.running--; f.running == 0 {
		close(f.quiet)
	}
}
