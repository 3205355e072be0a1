package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redlockd/redlockd/client"
)

// run takes the lock, runs the command, and gives the lock back. It returns what
// the process ends with: the command's exit code, or a failure.
func (j *job) run() error {
	signals := catchSignals() // to the end: what comes too late changes no exit code
	c, lease, err := j.obtain(signals)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Inherit(); err != nil {
		j.giveBack(lease)
		return &failure{exitInternal, err}
	}
	before := c.Reconnects()
	ended, err := j.runUnder(lease, signals, sameDaemon(c))
	j.sayReconnects("while the command ran", c.Reconnects()-before)
	var lost error
	if ended == nil || ended.lost == nil {
		lost = j.giveBack(lease)
	}
	switch {
	case err != nil:
		return err
	case lost != nil:
		return fail(exitLost, "%w; the command (pid %d) had ended by itself, and may have run without the lock", silence(lost), ended.pid)
	}
	return ended.outcome()
}

// sameDaemon tells whether the daemon is still the process that it was.
func sameDaemon(c *client.Client) func() bool {
	before := c.Reconnects() + c.Restarts()
	return func() bool { return c.Reconnects()+c.Restarts() == before }
}

// obtain waits for the lock, until a signal comes: that is a failure then, and
// the place in the queue is given up.
func (j *job) obtain(signals *signals) (*client.Client, *client.Lease, error) {
	ctx, calm := signals.interrupt()
	c, err := connect(ctx)
	var lease *client.Lease
	if err == nil {
		lease, err = j.lock(ctx, c)
	}
	if sig := calm(); sig != 0 {
		j.leave(c, lease)
		return nil, nil, exit(signalCode(sig))
	}
	if err == nil {
		err = j.checkGrace(leaseTime(j.ttl, lease))
	}
	if err != nil {
		j.leave(c, lease)
		return nil, nil, err
	}
	return c, lease, nil
}

// leave ends what obtain had come to. c and lease may be nil.
func (j *job) leave(c *client.Client, lease *client.Lease) {
	if lease != nil {
		j.giveBack(lease)
	}
	if c != nil {
		c.Close()
	}
}

// lock returns the lease, or a failure.
func (j *job) lock(ctx context.Context, c *client.Client) (*client.Lease, error) {
	start := time.Now()
	lease, err := j.request(ctx, c)
	if err != nil {
		return nil, j.notObtained(err)
	}
	j.sayReconnects("while it was waited for", c.Reconnects())
	j.say("lock %q: obtained after %v, fence %d", j.name, time.Since(start).Round(time.Millisecond), lease.Fence())
	return lease, nil
}

// request asks for the lock, and bounds what the answer may take where the daemon
// is to give one in time.
func (j *job) request(ctx context.Context, c *client.Client) (*client.Lease, error) {
	defer j.explainWait(ctx, c)()
	if !j.nonblock && !j.bounded {
		return c.LockAll(ctx, j.names, j.options...)
	}
	ctx, cancel := context.WithTimeout(ctx, min(j.wait, math.MaxInt64-answerTimeout)+answerTimeout)
	defer cancel()
	if j.nonblock {
		return c.TryLockAll(ctx, j.names, j.options...)
	}
	return c.LockAll(ctx, j.names, append(j.options, client.WithWait(j.wait))...)
}

// notObtained is the failure to get the lock. With -n a holder is no news: that
// is what was asked for.
func (j *job) notObtained(err error) error {
	f := daemonFailure(inFlags(silence(asTyped(err, "lock", j.name))))
	if f.code == exitLost { // that is for a command that was begun
		return fail(exitUnavailable, "%w; that was before the command was begun, which did not run", f.err)
	}
	if f.code != exitConflict {
		return f
	}
	f.code = j.conflict
	if j.nonblock && !j.verbose {
		f.err = nil
	}
	return f
}

// giveBack unlocks, within answerTimeout. The command has ended: where that fails
// it is said, and the command's exit code stays; but for a lease that was lost before,
// which it returns.
func (j *job) giveBack(lease *client.Lease) (lost error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	err := lease.Unlock(ctx)
	switch {
	case givenBack(err):
		j.say("lock %q: the command had given it back", j.name)
	case errors.Is(err, client.ErrLost):
		return err
	case err != nil:
		fmt.Fprintf(j.stderr, "redlock: %v (the command has ended; others get the lock in %s at the latest)\n", silence(err), left(lease))
	default:
		j.say("lock %q: given back", j.name)
	}
	return nil
}

// sayReconnects is for a daemon that was restarted, or hung up, in between.
func (j *job) sayReconnects(when string, times uint64) {
	if times > 0 {
		j.say("lock %q: the connection to redlockd was lost %s, and made again (times: %d)", j.name, when, times)
	}
}

// left is until when a lease would hold others off.
func left(lease *client.Lease) string {
	return max(0, time.Until(lease.Deadline())).Round(time.Millisecond).String()
}

// say is for --verbose. Where nobody reads stderr it says nothing: the lock is held, and
// others wait for it.
func (j *job) say(format string, args ...any) {
	if j.verbose && writable(j.stderr) {
		fmt.Fprintf(j.stderr, "redlock: "+format+"\n", args...)
	}
}

// leaseTime is the ttl that was asked for, or, where that was left to the
// daemon, what a fresh lease shows of it: its validity, with a twentieth for what
// the drift allowance and the way here have taken.
func leaseTime(asked time.Duration, lease *client.Lease) time.Duration {
	if asked != 0 {
		return asked
	}
	return lease.Validity() / 20 * 21
}
