package daemon

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// session is what the daemon knows of one connection.
type session struct {
	d      *daemon
	conn   *server.Conn
	pid    int
	user   string
	number uint64        // in the journal
	opened time.Duration // BootTime
	rate   access.Rate
	desk   desk // of what goes by this connection

	numbering numbering // of processes: is it that of the daemon?

	requester access.Requester // the client, for access rules
	uid       int              // requester.UID

	listing    chan struct{} // see usage
	inputEnded chan struct{} // closed when the client will send nothing more

	stored  state.ConnEntry   // whether the service manager has the connection: it outlasts the process then
	replays map[uint64]replay // requests of before a restart, by number; written before any is begun

	awaits  atomic.Int32          // LOCKs under way that are to go by a process (hold=pid)
	mu      sync.Mutex            // guards entrust
	entrust map[*holding]struct{} // leases that were taken here and go by a process (hold=pid)
}

// Begin is the one switch over verbs, in the order of the protocol's table.
// What it can answer from memory it answers; the rest is work that waits.
func (s *session) Begin(call *server.Call) server.Work {
	s.traceRequest(call)
	if !call.Replayed && s.tooFast(call.Verb) {
		return s.refuse(call, s.d.limits.TooFast())
	}
	if endsWithClient(call) && call.IsGone() {
		return s.refuse(call, server.ErrGone) // however much of it was sent before
	}
	if err := access.Permit(s.d.access.Load(), s.requester, call.Verb, call.Names); err != nil {
		return s.deny(call, err)
	}
	switch call.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		return s.lock(call)
	case ipc.VerbUnlock:
		return s.unlock(call)
	case ipc.VerbCancel:
		return s.cancel(call)
	case ipc.VerbAdmit:
		return s.admit(call)
	case ipc.VerbExtend:
		return s.question(call, s.extend)
	case ipc.VerbCheck:
		return s.check(call)
	case ipc.VerbResume:
		return s.question(call, s.resume)
	case ipc.VerbBeat:
		return s.beat(call)
	case ipc.VerbWho:
		return s.question(call, s.who)
	case ipc.VerbList:
		return s.list(call)
	case ipc.VerbStatus:
		return s.status(call)
	case ipc.VerbForce:
		return s.force(call)
	case ipc.VerbPing:
		return reply(call, ok(call))
	case ipc.VerbHello:
		return s.hello(call)
	case ipc.VerbHelp:
		return s.help(call)
	case ipc.VerbQuit:
		return s.quit(call)
	default: // a defect: one was forgotten here
		return s.refuse(call, fmt.Errorf("%v: nothing here answers it", call.Verb))
	}
}

// requesterOf returns the client as the access rules see it.
func requesterOf(peer server.Peer) access.Requester {
	if !peer.Known {
		return access.Requester{UID: access.UnknownUser}
	}
	return access.Requester{UID: int(peer.UID), Groups: append(peer.Groups, peer.GID)}
}

// view is what the client may see of the locks of others, by the rules of now.
func (s *session) view() access.View { return access.View{Rules: s.d.access.Load(), Who: s.requester} }

// deny answers with the error of Permit.
func (s *session) deny(call *server.Call, err error) server.Work {
	s.d.logDenied(s, call.Verb, err)
	return s.refuse(call, err)
}

// tooFast reports whether requests_per_second refuses the request. It never refuses a
// request that releases a lease or keeps one.
func (s *session) tooFast(verb ipc.Verb) bool {
	perSecond := s.d.limits.RequestRate()
	switch {
	case perSecond == 0:
		return false
	case verb == ipc.VerbUnlock, verb == ipc.VerbCancel, verb == ipc.VerbQuit, verb == ipc.VerbBeat, verb == ipc.VerbExtend:
		return false
	}
	return !s.rate.Allow(perSecond, s.d.clock())
}

// endsWithClient is so of what changes nothing for longer than the client is there.
func endsWithClient(call *server.Call) bool {
	switch call.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		return call.Hold == ipc.HoldConn
	case ipc.VerbCheck, ipc.VerbWho, ipc.VerbList, ipc.VerbStatus, ipc.VerbPing, ipc.VerbHello, ipc.VerbHelp:
		return true
	}
	return false
}

func (s *session) cancel(call *server.Call) server.Work {
	s.conn.Cancel(call.Words[0])
	return reply(call, ok(call))
}

func (s *session) quit(call *server.Call) server.Work {
	call.Quit()
	return reply(call, ok(call))
}

// InputEnded lets the LOCKs that only wait go: nobody is left to hold them.
// One whose first attempt is under way is answered.
func (s *session) InputEnded(bool) { close(s.inputEnded) }

// Close gives back what was held by this connection, unless it is the daemon
// that stops: then its client may be in the middle of its work.
func (s *session) Close() {
	cut := s.conn.WasCut()
	if !cut { // whoever starts next knows then that the client was gone
		s.d.ended(s)
	}
	for _, h := range s.desk.close() {
		if h.detach(s) {
			s.d.abandoned(h, cut)
		}
	}
	if cut {
		s.d.ended(s)
	}
	for _, h := range s.entrusted() {
		h.detach(s) // held on, by its process
	}
	s.d.limits.Disconnect(s.uid, s.conn)
}

// entrusted are the leases that were taken here and go by a process.
func (s *session) entrusted() []*holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entrust) == 0 {
		return nil
	}
	return slices.Collect(maps.Keys(s.entrust))
}

// note makes a lease that goes by a process known here, too: LOST is to be told.
func (s *session) note(h *holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entrust == nil {
		s.entrust = map[*holding]struct{}{}
	}
	s.entrust[h] = struct{}{}
}

// remove forgets a holding.
func (s *session) remove(h *holding) {
	s.desk.remove(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entrust, h)
}

// ended notes the end of a connection, unless it is the daemon that stops.
func (d *daemon) ended(s *session) {
	if d.stopping.Load() {
		return
	}
	d.store.Remove(&s.stored)
	d.journal.ConnClosed(s.number)
}

// left is how long the leases of this connection stay on the nodes when nobody
// extends them, and can be resumed: the shortest validity; 0 where there are none, or
// the next daemon will know of none.
func (s *session) left() time.Duration {
	var shortest time.Duration
	if !s.d.journal.OutlastsProcess() {
		return shortest
	}
	for _, h := range append(s.desk.all(), s.entrusted()...) {
		if left := h.lease.Validity(); h.lease.Err() == nil && (shortest == 0 || left < shortest) {
			shortest = left
		}
	}
	return shortest
}

// HoldsLeases tells whether the connection holds leases, or waits for some: it has more to
// lose than others.
func (s *session) HoldsLeases() bool {
	return s.desk.inUse() || s.awaits.Load() > 0 || len(s.entrusted()) > 0
}

// SyscallConn is for the store of connections.
func (s *session) SyscallConn() (syscall.RawConn, error) { return s.conn.SyscallConn() }
