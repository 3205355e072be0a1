package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// What happens while there is no connection. It is dialed for as long as a lease
// is to be resumed or a call waits; the calls that have waited long enough fail.

const (
	// leastPause and mostPause bound the time between two attempts to connect.
	leastPause = 10 * time.Millisecond
	mostPause  = time.Second
	// attemptTimeout bounds one attempt: a daemon that hangs answers none.
	attemptTimeout = 5 * time.Second
)

// reconnect returns the next connection, in use already, and nil after Close. It
// blocks while nothing needs one.
func (c *Client) reconnect() *link {
	for try := c.firstTry(); pause(c.life, try) && c.awaitNeed(&try); try++ {
		ctx, cancel := context.WithTimeout(c.life, attemptTimeout)
		l, err := c.newLink(ctx, c.cut.Load()+1)
		cancel()
		if err == nil {
			c.takeUp(l)
			return l
		}
		c.missed(err)
	}
	return nil
}

// firstTry is 0, for no pause, unless the last connection ended as soon as it was made.
func (c *Client) firstTry() int {
	if time.Since(c.madeAt) >= mostPause {
		c.short = 0
	} else {
		c.short++
	}
	return max(0, c.short-1)
}

// awaitNeed reports false once Client is closed. After a time without need, the
// next attempt is made at once.
func (c *Client) awaitNeed(try *int) bool {
	for !c.needsLink() {
		*try = 0
		select {
		case <-c.wake:
		case <-c.life.Done():
			return false
		}
	}
	return !c.closed()
}

func (c *Client) needsLink() bool {
	needed := false
	c.calls.flying(func(cl *call) { needed = needed || cl.worthRepeating() })
	if needed {
		return true
	}
	for _, l := range c.allLeases() {
		if l.toResume() {
			return true
		}
	}
	return false
}

// pause waits before an attempt that is not the first, with jitter: many clients
// lose their connections at once. It reports false if ctx is done.
func pause(ctx context.Context, try int) bool {
	if try == 0 {
		return ctx.Err() == nil
	}
	most := min(leastPause<<min(try-1, 10), mostPause)
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// missed is an attempt that failed. Who is refused by the daemon waits for no other one.
func (c *Client) missed(err error) {
	err = unavailable(err)
	c.mu.Lock()
	c.over = err
	c.mu.Unlock()
	if refused, ok := errors.AsType[*Error](err); ok && refused.Code != string(ipc.CodeShutdown) {
		c.failAll(err)
		return
	}
	c.sweep(true)
}

// wantLink has a connection made for a call, if there is to be one.
func (c *Client) wantLink(cl *call) error {
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	if ended && cl.sent.CompareAndSwap(0, unsendable) {
		return ErrClosed
	}
	select {
	case c.wake <- struct{}{}:
	default: // it has been woken
	}
	if cl.until.Load() > 0 {
		c.sweep(false) // sets the timer
	}
	return nil
}

// sweep fails the calls that have waited long enough for a connection, and sets a
// timer for the next. tried: an attempt has failed just now.
func (c *Client) sweep(tried bool) {
	c.mu.Lock()
	now, end := time.Now(), c.lostAt.Add(c.patience)
	over, before := c.over, c.hopeless
	c.hopeless = !now.Before(end)
	hopeless := c.hopeless
	c.mu.Unlock()
	if over == nil {
		return // there is a connection
	}
	next := end
	c.fail(over, func(cl *call) bool {
		until := cl.until.Load()
		switch {
		case until == untilAnswered, cl.goesOn():
			return false
		case until == untilPatience:
			return hopeless && (tried || !before)
		}
		at := later(end, c.born.Add(time.Duration(until)))
		if now.Before(at) && (!next.After(now) || at.Before(next)) {
			next = at
		}
		return !now.Before(at)
	})
	if next.After(now) {
		c.sweepAgain(next.Sub(now))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (c *Client) sweepAgain(in time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
	case c.sweeper == nil:
		c.sweeper = time.AfterFunc(in, func() { c.sweep(false) })
	default:
		c.sweeper.Reset(in)
	}
}

// failAll fails all calls but what has to be given back.
func (c *Client) failAll(why error) {
	c.fail(why, func(cl *call) bool { return cl.state.Load() == waiting && !cl.posted })
}

// dropLeft lets go of the calls that nobody waits for any more, and that are
// neither under way on the connection nor worth to be sent on another one.
func (c *Client) dropLeft() {
	c.fail(nil, func(cl *call) bool { return cl.state.Load() == left && !cl.worthRepeating() })
}

// fail ends the flight of calls that are not under way on a connection, and for
// which which says so: why is why.
func (c *Client) fail(why error, which func(cl *call) bool) {
	var toSettle []*call
	c.calls.flying(func(cl *call) {
		sent := cl.sent.Load()
		if sent > c.cut.Load() || !which(cl) || !cl.sent.CompareAndSwap(sent, unsendable) {
			return
		}
		cl.doubt = sent != 0
		if cl.bury(why) {
			toSettle = append(toSettle, cl)
		}
	})
	for _, cl := range toSettle {
		c.settle(cl)
	}
}

// bury ends the flight without an answer, and reports whether nobody waits for it,
// so that it is to be settled. Who is about to leave settles it.
func (cl *call) bury(why error) (settle bool) {
	cl.why = why
	for {
		switch {
		case cl.state.CompareAndSwap(waiting, dead):
			cl.ready <- struct{}{}
			return false
		case cl.state.CompareAndSwap(leaving, dead):
			return false
		case cl.state.CompareAndSwap(left, dead):
			return true
		}
	}
}
