package node

import (
	"context"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// okConn answers OK to everything.
type okConn struct{}

func (okConn) Do(_ context.Context, _ []redis.Command, replies []redis.Reply) error {
	for i := range replies {
		replies[i] = redis.Reply{Str: "OK"}
	}
	return nil
}

func (okConn) Send(context.Context, []redis.Command) error { return nil }

func (c okConn) Receive(ctx context.Context, replies []redis.Reply) error {
	return c.Do(ctx, nil, replies)
}

func (okConn) Close() {}

// A listener ends in the moment in which the lane names it to the node, after the lane was told
// of the end (stopTracking). Nothing would wake the waiter, so the next group wakes it.
func TestListenerEndsWhileItIsNamed(t *testing.T) {
	var waiters Waiters
	l := NewLane(Options{
		Rules: &SoundRules, Clock: func() time.Duration { return time.Hour }, Waiters: &waiters,
		Admission: admission.NewFleet(admission.Options{Nodes: make([]admission.NodeOptions, 5), Quorum: 3}),
	})
	w := waiters.Join([]string{"x"}, "mark", 3)
	l.session.listenerID = 7
	l.tracking.Store(true)
	if err := l.track(t.Context(), okConn{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.wakeup:
	default:
		t.Error("the waiter was not woken")
	}
	if l.tracking.Load() {
		t.Error("the node still counts as tracking")
	}
}
