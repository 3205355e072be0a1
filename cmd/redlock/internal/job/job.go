package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

// Job is a command to run under a lock, or a lock to take for another process.
type Job struct {
	Name  string   // as on the command line
	Names []string // the names in it
	Path  string   // path of the command
	Argv  []string

	Nonblock bool
	Wait     time.Duration // bound of the wait for the lock, if Bounded
	Bounded  bool
	OnLost   string        // script for /bin/sh -c, run if the lock is lost while the command runs; or empty
	Conflict int           // exit code if another process holds the lock
	TTL      time.Duration // 0: the daemon's
	Grace    time.Duration // 0: the daemon's guard
	Options  []client.Option
	Holder   int  // the process that will hold the lock
	Shared   bool // as a reader
	Slots    int  // of a semaphore; 0: none
	Verbose  bool

	// WithParent ends this process like SIGTERM when its parent ends.
	WithParent bool
	// WaitForSelf waits for the lock even if this process runs under it.
	WaitForSelf bool

	// ExplainOption rewords an error about an option of the lock. It may be nil.
	ExplainOption func(error) error

	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// ShortGuard returns an option for very short leases. The default guard, a fifth of the lease time,
// would leave the command too little time between SIGTERM and SIGKILL. The daemon accepts a guard
// of at most half the ttl.
func ShortGuard(ttl time.Duration) []client.Option {
	guard := min(2*killMargin(ttl), ttl/2)
	if guard <= ttl/5 {
		return nil
	}
	return []client.Option{client.WithGuard(guard)}
}

// CheckGrace rejects a --grace with which SIGTERM would come after SIGKILL.
func (j *Job) CheckGrace(ttl time.Duration) error {
	if j.Grace == 0 || j.Grace > killMargin(ttl) {
		return nil
	}
	return exit.Usagef("--grace %v: the command gets SIGKILL %v before the deadline, and needs SIGTERM before that", j.Grace, killMargin(ttl).Round(time.Millisecond))
}

// Run takes the lock, runs the command, and releases the lock. Its error has the exit code of the
// process: the command's code, or the code of a failure.
func (j *Job) Run() error {
	signals := catchSignals() // never undone: a late signal must not change the exit code
	c, lease, err := j.acquire(signals)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Inherit(); err != nil {
		j.release(lease)
		return exit.Errorf(exit.Internal, "%w", err)
	}
	before := c.Reconnects()
	ended, err := j.runUnder(lease, signals, sameDaemon(c))
	j.reportReconnects("while the command ran", c.Reconnects()-before)
	var lost error
	if ended == nil || ended.lost == nil {
		lost = j.release(lease)
	}
	if lost != nil {
		j.onLost(lease)(lost)
	}
	switch {
	case err != nil:
		return err
	case lost != nil:
		return exit.Errorf(exit.Lost, "%w; the command (pid %d) had ended by itself, and may have run without the lock", socket.ExplainTimeout(lost), ended.pid)
	}
	return ended.outcome()
}

// Hold takes the lock for another process, and releases it if accept fails.
func (j *Job) Hold(accept func(*client.Lease) error) error {
	signals := catchSignals() // never undone: a late signal must not change the exit code
	c, lease, err := j.acquire(signals)
	if err != nil {
		return err
	}
	defer c.Close()
	if err = accept(lease); err != nil {
		j.release(lease)
	}
	return err
}

// sameDaemon returns a function that reports whether the daemon is still the same process.
func sameDaemon(c *client.Client) func() bool {
	before := c.Reconnects() + c.Restarts()
	return func() bool { return c.Reconnects()+c.Restarts() == before }
}

// acquire waits for the lock. It must run on the main goroutine, see endWithParent. A signal ends the wait and the place in the wait queue, and is
// returned as a failure.
func (j *Job) acquire(signals *signals) (*client.Client, *client.Lease, error) {
	if j.WithParent {
		if err := endWithParent(); err != nil {
			return nil, nil, err
		}
	}
	ctx, calm := signals.interrupt()
	var c *client.Client
	var err error
	if !j.Bounded {
		c, err = socket.Connect(ctx)
	} else { // to wait for a daemon that is not there yet is part of the wait for the lock
		start := time.Now()
		c, err = socket.ConnectWithin(ctx, j.Wait, j.Stderr)
		j.Wait = max(0, j.Wait-time.Since(start).Truncate(10*time.Millisecond)) // a connection that is made at once does not shorten the wait
	}
	var lease *client.Lease
	if err == nil {
		lease, err = j.lock(ctx, c)
	}
	if sig := calm(); sig != 0 {
		j.abandon(c, lease)
		return nil, nil, exit.WithCode(exit.SignalCode(sig))
	}
	if err == nil {
		err = j.CheckGrace(leaseTime(j.TTL, lease))
	}
	if err != nil {
		j.abandon(c, lease)
		return nil, nil, err
	}
	return c, lease, nil
}

// abandon releases the lease and closes the connection. Both may be nil.
func (j *Job) abandon(c *client.Client, lease *client.Lease) {
	if lease != nil {
		j.release(lease)
	}
	if c != nil {
		c.Close()
	}
}

// lock returns the lease, or a failure.
func (j *Job) lock(ctx context.Context, c *client.Client) (*client.Lease, error) {
	if err := j.checkNested(ctx, c); err != nil {
		return nil, err
	}
	start := time.Now()
	lease, err := j.requestLock(ctx, c)
	if err != nil {
		return nil, j.lockFailure(err)
	}
	j.reportReconnects("while it waited", c.Reconnects())
	j.logf("lock %q: obtained after %v, fence %d", j.Name, time.Since(start).Round(time.Millisecond), lease.Fence())
	return lease, nil
}

// requestLock requests the lock. It bounds the wait for the answer, unless the answer may wait for
// a holder.
func (j *Job) requestLock(ctx context.Context, c *client.Client) (*client.Lease, error) {
	defer j.explainWait(ctx, c)()
	options := append(slices.Clip(j.Options), client.WithLateCheck(lateCheck))
	if !j.Nonblock && !j.Bounded {
		return c.LockAll(ctx, j.Names, options...)
	}
	ctx, cancel := context.WithTimeout(ctx, min(j.Wait, math.MaxInt64-socket.AnswerTimeout)+socket.AnswerTimeout)
	defer cancel()
	if j.Nonblock {
		return c.TryLockAll(ctx, j.Names, options...)
	}
	return c.LockAll(ctx, j.Names, append(options, client.WithWait(j.Wait))...)
}

// lockFailure returns the failure to get the lock. With -n it has no text if the lock is held,
// because the exit code tells that.
func (j *Job) lockFailure(err error) error {
	err = socket.ExplainTimeout(lockname.AsTyped(err, "lock", j.Name))
	if j.ExplainOption != nil {
		err = j.ExplainOption(err)
	}
	f := exit.FromClient(err)
	if f.Code == exit.Lost { // Lost is for a command that has run
		return exit.Errorf(exit.Unavailable, "%w; that was before the command started, so it did not run", f.Err)
	}
	if f.Code != exit.Conflict {
		return f
	}
	f.Code = j.Conflict
	if j.Nonblock && !j.Verbose {
		f.Err = nil
	}
	return f
}

// release unlocks within socket.AnswerTimeout, after the command has ended. It returns an error
// only if the lease was lost before. It prints other errors, because they do not change the exit
// code.
func (j *Job) release(lease *client.Lease) (lost error) {
	ctx, cancel := context.WithTimeout(context.Background(), socket.AnswerTimeout)
	defer cancel()
	err := lease.Unlock(ctx)
	switch {
	case releasedByCommand(err):
		j.logf("lock %q: the command had released it", j.Name)
	case errors.Is(err, client.ErrLost):
		return err
	case err != nil:
		fmt.Fprintf(j.Stderr, "redlock: %v (the command has ended; other processes get the lock within %v)\n", socket.ExplainTimeout(err),
			max(0, time.Until(lease.Deadline())).Round(time.Millisecond))
	default:
		j.logf("lock %q: released", j.Name)
	}
	return nil
}

// reportReconnects prints with --verbose that the client has reconnected to the daemon.
func (j *Job) reportReconnects(when string, times uint64) {
	if times > 0 {
		often := "once"
		if times > 1 {
			often = fmt.Sprintf("%d times", times)
		}
		j.logf("lock %q: %s, redlock lost its connection to redlockd %s, and connected again", j.Name, when, often)
	}
}

// logf prints with --verbose. If the write could block, it prints nothing: the lock is held, and
// clients wait for it.
func (j *Job) logf(format string, args ...any) {
	if j.Verbose && term.Writable(j.Stderr) {
		fmt.Fprintf(j.Stderr, "redlock: "+format+"\n", args...)
	}
}

// leaseTime returns the requested ttl. If the daemon chose the ttl, leaseTime estimates it: the
// validity of the new lease, plus a twentieth for the drift allowance and the time of the answer.
func leaseTime(asked time.Duration, lease *client.Lease) time.Duration {
	if asked != 0 {
		return asked
	}
	return lease.Validity() / 20 * 21
}

// The end of the time before the deadline is reserved for SIGKILL to take effect.
const (
	killShare     = 20 // of the lease time: a fifth: a twentieth
	minKillMargin = 50 * time.Millisecond

	guardShare = 5 // of the lease time: a fifth
)

// killMargin returns how long before the deadline the command gets SIGKILL.
func killMargin(ttl time.Duration) time.Duration { return max(ttl/killShare, minKillMargin) }
