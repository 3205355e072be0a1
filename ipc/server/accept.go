package server

import (
	"context"
	"errors"
	"net"
	"runtime"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Serve accepts connections from l and serves them, until ctx is done, l is
// closed or Shutdown is called, which is no error. It does not wait for the
// connections: Shutdown does. l is not closed, unless it has no SetDeadline:
// then that is the only way to stop it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if !s.listen(l) {
		return nil
	}
	defer s.unlisten(l)
	defer context.AfterFunc(ctx, func() { interrupt(l) })()
	over := func() bool { return ctx.Err() != nil || s.isStopping() }
	retry := backoff{}
	a := newAcceptor(s, l)
	for !over() { // also where there is no end of those who come
		nc, err := a.accept()
		switch {
		case err == nil:
			retry = backoff{}
			a.accepted(nc)
		case errors.Is(err, net.ErrClosed):
			return nil
		case !over():
			s.acceptFailed(ctx, err, retry.next())
		}
	}
	return nil
}

// acceptor takes what comes at a listener. It belongs to Serve.
type acceptor struct {
	s   *Server
	l   net.Listener
	raw syscall.RawConn // nil: only l.Accept can be used

	turnedAway time.Time // when somebody was last
}

// newAcceptor is for a listener.
func newAcceptor(s *Server, l net.Listener) *acceptor {
	a := &acceptor{s: s, l: l}
	if socket, ok := l.(syscall.Conn); ok {
		a.raw, _ = socket.SyscallConn() // it fails if l is closed, which Accept tells
	}
	return a
}

// accept waits for a connection that is admitted, once, and turns others away. While
// there are such, all are looked at before much is done for them. nil is none for now.
func (a *acceptor) accept() (net.Conn, error) {
	if a.raw == nil || time.Since(a.turnedAway) > activityWindow {
		return a.acceptOne()
	}
	return a.acceptRaw()
}

// acceptOne looks at one that is made already.
func (a *acceptor) acceptOne() (net.Conn, error) {
	nc, err := a.l.Accept()
	if err != nil {
		return nil, err
	}
	if refusal := a.refusal(peerOf(rawOf(nc))); refusal != nil {
		turnAway(nc, refusal)
		return nil, nil
	}
	return nc, nil
}

// accepted serves a connection that is admitted.
func (a *acceptor) accepted(nc net.Conn) {
	if nc == nil {
		runtime.Gosched() // there may be no end of those who are not
		return
	}
	if c := a.s.add(nc); c != nil {
		go a.s.serve(c) // Shutdown waits for it
	}
}

// refusal is what somebody is told who is not to be served; nil: he is admitted, and
// counted where that is. So it is asked once for each.
func (a *acceptor) refusal(peer Peer) []byte {
	if a.s.Admit == nil {
		return nil
	}
	err := a.s.Admit(peer)
	if err == nil {
		return nil
	}
	a.turnedAway = time.Now()
	var r ipc.Response
	code, text := refusalOf(err)
	if a.s.Refused != nil {
		a.s.Refused(code)
	}
	return r.Err("", code, text).AppendTo(nil)
}

// turnAway says why.
func turnAway(nc net.Conn, refusal []byte) {
	defer nc.Close()
	Farewell(nc, refusal) // he is gone: then he need not know
}

// backoff is the pause after a failed accept, such as one for want of file
// descriptors: other connections have to end first.
type backoff struct{ pause time.Duration }

func (b *backoff) next() time.Duration {
	b.pause = min(max(2*b.pause, 5*time.Millisecond), time.Second)
	return b.pause
}

func (s *Server) acceptFailed(ctx context.Context, err error, pause time.Duration) {
	if s.AcceptFailed != nil {
		s.AcceptFailed(err, pause)
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}
