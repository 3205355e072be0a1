package session

import (
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// session is the daemon's state of one connection.
type session struct {
	host   *Host
	conn   *server.Conn
	pid    int
	user   string
	number uint64        // number in the journal
	opened time.Duration // BootTime
	rate   access.Rate
	client locktable.Client // its leases and LOCKs; guarded by the Host's mu

	pidNamespace pidNamespace // whether the client is in another PID namespace

	requester access.Requester // the client, for access rules
	uid       int              // requester.UID

	listing    chan struct{} // holds a value while a long answer to this user is being written
	inputEnded chan struct{} // closed when the client will send nothing more

	stored  state.ConnEntry            // whether the service manager has the connection, so that it outlasts the daemon
	replays map[uint64]replayedRequest // requests from before a restart, by number; written before any of them begins

	processRequests atomic.Int32 // LOCKs under way with hold=pid
}

// requesterOf returns the client as the access rules see it.
func requesterOf(peer server.Peer) access.Requester {
	if !peer.Known {
		return access.Requester{UID: access.UnknownUser}
	}
	return access.Requester{UID: int(peer.UID), Groups: append(peer.Groups, peer.GID)}
}

// view returns what the client may see of other users' locks, by the present rules.
func (s *session) view() access.View {
	return access.View{Rules: s.host.access.Load(), Requester: s.requester}
}

// InputEnded ends waiting LOCKs, because no client is left to hold the locks. A LOCK whose first
// attempt is under way is answered.
func (s *session) InputEnded(bool) { close(s.inputEnded) }

// Close ends the leases of the connection (see clientGone). If the daemon stops, it keeps them,
// because the client may still work.
func (s *session) Close() {
	cut := s.conn.WasCut()
	if !cut { // the next daemon must know that the client has ended
		s.host.connectionEnded(s, s.conn.HungUp())
	}
	s.host.mu.Lock()
	own := s.host.table.Disconnect(&s.client)
	s.host.mu.Unlock()
	for _, l := range own {
		s.host.clientGone(leaseOf(l), &s.client, cut)
	}
	if cut {
		s.host.connectionEnded(s, false)
	}
	s.host.Limits.Disconnect(s.uid, s.conn)
}

// allLeases returns the leases whose loss this connection reports.
func (s *session) allLeases() (all []*heldLease) {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	for l := range s.client.All() {
		all = append(all, leaseOf(l))
	}
	for l := range s.client.Reports() {
		all = append(all, leaseOf(l))
	}
	return all
}

// sessionOf returns the session behind a client, or nil.
func sessionOf(c *locktable.Client) *session {
	if c == nil {
		return nil
	}
	return c.Of.(*session)
}

// connectionEnded records the end of a connection. It records nothing if the daemon stops, because a
// client whose connection the daemon ends may still work.
func (d *Host) connectionEnded(s *session, byClient bool) {
	if d.Stopping.Load() && !(byClient && d.replacing.Load()) {
		return
	}
	d.Store.Remove(&s.stored)
	d.Journal.ConnClosed(s.number)
}

// resumableFor returns how long all leases of this connection can be resumed if no daemon extends
// them: the shortest validity. It returns 0 if there are none, or if the next daemon will not know
// them.
func (s *session) resumableFor() time.Duration {
	var shortest time.Duration
	if !s.host.Journal.OutlastsProcess() {
		return shortest
	}
	for _, h := range s.allLeases() {
		if left := h.lease.Validity(); h.lease.Err() == nil && (shortest == 0 || left < shortest) {
			shortest = left
		}
	}
	return shortest
}

// HoldsLeases reports whether the connection holds leases or waits for some. The connection store
// prefers such connections.
func (s *session) HoldsLeases() bool {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	return s.client.HoldsLeases() || s.processRequests.Load() > 0
}

// SyscallConn returns the socket, for the store of connections.
func (s *session) SyscallConn() (syscall.RawConn, error) { return s.conn.SyscallConn() }

// workFunc is a request under way.
type workFunc func()

// Run calls f.
func (f workFunc) Run() { f() }

// boundedWork is a request under way that asks the nodes and takes nothing. Their number is limited
// for each user: while nodes are slow, one client could start millions. LOCK has its own limit, and
// there is one UNLOCK for each lease.
type boundedWork struct {
	s *session
	server.Work
}

// bounded begins a request unless its user has too many under way.
func (s *session) bounded(call *server.Call, begin func(*server.Call) server.Work) server.Work {
	if err := s.host.Limits.BeginQuery(s.uid); err != nil {
		return s.refuse(call, err)
	}
	work := begin(call)
	if work == nil {
		s.host.Limits.EndQuery(s.uid)
		return nil
	}
	return &boundedWork{s, work}
}

// Run runs the request. It ends the count even if the request panics.
func (q *boundedWork) Run() {
	defer q.s.host.Limits.EndQuery(q.s.uid)
	q.Work.Run()
}

var _ server.Journal = (*session)(nil)

// RecordRequest records a request that takes time, before it begins. A request that starts again
// after a restart is recorded already.
func (s *session) RecordRequest(call *server.Call, line []byte, rest *server.UnreadChange) {
	if !s.host.Journal.IsOpen() {
		return
	}
	call.Number = s.host.Journal.NextNumber()
	r := &state.Request{Number: call.Number, Conn: s.number, Since: s.host.Clock(), Line: line}
	if rest == nil {
		s.host.Journal.RequestBegun(r, nil)
		return
	}
	unread := unreadChange(rest)
	s.host.Journal.RequestBegun(r, &unread)
}

// RecordAnswer records that the client is about to get the answer. A later daemon does not start
// the request again, even if the answer does not arrive.
func (s *session) RecordAnswer(call *server.Call) { s.host.Journal.Answered(call.Number) }

// RecordUnread records requests that were read and have not begun.
func (s *session) RecordUnread(rest server.UnreadChange) {
	s.host.Journal.Unread(s.number, unreadChange(&rest))
}

func unreadChange(rest *server.UnreadChange) state.UnreadChange {
	return state.UnreadChange{Drop: rest.Drop, Keep: rest.Keep, Add: rest.Add, Skipping: rest.Skipping}
}

// replayedRequest is a request that an earlier process did not answer, and that starts again.
type replayedRequest struct {
	since    time.Duration // BootTime of its arrival
	released []string      // the names that an UNLOCK released in the earlier process
	settled  bool          // no node needs that release any more, because the lock was passed on
}

// since returns when a request arrived, perhaps at an earlier process.
func (s *session) since(call *server.Call) time.Duration {
	if before, ok := s.replays[call.Number]; ok && call.Replayed {
		return before.since
	}
	return s.host.Clock()
}

// refuse answers a request with an error, before or after it has run.
func (s *session) refuse(call *server.Call, err error) server.Work {
	if codeOf(err) == ipc.CodeInternal {
		s.host.Log.Error("request failed for no known reason", "verb", call.Verb, "error", err)
	}
	call.Reply(responseOf(call, err))
	return nil
}
