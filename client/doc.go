// Package client takes locks from redlockd, the lock daemon of this host.
//
//	c, err := client.Dial(ctx, "")
//	...
//	defer c.Close()
//	err = c.Do(ctx, "nightly-backup", func(ctx context.Context, l *client.Lease) error {
//		return backup(ctx, l.Fence())
//	})
//
// Programs import this package; the redlock command does. It imports the protocol (package ipc),
// the clock (redlock/boottime) and golang.org/x/sys/unix. It never talks to a Redis node: the
// daemon does.
//
// # Leases
//
// A granted lock is a [Lease]. It is held until its [Lease.Deadline]. The daemon moves the deadline
// forward while the holder lives: a connection, or a process (see [WithHold]). Do the work under a
// lock with [Lease.Context]: it ends, with a cause that matches [ErrLost], before another client
// can hold the lock. This works even if the daemon hangs, because each lease has a timer of its own
// in this process. The guard ([WithGuard], by default a fifth of the ttl) is the time between that
// end and the deadline. The work has this time to stop.
//
// A write that is already in progress cannot be recalled. If that matters, let the resource reject
// a [Lease.Fence] that is smaller than the largest one it has seen:
// UPDATE … SET fence = $fence WHERE fence <= $fence.
//
// A lock has one holder at a time, unless all its clients use [WithShared] (any number of readers)
// or [WithSlots] (a fixed number of holders). LockAll takes several locks at once, all or none.
//
// # Connections
//
// A [Client] is one connection, for any number of goroutines and thousands of leases. Each Lock is
// independent: two goroutines that lock the same name exclude each other like two hosts, and locks
// are not reentrant. Pass the [Lease] to the code that runs under the lock. A Lock under a lock of the
// same name waits for itself: it fails with [ErrDeadlock] if it gets the context of that lease (of
// [Client.Do] or [Lease.Context]), and waits silently if it does not. Bound a Lock under another lock
// with [WithWait] or its context. [Client.LeaseOf] finds a lease with HoldPID
// from any connection of the same user.
//
// When a connection ends (the daemon restarted, and no service manager kept the connection), the
// Client reconnects. Callers notice only a pause: see [Dial] for how long calls wait. Leases stay
// held meanwhile, until their guard before the last known deadline, as if the daemon hung. The new
// connection resumes all leases except those with HoldTTL: the daemon confirms each one once a
// quorum has. A lease that the daemon no longer knows is lost at once. [Client.Reconnects] and
// [Client.Resumed] count these events. A request may be sent twice, which is harmless.
// [Client.Force] and [Client.Admit] are the exception: they are sent once, and their error says if
// the outcome is unknown.
//
// A lease does not outlast its process, unless it has HoldTTL or HoldPID. The daemon releases it
// when the connection ends on which it was granted or last resumed (see [Client.Inherit]).
//
// # Errors
//
// Every error matches one of the sentinels ([ErrHeld], [ErrNoQuorum], …) or an error of the
// context. An answer of the daemon is an [*Error]; with HELD it describes the holder.
//
// New Redis nodes, and nodes that were restarted without their data, cannot vote until a quarantine
// of max_ttl has passed. Lock waits for its end as it waits for a holder. TryLock returns
// ErrNoQuorum, with the remaining milliseconds in the field "retry" of its [*Error].
// [Client.Status] reports them too.
package client
