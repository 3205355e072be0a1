package redlock

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotAdmitted: the node may not vote still.
var ErrNotAdmitted = errors.New("not admitted")

// ErrNotQuarantined: only a node in quarantine can be admitted.
var ErrNotQuarantined = errors.New("not in quarantine")

// Admit ends the quarantine of a node at once, for all processes that use it.
// It is for nodes that are brand-new: the caller knows that no lock can be held
// that they voted for. Where that is wrong, two can hold one lock. Counters are
// copied from the other nodes as far as these may vote. It returns when the node
// may vote, within about 16 node timeouts; the error matches ErrNotQuarantined, or
// ErrNotAdmitted and says why.
func (q *Quorum) Admit(ctx context.Context, node string) error {
	for _, l := range q.lanes {
		if l.node.Name == node {
			ctx, cancel := context.WithTimeout(ctx, 2*l.timing.silence)
			defer cancel()
			return l.admitNow(ctx)
		}
	}
	return fmt.Errorf("%w: there is no node %q", ErrRequest, node)
}

func (l *lane) admitNow(ctx context.Context) error {
	if s := l.status(); s.State != NodeQuarantined {
		return fmt.Errorf("node %s is %s, %w", s.Name, s.State, ErrNotQuarantined)
	}
	done := make(chan struct{}, 1)
	select {
	case l.admits <- done:
	case <-ctx.Done():
		return fmt.Errorf("node %s: %w", l.node.Name, context.Cause(ctx))
	}
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("node %s: %w", l.node.Name, context.Cause(ctx))
	}
	if s := l.status(); s.State != NodeReady {
		return fmt.Errorf("node %s: %w: it is %s: %v", s.Name, ErrNotAdmitted, s.State, s.Reason)
	}
	return nil
}

// admitEarly looks at the node as if its quarantine were over.
func (l *lane) admitEarly(conn Conn, done chan<- struct{}) error {
	l.member.EndNow(true)
	defer func() {
		l.member.EndNow(false)
		done <- struct{}{}
	}()
	ctx := &l.within
	ctx.start(l.timing.silence)
	return l.lookAgain(ctx, conn)
}
