package node

import (
	"errors"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// Attempts that did not reach the node follow soon, however often they fail. Failures at the node double
// the pause before the next attempt, and give it four times as long, up to bounds. A connection that lasted ends that.
func TestRetry(t *testing.T) {
	longest := func(n time.Duration) time.Duration { return n - 1 }
	refused, atNode := errors.New("refused"), &atNode{errors.New("it ended the connection")}
	const firstLogin = 500 * time.Millisecond
	r := retry{first: firstLogin}
	for i := range 20 {
		if got := r.failed(refused, longest); got > maxUnreached || i > 5 && got != maxUnreached {
			t.Errorf("pause %d after a failure to reach the node is %v, want %v at most", i, got, maxUnreached)
		}
	}
	if got := r.loginLimit(); got != firstLogin {
		t.Errorf("the node was never reached: an attempt gets %v, want %v", got, firstLogin)
	}
	for i, want := range []struct{ pause, limit time.Duration }{
		{250 * time.Millisecond, 2 * time.Second}, {500 * time.Millisecond, 8 * time.Second}, {time.Second, 20 * time.Second}, {2 * time.Second, 20 * time.Second},
		{4 * time.Second, 20 * time.Second}, {5 * time.Second, 20 * time.Second}, {5 * time.Second, 20 * time.Second},
	} {
		if got := r.failed(atNode, longest); got != want.pause || r.loginLimit() != want.limit {
			t.Errorf("after failure %d at the node: a pause of %v, then %v for an attempt, want %v and %v", i+1, got, r.loginLimit(), want.pause, want.limit)
		}
	}
	if got := r.broke(heartbeat, longest); got != 0 || r.loginLimit() != firstLogin {
		t.Errorf("after a connection that lasted: a pause of %v, then %v for an attempt, want 0 and %v", got, r.loginLimit(), firstLogin)
	}
	for i, want := range []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		if got := r.broke(heartbeat-1, longest); got != want {
			t.Errorf("after %d connections that broke soon: a pause of %v, want %v", i+1, got, want)
		}
	}
}

// Only a failure after the network has connected is one at the node.
func TestIsAtNode(t *testing.T) {
	for want, err := range map[bool]error{
		true:  &redis.LoginError{Connect: 1, Err: errors.New("WRONGPASS")},
		false: &redis.LoginError{Err: errors.New("connection refused")},
	} {
		if got := isAtNode(err); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
}
