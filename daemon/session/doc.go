// Package session is one client connection: it answers the verbs of the protocol, and owns the
// leases that the client holds, from the grant until the release or the loss.
//
// A Host is what all connections of the daemon share: the wait queue, the table of leases, the
// processes that hold leases, the limits, the journal. Package daemon makes the Host, and
// ipc/server calls a session with each request (Begin), each end of input and each end.
//
// A LOCK is read downward: session.Begin and session.lock (handle.go), session.start (lock.go),
// locktable.Queue.Join, lockRequest.Run (lock.go), then redlock.Quorum.Acquire. The lease is a
// heldLease (heldlease.go), which has a locktable.Lease. An UNLOCK is read downward in unlock.go;
// leaseend.go has the other ends of a lease, with its client or process. Each event of a lease goes to
// locktable.Table, and Host.perform does its effects (leaseevent.go, with what follows a loss). The
// other verbs are in files of their names; nodetext.go has what STATUS, NODES and the log say about
// nodes. restore.go continues what an earlier process left, as locktable.Restart decides.
//
// It never listens, reads no config file, and talks to the nodes only through redlock.
package session
