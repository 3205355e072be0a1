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

// Serve accepts connections from l and serves them until ctx is done, l is closed, or Shutdown is
// called. None of these is an error. Serve does not wait for the connections; Shutdown does. Serve
// closes l only if l has no SetDeadline, because nothing else ends its Accept.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.mu.Lock()
	if s.listeners == nil {
		s.listeners = make(map[net.Listener]struct{})
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
	}()
	defer context.AfterFunc(ctx, func() { interrupt(l) })()
	over := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return ctx.Err() != nil || s.stopping
	}
	retry := backoff{}
	a := &acceptor{s: s, l: l}
	if socket, ok := l.(syscall.Conn); ok {
		a.raw, _ = socket.SyscallConn() // it fails if l is closed; Accept reports that
	}
	for !over() { // also while clients keep connecting
		nc, err := a.accept()
		switch {
		case err == nil && nc == nil:
			runtime.Gosched() // refused clients may keep coming
		case err == nil:
			retry = backoff{}
			if c := s.add(nc); c != nil {
				go s.serve(c) // it ends with the connection; Shutdown waits for it
			}
		case errors.Is(err, net.ErrClosed):
			return nil
		case !over():
			s.acceptFailed(ctx, err, retry.next())
		}
	}
	return nil
}

// acceptor accepts connections from one listener. It belongs to the goroutine of Serve.
type acceptor struct {
	s   *Server
	l   net.Listener
	raw syscall.RawConn // nil: only l.Accept works

	lastRefusal time.Time // when a client was last refused
}

// accept waits for a connection and returns it, or nil if Admit refused it. While clients are being
// refused, it uses acceptRaw, which costs little for each.
func (a *acceptor) accept() (net.Conn, error) {
	if a.raw == nil || time.Since(a.lastRefusal) > activityWindow {
		return a.acceptOne()
	}
	return a.acceptRaw()
}

// acceptOne accepts one connection, and refuses it if Admit does.
func (a *acceptor) acceptOne() (net.Conn, error) {
	nc, err := a.l.Accept()
	if err != nil {
		return nil, err
	}
	if refusal := a.refusal(peerOf(rawOf(nc))); refusal != nil {
		Farewell(nc, refusal) // fails if the client has closed
		nc.Close()
		return nil, nil
	}
	return nc, nil
}

// refusal returns the answer to a client that Admit refuses, or nil if Admit admits it. Admit
// counts the clients that it admits, so refusal is called once for each connection.
func (a *acceptor) refusal(peer Peer) []byte {
	if a.s.Admit == nil {
		return nil
	}
	err := a.s.Admit(peer)
	if err == nil {
		return nil
	}
	a.lastRefusal = time.Now()
	var r ipc.Response
	code, text := refusalOf(err)
	if a.s.Refused != nil {
		a.s.Refused(code)
	}
	return r.Err("", code, text).AppendTo(nil)
}

// backoff is the pause after a failed accept. A usual cause is a lack of file descriptors, which
// lasts until other connections end.
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
