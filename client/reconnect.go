package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Without a connection, the Client dials while a lease must be resumed or a call waits. A call
// fails when it has waited long enough.

const (
	// minPause and maxPause bound the time between two attempts to connect.
	minPause = 10 * time.Millisecond
	maxPause = time.Second
	// attemptTimeout bounds one attempt: a daemon that hangs does not answer.
	attemptTimeout = 5 * time.Second
)

// reconnect returns the next connection, already in use, or nil after Close. It blocks while no
// lease and no call needs one.
func (c *Client) reconnect() *link {
	for try := c.firstTry(); pause(c.ctx, try) && c.awaitNeedOfConn(&try); try++ {
		ctx, cancel := context.WithTimeout(c.ctx, attemptTimeout)
		l, err := c.newLink(ctx, c.lastEnded.Load()+1)
		cancel()
		if err == nil {
			c.useConn(l)
			return l
		}
		c.attemptFailed(err)
	}
	return nil
}

// firstTry returns 0, for no pause, unless the last connection ended soon after it was made.
func (c *Client) firstTry() int {
	if time.Since(c.connectedAt) >= maxPause {
		c.shortLived = 0
	} else {
		c.shortLived++
	}
	return max(0, c.shortLived-1)
}

// awaitNeedOfConn waits until a connection is needed, and returns false once the Client is closed.
// If it had to wait, the next attempt is made at once.
func (c *Client) awaitNeedOfConn(try *int) bool {
	for !c.needsConn() {
		*try = 0
		select {
		case <-c.needConn:
		case <-c.ctx.Done():
			return false
		}
	}
	return !c.closed()
}

func (c *Client) needsConn() bool {
	needed := false
	c.calls.eachInFlight(func(cl *call) { needed = needed || cl.shouldResend() })
	if needed {
		return true
	}
	for _, l := range c.allLeases() {
		if l.needsResume() {
			return true
		}
	}
	return false
}

// pause waits before every attempt but the first. The time is random, because many clients lose
// their connections at the same time. It returns false if ctx is done.
func pause(ctx context.Context, try int) bool {
	if try == 0 {
		return ctx.Err() == nil
	}
	most := min(minPause<<min(try-1, 10), maxPause)
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attemptFailed handles a failed attempt. If the daemon refuses this client, all calls fail:
// another attempt would not help.
func (c *Client) attemptFailed(err error) {
	err = asUnavailable(err)
	c.mu.Lock()
	c.connErr = err
	c.mu.Unlock()
	if refused, ok := errors.AsType[*Error](err); ok && refused.Code != string(ipc.CodeShutdown) {
		c.failAll(err)
		return
	}
	c.failExpired(true)
}

// requestConn asks run to connect for a call, unless the Client is closed.
func (c *Client) requestConn(cl *call) error {
	c.mu.Lock()
	ended := c.hasRunEnded
	c.mu.Unlock()
	if ended && cl.sentOn.CompareAndSwap(0, sentNever) {
		return ErrClosed
	}
	select {
	case c.needConn <- struct{}{}:
	default: // it is already awake
	}
	if cl.waitUntil.Load() > 0 {
		c.failExpired(false) // sets the timer
	}
	return nil
}

// failExpired fails the calls that have waited long enough for a connection, and sets a timer for
// the next one. tried says that an attempt has just failed.
func (c *Client) failExpired(tried bool) {
	c.mu.Lock()
	now, end := time.Now(), c.lostAt.Add(c.patience)
	cause, before := c.connErr, c.isPatienceOver
	c.isPatienceOver = !now.Before(end)
	hopeless := c.isPatienceOver
	c.mu.Unlock()
	if cause == nil {
		return // there is a connection
	}
	next := end
	c.failCalls(cause, func(cl *call) bool {
		until := cl.waitUntil.Load()
		switch {
		case until == waitForever, cl.outlivesCaller():
			return false
		case until == waitPatience:
			return hopeless && (tried || !before)
		}
		at := laterOf(end, c.createdAt.Add(time.Duration(until)))
		if now.Before(at) && (!next.After(now) || at.Before(next)) {
			next = at
		}
		return !now.Before(at)
	})
	if next.After(now) {
		c.scheduleExpiry(next.Sub(now))
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (c *Client) scheduleExpiry(in time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.hasRunEnded:
	case c.expiryTimer == nil:
		c.expiryTimer = time.AfterFunc(in, func() { c.failExpired(false) }) // run stops it; failExpired does not block
	default:
		c.expiryTimer.Reset(in)
	}
}

// failAll fails all calls except those that release something.
func (c *Client) failAll(why error) {
	c.failCalls(why, func(cl *call) bool { return cl.state.Load() == stateWaiting && !cl.background })
}

// dropAbandoned drops the calls that no caller waits for, unless they are in progress on the
// connection or worth sending on another one.
func (c *Client) dropAbandoned() {
	c.failCalls(nil, func(cl *call) bool { return cl.state.Load() == stateAbandoned && !cl.shouldResend() })
}

// failCalls ends the flight of calls with the error why. It selects the calls that are not in
// progress on a connection and for which which returns true.
func (c *Client) failCalls(why error, which func(cl *call) bool) {
	var toSettle []*call
	c.calls.eachInFlight(func(cl *call) {
		sent := cl.sentOn.Load()
		if sent > c.lastEnded.Load() || !which(cl) || !cl.sentOn.CompareAndSwap(sent, sentNever) {
			return
		}
		cl.maybeDone = sent != 0
		if cl.failWith(why) {
			toSettle = append(toSettle, cl)
		}
	})
	for _, cl := range toSettle {
		c.settle(cl)
	}
}

// failWith ends the flight without an answer. It reports whether the call must be settled because
// no caller waits for it. A caller that is abandoning the call settles it itself.
func (cl *call) failWith(why error) (settle bool) {
	cl.failure = why
	for {
		switch {
		case cl.state.CompareAndSwap(stateWaiting, stateFailed):
			cl.ready <- struct{}{}
			return false
		case cl.state.CompareAndSwap(stateAbandoning, stateFailed):
			return false
		case cl.state.CompareAndSwap(stateAbandoned, stateFailed):
			return true
		}
	}
}
