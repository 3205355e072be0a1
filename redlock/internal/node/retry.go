package node

import (
	"errors"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// retry sets the pace of the attempts to connect, of a lane or of its listener.
//
// If the network does not connect, an attempt costs the node nothing, and the next one follows soon.
// If it does, the node works for the attempt: a TLS handshake with an RSA-4096 key takes 6 ms of its
// processor. It does that work even if we have left meanwhile. If all hosts of a large fleet left
// soon and came back soon, the node would work only for those that have left, and nobody would ever
// be connected. So after each failure of an attempt that has reached the node, the next one
// gets more time, and comes later, at a random instant.
type retry struct {
	first     time.Duration // how long the first attempt may take: connecting, logging in, and finding out whether the node may vote
	unreached time.Duration // the last pause after an attempt for which the network did not connect
	failures  int           // attempts since the last success that reached the node, and failed
}

const (
	firstBackoff = 10 * time.Millisecond  // the longest pause after the first attempt that did not reach the node
	maxUnreached = 250 * time.Millisecond // the longest pause after later ones

	firstPause = 250 * time.Millisecond // the longest pause after the first failure at the node
	maxPause   = 5 * time.Second        // the longest pause after later ones

	maxLogin = 20 * time.Second // how long later attempts may take
)

// loginLimit returns how long the next attempt may take: four times as long after each failure, because a
// limit that is too short costs the node a round of handshakes for nothing.
func (r *retry) loginLimit() time.Duration { return doubled(r.first, 2*r.failures, maxLogin) }

// failed records an attempt that failed, and returns the pause before the next one.
func (r *retry) failed(err error, jitter func(n time.Duration) time.Duration) time.Duration {
	if errors.As(err, new(*atNode)) {
		r.failures++
		return jitter(doubled(firstPause, r.failures-1, maxPause) + 1)
	}
	r.unreached = min(max(2*r.unreached, firstBackoff), maxUnreached)
	return r.unreached/2 + jitter(r.unreached/2+1)
}

// broke records that a connection broke, and returns the pause before the next attempt. The first
// connection that breaks soon is replaced at once.
func (r *retry) broke(lasted time.Duration, jitter func(n time.Duration) time.Duration) time.Duration {
	r.unreached = 0
	if lasted >= heartbeat {
		r.failures = 0
		return 0
	}
	if r.failures++; r.failures == 1 {
		return 0
	}
	return jitter(doubled(firstPause, r.failures-2, maxPause) + 1)
}

// doubled returns d, doubled n times, but at most limit.
func doubled(d time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}

// atNode is the failure of an attempt that has reached the node.
type atNode struct{ error }

func (e *atNode) Unwrap() error { return e.error }

// isAtNode reports whether a failure of Dial or Listen is one after the network had connected.
func isAtNode(err error) bool {
	login := new(redis.LoginError)
	return errors.As(err, &login) && login.Connect > 0
}
