// Package session is one client connection: it answers the verbs of the protocol, and owns the
// leases that the client holds, from the grant until the release or the loss.
//
// A Host is what all connections of the daemon share: the wait queue, the leases by id, the
// processes that hold leases, the limits, the journal. Package daemon makes the Host, and
// ipc/server calls a session with each request (Begin), each end of input and each end.
//
// A LOCK is read downward: session.Begin and session.lock (handle.go), session.start and
// lockRequest.Run (lock.go), waitqueue.Join, then redlock.Quorum.Acquire. A lease ends in
// leaseend.go. Restore goes on with what an earlier process left.
//
// It never listens, reads no config file, and talks to the nodes only through redlock.
package session
