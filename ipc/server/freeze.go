package server

import (
	"context"
	"github.com/redlockd/redlockd/ipc"
	"time"
)

// Freezing is how a Server freezes.
type Freezing struct {
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

// freezing is a Freeze under way. Its fields but the channels are guarded by
// Server.mu.
type freezing struct {
	Freezing
	left  int           // connections that go on
	still chan struct{} // closed when none does
	over  chan struct{} // closed when Freeze is done
	kept  []*Conn       // as they are: never closed, not by the garbage collector either
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
func (s *Server) Freeze(ctx context.Context, how Freezing) error {
	f := s.startFreezing(how)
	if f == nil {
		return ErrShutdown
	}
	defer close(f.over)
	err := s.await(ctx, f)
	if f.Seal != nil {
		f.Seal()
	}
	for _, c := range s.kept(f) {
		c.mute(ctx)
	}
	s.workers.end()
	return err
}

// await waits until no connection goes on, but not longer than ctx.
func (s *Server) await(ctx context.Context, f *freezing) error {
	select {
	case <-f.still:
		return nil
	case <-ctx.Done():
	}
	s.cutRest()
	return ctx.Err()
}

// startFreezing tells all connections. It is nil if the server stops already.
func (s *Server) startFreezing(how Freezing) *freezing {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return nil
	}
	f := &freezing{Freezing: how, left: len(s.conns), still: make(chan struct{}), over: make(chan struct{})}
	if f.left == 0 {
		close(f.still)
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
func (s *Server) cutRest() {
	for _, c := range s.all() {
		switch {
		case c.stopping.Load():
			c.cut(ErrShutdown)
		case c.parking.Load() && !c.out.written():
			c.cut(ErrSlow)
		}
	}
}

func (s *Server) kept(f *freezing) []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.kept
}

// mutePause is how long the last events may take at a time.
const mutePause = time.Millisecond

// mute ends the output: events that were sent meanwhile are written before.
func (c *Conn) mute(ctx context.Context) {
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
func (c *Conn) freeze() bool {
	f := c.server.freezeUnderWay()
	if c.quitting.Load() || !c.isKept(f) {
		c.stop()
		return false
	}
	c.pace.pause()
	c.watchful.Store(true)
	c.calls.freeze()
	c.noteRest()
	c.uncork()
	c.parking.Store(true)
	for !c.calls.still() || !c.out.written() {
		c.sleep()
	}
	if c.WasCut() {
		c.stop()
		return false
	}
	c.server.park(c, f)
	<-f.over
	return true
}

func (c *Conn) isKept(f *freezing) (kept bool) {
	c.guard(func() { kept = f.Keep != nil && f.Keep(c.session) })
	return kept
}

func (s *Server) freezeUnderWay() *freezing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freezing
}

// park makes c one of the kept connections.
func (s *Server) park(c *Conn, f *freezing) {
	s.mu.Lock()
	f.kept = append(f.kept, c)
	s.mu.Unlock()
	s.remove(c)
}

// ended counts a connection that goes on no more. It needs Server.mu.
func (f *freezing) ended() {
	if f.left--; f.left == 0 {
		close(f.still)
	}
}
