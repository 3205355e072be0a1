package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	// There is no pause, unless the last connection ended soon after it was made.
	if c.shortLived++; time.Since(c.connectedAt) >= maxPause {
		c.shortLived = 0
	}
	for try := max(0, c.shortLived-1); pause(c.ctx, try) && c.awaitNeedOfConn(&try); try++ {
		ctx, cancel := context.WithTimeout(c.ctx, attemptTimeout)
		l, err := c.newLink(ctx)
		cancel()
		if err == nil {
			err = c.useConn(l)
		}
		if err == nil {
			return l
		}
		c.attemptFailed(err)
	}
	return nil
}

// useConn makes a new connection the current one, and sends on it what is in flight.
func (c *Client) useConn(l *link) (err error) {
	c.connectedAt = time.Now()
	c.reconnects.Add(1)
	c.mu.Lock()
	if err = c.ctx.Err(); err == nil && c.inherit {
		err = inheritable(l.conn)
	}
	if err != nil {
		c.mu.Unlock()
		l.end()
		l.hangUp()
		return fmt.Errorf("dial %s: %w", c.path, err)
	}
	c.connErr, c.link = nil, l
	c.resumeAllLocked(l)
	for cl := range c.calls.inFlight() {
		if cl.shouldResend() && !cl.sent && !cl.awaitsResume() {
			cl.lines = cl.lines[:0] // the whole answer will come again
			c.resendLocked(cl, cl.tag)
		}
	}
	c.unlock()
	c.dropAbandoned()
	return nil
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
	c.mu.Lock()
	defer c.mu.Unlock()
	for cl := range c.calls.inFlight() {
		if cl.shouldResend() {
			return true
		}
	}
	for _, l := range c.leases {
		if l.detached {
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

// dialErrors are the errors of an attempt to connect that say more than ErrUnavailable.
var dialErrors = []error{ErrUnavailable, ErrShutdown, ErrDenied, ErrLimit, ErrInvalid, ErrInternal, ErrClosed}

// attemptFailed handles a failed attempt. If the daemon refuses this client, all calls fail:
// another attempt would not help.
func (c *Client) attemptFailed(err error) {
	if !slices.ContainsFunc(dialErrors, func(known error) bool { return errors.Is(err, known) }) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c.mu.Lock()
	c.connErr = err
	c.mu.Unlock()
	if refused, ok := errors.AsType[*Error](err); ok && refused.Code != string(ipc.CodeShutdown) {
		c.failAll(err)
		return
	}
	c.failExpired(true)
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
		switch {
		case cl.waitUntil == waitForever, cl.outlivesCaller():
			return false
		case cl.waitUntil == waitPatience:
			return hopeless && (tried || !before)
		}
		at := c.createdAt.Add(time.Duration(cl.waitUntil))
		if at.Before(end) {
			at = end
		}
		if now.Before(at) && (!next.After(now) || at.Before(next)) {
			next = at
		}
		return !now.Before(at)
	})
	if next.After(now) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.scheduleExpiryLocked(next.Sub(now))
	}
}

// scheduleExpiryLocked sets the timer that runs failExpired. The caller holds mu.
func (c *Client) scheduleExpiryLocked(in time.Duration) {
	switch {
	case c.hasRunEnded:
	case c.expiryTimer == nil:
		c.expiryTimer = time.AfterFunc(in, func() { c.failExpired(false) }) // run stops it; failExpired does not block
	default:
		c.expiryTimer.Reset(in)
	}
}

// failAll fails all calls except those that have no caller.
func (c *Client) failAll(why error) {
	c.failCalls(why, func(cl *call) bool { return cl.state == stateWaiting })
}

// dropAbandoned drops the calls that no caller waits for, unless they are in progress on the
// connection or worth sending on another one.
func (c *Client) dropAbandoned() {
	c.failCalls(nil, func(cl *call) bool { return cl.state == stateAbandoned && !cl.shouldResend() })
}

// failCalls ends the flight of calls with the error why. It selects the calls that are not in
// progress on a connection and for which which, called with mu held, returns true.
func (c *Client) failCalls(why error, which func(cl *call) bool) {
	var abandoned []*call
	c.mu.Lock()
	for cl := range c.calls.inFlight() {
		if !cl.sent && which(cl) {
			cl.failure = why
			if cl.endLocked(stateFailed) {
				abandoned = append(abandoned, cl)
			}
		}
	}
	c.mu.Unlock()
	for _, cl := range abandoned {
		c.settle(cl)
	}
}
