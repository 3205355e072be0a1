package redlock

import (
	"context"
	"testing"
	"time"
)

// okConn answers OK to everything.
type okConn struct{}

func (okConn) Do(_ context.Context, _ []Command, replies []Reply) error {
	for i := range replies {
		replies[i] = Reply{Str: "OK"}
	}
	return nil
}

func (okConn) Close() {}

// A listener that ended in the very moment in which the lane had named it to the node, after
// it was told so (hearNoMore): nothing would ring for who waits, who is rung with the next
// group.
func TestListenerEndsWhileItIsNamed(t *testing.T) {
	f := newFleet(&Options{Nodes: make([]Node, 5), rules: &soundRules, Clock: func() time.Duration { return time.Hour }})
	l := f.lanes[0]
	w := &waiter{quorum: f.quorum, bell: make(chan struct{}, 1)}
	f.bells.add(w, []string{"x"})
	l.session.hearer = 7
	l.tracks.Store(true)
	if err := l.track(t.Context(), okConn{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.bell:
	default:
		t.Error("who waits was not rung")
	}
	if l.tracks.Load() {
		t.Error("the node is taken for one that tells what was given back")
	}
}
