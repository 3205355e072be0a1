// Package client takes locks from redlockd, the lock daemon of this host.
//
//	c, err := client.Dial(ctx, "")
//	...
//	defer c.Close()
//	err = c.Do(ctx, "nightly-backup", func(ctx context.Context, l *client.Lease) error {
//		return backup(ctx, l.Fence())
//	})
//
// # Leases
//
// A granted lock is a [Lease]: it is ours until its [Lease.Deadline], which the
// daemon moves on again and again for as long as this process, or what it is held
// by, lives. Work
// under a lock belongs under [Lease.Context]: it ends, with a cause that
// matches [ErrLost], before others can hold the lock. That is so even where the
// daemon hangs, because each lease has a timer of its own here. The guard
// ([WithGuard], a fifth of the ttl unless given) is the time between that end
// and the deadline: what the work needs to stop in.
//
// What cannot be recalled is a write that is already under way. Where that
// matters, have the written resource refuse a [Lease.Fence] that is smaller
// than one that it has seen: UPDATE … SET fence = $fence WHERE fence <= $fence.
//
// A lock is held by one at a time, unless all who take it say otherwise: with
// [WithShared] by any number of readers, with [WithSlots] by so many. LockAll takes
// several locks at once, all or none.
//
// # Connections
//
// A [Client] is one connection, safe for any number of goroutines and thousands
// of leases. Each Lock stands for itself: two goroutines that lock one name
// exclude each other as two hosts do, and none counts up: what runs under a lock
// and needs it is given the [Lease]. For the same reason [ErrDeadlock] is for who
// speaks the protocol with an owner of its own: bound a Lock under another lock
// with [WithWait] or its context. A lease with HoldPID is found again, from any
// connection of the same user, with [Client.LeaseOf].
//
// A connection that ends (the daemon was restarted, and no service manager kept it)
// is made again, by itself, and nobody notices more than a pause: see [Dial] for how
// long calls wait. Leases stand meanwhile, as they did where a daemon hangs: until
// their own end, a guard before the last deadline that is known. The new connection takes them over, but for those
// with HoldTTL, by asking for them, which the daemon grants once a quorum confirms them.
// One that it does not know any more is lost at once. [Client.Reconnects] and
// [Client.Resumed] count. A request may come to be made twice: that is harmless. Where
// it would not be, with [Client.Force] and [Client.Admit], it is made once, and the error
// says that whether it was done is not known.
//
// What goes with a connection does not outlast the process's end: a lease is given
// back when that connection ends that it was resumed on last (see [Client.Inherit]).
//
// # Errors
//
// Every error matches one of the sentinels ([ErrHeld], [ErrNoQuorum], …) or an
// error of the context. What the daemon answered is an [*Error], with the
// holder where somebody else held the lock.
//
// Over Redis nodes that are new, or were restarted without their data, locks are
// given after a quarantine of max_ttl only: Lock waits for that as for a holder,
// TryLock is ErrNoQuorum, with the milliseconds left in the field "retry" of its
// [*Error]. [Client.Status] has it as well.
package client
