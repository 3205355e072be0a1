package session

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/redlockd/redlockd/daemon/process"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/systemd"
)

// restoration is how a daemon goes on where the one before it ended: see package state for
// what that noted. It is done before anything new is accepted.
type restoration struct {
	d       *Host
	manager *systemd.Manager
	server  *server.Server
	past    *state.Recovered
	marked  bool // stored connections that are not handed over were ended by their clients
	conns   map[uint64]*restoredConn

	adopted   []*restoredLease
	waiting   int // requests that are begun again
	cut       int // connections that could not be kept
	abandoned int // attempts and releases that were under way
}

// restoredConn is a connection that outlasted its daemon.
type restoredConn struct {
	*server.Restored
	s    *session
	past *state.Conn
}

// Restore opens the journal, and goes on with what an earlier process left there and with the
// service manager. It is called before anything is accepted.
func (d *Host) Restore(srv *server.Server, manager *systemd.Manager, stored state.Inherited, socket string) {
	recovered := d.Journal.Open(d.journalOptions(socket))
	d.Store = state.NewConnStore(state.ConnStoreOptions{Manager: manager, Journal: d.Journal, Log: d.Log, Clock: d.Clock, Marked: stored.Marked, Failed: d.LogManagerError})
	r := restoration{d: d, manager: manager, server: srv, past: recovered, marked: stored.Marked, conns: map[uint64]*restoredConn{}}
	r.run(stored.Conns)
}

// journalOptions are the options of a daemon that listens at path.
func (d *Host) journalOptions(path string) state.Options {
	names := make([]string, len(d.Cfg.Quorum.Nodes))
	for i, node := range d.Cfg.Quorum.Nodes {
		names[i] = node.Name
	}
	return state.Options{Socket: path, KeyPrefix: d.Cfg.Quorum.KeyPrefix, Nodes: names}
}

// restoreTimeout is how long nobody is served because leases are not confirmed yet.
const restoreTimeout = time.Second

// run makes the past the present. Where some of it is missing, nobody can say
// what connections had been told since: they are ended, and leases that are known
// wait to be resumed.
func (r *restoration) run(stored []systemd.StoredConn) {
	d := r.d
	r.takeConns(stored)
	for _, conn := range r.conns {
		conn.Conn().Send(new(ipc.Response).Notice(ipc.EventBack).Say("the daemon was restarted; this connection and its leases go on"))
	}
	r.takeLeases()
	r.forgetConns()
	for _, l := range r.adopted {
		l.settle(d)
	}
	r.beginAgain()
	for _, conn := range r.conns {
		conn.Serve(conn.past.Unread, conn.past.Skipping)
	}
	r.log()
}

// log says what was found, if anything was.
func (r *restoration) log() {
	if len(r.conns)+len(r.adopted)+r.cut+r.abandoned > 0 {
		r.d.Log.Info("going on after a restart", "connections", len(r.conns), "leases", len(r.adopted),
			"requests_resumed", r.waiting, "connections_cut", r.cut, "releases_repeated", r.abandoned)
	}
}

// takeConns opens sessions for the connections that are there still.
func (r *restoration) takeConns(stored []systemd.StoredConn) {
	for _, c := range stored {
		number := state.ConnNumber(c.Name)
		known := r.past.Conns[number]
		switch {
		case c.Err != nil:
			r.useless(c, known)
		case !r.past.Complete || known == nil || r.conns[number] != nil:
			r.endConn(c.Conn, number)
		case !known.Stored && server.HungUp(c.Conn):
			r.endConn(c.Conn, number) // as it was noted that it is no client who ends it: see unkept
		default:
			r.takeConn(c.Conn, known)
		}
	}
}

// useless: a descriptor that cannot be used (there may be no room for it) says nothing
// about its client, whose leases stay for their validity.
func (r *restoration) useless(c systemd.StoredConn, known *state.Conn) {
	r.d.Log.Error("a connection from before the restart cannot be continued", "error", c.Err)
	if known != nil {
		r.unkept(known)
	}
	r.d.LogManagerError(r.manager.Unstore(c.Name))
}

// unkept records that a connection is not stored any longer, and that its client did not end
// it: the client may resume its leases, also with a later daemon.
func (r *restoration) unkept(known *state.Conn) {
	known.Stored = false
	r.d.Journal.ConnOpened(known.Number, false)
}

// takeConn opens the session of a connection, under its old number.
func (r *restoration) takeConn(nc net.Conn, known *state.Conn) {
	r.d.restoring = known.Number
	restored, err := r.server.Restore(nc)
	r.d.restoring = 0
	if err != nil {
		r.d.Log.Warn("a connection from before the restart is not kept", "error", err)
		r.unkept(known)
		return
	}
	s := restored.Session().(*session)
	s.replays = map[uint64]replayedRequest{}
	r.conns[known.Number] = &restoredConn{Restored: restored, s: s, past: known}
}

// endConn tells a client that too little is known about its connection, and ends it.
func (r *restoration) endConn(nc *net.UnixConn, number uint64) {
	r.cut++
	if known := r.past.Conns[number]; known != nil && r.conns[number] == nil {
		r.unkept(known)
	}
	bye := byeFor(r.left(number)).AppendTo(nil)
	server.Farewell(nc, bye)
	_, _ = nc.CloseRead(), nc.CloseWrite() // for the duplicate that the manager has, too
	nc.Close()
	r.d.LogManagerError(r.manager.Unstore(state.ConnName(number)))
}

// left is how long the leases of a connection may be resumed, as session.left is: the
// shortest validity.
func (r *restoration) left(conn uint64) (shortest time.Duration) {
	for _, l := range r.past.Leases {
		if l.Conn != conn || l.Phase != state.PhaseHeld {
			continue
		}
		if left := l.Record.Deadline - r.d.Clock(); left > 0 && (shortest == 0 || left < shortest) {
			shortest = left
		}
	}
	return shortest
}

// restoredLease is a lease that goes on.
type restoredLease struct {
	*heldLease
	past *state.Lease
	gone bool // nobody holds it any more
}

// takeLeases adopts the leases that were held, and releases the ones whose attempt or release
// was under way. It waits until the nodes have confirmed them.
func (r *restoration) takeLeases() {
	for _, number := range slices.Sorted(maps.Keys(r.past.Leases)) {
		switch l := r.past.Leases[number]; {
		case l.Phase == state.PhaseHeld, l.Phase == state.PhaseLost && l.Record.Fence != 0:
			r.take(l)
		default:
			r.abandon(l)
		}
	}
	registered := make(chan struct{})
	all := r.adopted // register leaves out those that are refused
	adoption := r.d.Nodes.Adopt(r.leaseRecords(), func(i int, l *redlock.Lease) {
		<-registered
		r.d.leaseLost(all[i].heldLease, l)
	})
	r.register(adoption)
	close(registered)
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	if err := adoption.Wait(ctx); err != nil {
		r.d.Log.Warn("not all leases from before the restart are confirmed yet", "error", err)
	}
}

// abandon releases what an attempt may have taken, or a release may have left. The client was
// told nothing about the attempt, even if it was granted and lost. If the state file is
// incomplete, nothing is released: the attempt may have been granted.
func (r *restoration) abandon(l *state.Lease) {
	if !r.past.Complete {
		return
	}
	r.abandoned++
	r.d.forgetAfterMaxTTL(r.noteAbandoned(l))
	if err := r.d.Nodes.Abandon(l.Record); err != nil {
		r.d.Log.Error("what was under way before the restart is not released", "error", err)
	}
	if by := r.past.Requests[l.ReleasedBy]; by != nil && r.conns[by.Conn] != nil {
		r.conns[by.Conn].s.replays[by.Number] = replayedRequest{since: by.Since, gaveBack: l.Record.Names}
	}
}

// noteAbandoned records the release for a later daemon, until the lock has expired: too few
// nodes may hear of it from this one. It returns the number of the record. An attempt gets a
// new number, as its LOCK begins again under the old one.
func (r *restoration) noteAbandoned(l *state.Lease) uint64 {
	if l.Phase == state.PhaseReleased {
		return l.Number
	}
	number := r.d.Journal.NextNumber()
	r.d.Journal.Granted(&state.Lease{Number: number, Phase: state.PhaseReleased, Record: l.Record})
	r.d.Journal.Forgotten(l.Number, 0)
	return number
}

// take makes the holding of a lease, and settles whether anybody holds it.
func (r *restoration) take(l *state.Lease) {
	h := newReturning(l)
	conn := r.conns[l.Conn]
	if conn != nil {
		h.session = conn.s
	}
	switch {
	case h.hold == ipc.HoldPID:
		h.gone = r.takeProcess(h, l)
	case h.hold == ipc.HoldConn && conn == nil:
		known := r.past.Conns[l.Conn]
		h.gone = r.past.Complete && (known == nil || known.Stored && r.marked)
		l.Record.Keep = h.gone && h.linger > 0 // otherwise until it is resumed
	}
	switch {
	case h.gone:
		h.session = nil
	case conn != nil && h.process == nil:
		h.index = &conn.s.desk
	}
	if l.Phase == state.PhaseLost {
		l.Record.Lost = l.Reason
	}
	h.waiter.Owner = h.ownerNow()
	r.adopted = append(r.adopted, h)
}

// newReturning is a holding as it was, of nobody yet.
func newReturning(l *state.Lease) *restoredLease {
	of := &l.Holder
	h := &heldLease{
		Requester:  waitqueue.Requester{UID: of.UID, PID: of.PID, User: of.User, Owner: of.Owner, Note: of.Note, ID: of.ID, Asked: of.Since},
		number:     l.Number,
		hold:       of.Hold,
		index:      &leaseIndex{},
		linger:     of.Linger,
		reported:   true,
		stage:      counting,
		reentrancy: newReentrancy(slices.Clone(l.Reentrants)),
		heartbeat:  newHeartbeat(of.Beat),
	}
	h.waiter.Init(l.Record.Names, waitqueue.Kind{Shared: l.Record.Shared, Slots: int16(l.Record.Slots)}, false, &h.Requester, nil)
	return &restoredLease{heldLease: h, past: l}
}

// takeProcess has the lease go by its process, unless that has ended. Where nobody can
// tell it is not kept, but stays for its validity.
func (r *restoration) takeProcess(h *restoredLease, l *state.Lease) (gone bool) {
	fd, err := process.OpenIf(h.PID, func(f process.Facts) error {
		if then := l.Holder.ProcessStarted; then != 0 && f.Started != then || f.Started > l.Record.Since {
			return process.ErrNoProcess // another one, with the same number
		}
		return nil
	})
	if err == nil {
		h.process, err = r.d.Processes.use(fd, h.PID)
	}
	switch {
	case err == nil:
		h.index = &h.process.desk
	case !errors.Is(err, process.ErrNoProcess) && !errors.Is(err, process.ErrThread):
		l.Record.Keep = false
		r.d.Log.Error("a lease from before the restart is not extended: its process may have ended",
			"lock", h.waiter.Label(), "pid", h.PID, "error", err)
	default:
		return true
	}
	return false
}

func (r *restoration) leaseRecords() []redlock.Record {
	records := make([]redlock.Record, len(r.adopted))
	for i, l := range r.adopted {
		records[i] = l.past.Record
	}
	return records
}

// register makes the leases known that could be adopted.
func (r *restoration) register(adoption *redlock.Adoption) {
	var adopted []*restoredLease
	for i, l := range r.adopted {
		if l.lease = adoption.Leases[i]; l.lease == nil {
			r.refused(l, adoption.Errs[i])
			continue
		}
		adopted = append(adopted, l)
		l.register(r.d)
		if l.session == nil && !l.gone {
			r.d.unclaimed.add(l.heldLease)
		}
	}
	r.adopted = adopted
}

// refused: such a lease ends with its ttl, and its client is told now.
func (r *restoration) refused(l *restoredLease, err error) {
	r.d.Log.Error("a lease from before the restart is not kept", "lock", l.waiter.Label(), "error", err)
	r.d.Journal.Forgotten(l.number, 0)
	r.d.Processes.release(l.process)
	if l.session != nil {
		l.session.sayLost(l.names(), l.past.Record.ID(), redlock.LostQuorum, err.Error())
	}
}

// register makes a lease known, as a granted LOCK does. The index of a process that has ended
// meanwhile is closed: the lease has no holder then.
func (l *restoredLease) register(d *Host) {
	h := l.heldLease
	d.Leases.add(h)
	if h.lease.Deadline() != l.past.Record.Deadline { // it was confirmed before moved could find it
		d.Journal.Deadline(h.number, h.lease)
	}
	before, open := h.index.add(h)
	for _, old := range before { // it was to be forgotten when this one was granted
		d.forget(old)
	}
	l.gone = l.gone || !open
	if h.process != nil && h.session != nil {
		h.session.addProcessLease(h)
	}
	if l.past.Phase == state.PhaseLost {
		h.clearCounts()
		h.lostAt = d.Clock()
		h.ended.Do(func() {}) // long ago
		return
	}
	d.Limits.Restore(h.UID, len(h.names())+h.chargeAll())
	d.Queue.Restore(&h.waiter, h)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.startHeartbeat(d)
}

// settle does for a lease what was due while there was no daemon.
func (l *restoredLease) settle(d *Host) {
	switch {
	case l.past.Phase == state.PhaseLost && !l.past.Reported:
		d.reportLoss(l.heldLease)
	case l.past.Phase == state.PhaseLost && (l.gone || l.session == nil && l.process == nil):
		d.forget(l.heldLease)
	case l.past.Phase == state.PhaseLost:
		d.rememberLoss(l.heldLease)
	case l.gone && l.past.LingerSince != 0:
		d.lingerFrom(l.heldLease, l.past.LingerSince)
	case l.gone:
		d.releaseAfterLinger(l.heldLease)
	}
}

// forgetConns records the end of the connections that were not handed over. It leaves the ones
// whose leases can be resumed: otherwise a later daemon would believe that the clients had
// ended them.
func (r *restoration) forgetConns() {
	resumable := map[uint64]bool{}
	for _, l := range r.adopted {
		if l.session == nil && !l.gone {
			resumable[l.past.Conn] = true
		}
	}
	for number, known := range r.past.Conns {
		switch {
		case r.conns[number] != nil:
		case !resumable[number]:
			r.d.Journal.ConnClosed(number)
		case known.Stored: // it was, and is not: the daemon after this one must not miss it
			r.d.Journal.ConnOpened(number, false)
		}
	}
}

// beginAgain begins the requests that were not answered, in their old order. What is known
// of all of them comes first: one that was begun may ask for it on another goroutine.
func (r *restoration) beginAgain() {
	numbers := slices.Sorted(maps.Keys(r.past.Requests))
	for _, number := range numbers {
		r.noteReplay(r.past.Requests[number])
	}
	for _, number := range numbers {
		ask := r.past.Requests[number]
		conn := r.conns[ask.Conn]
		if conn == nil {
			r.d.Journal.Answered(number) // there is nobody to answer
			continue
		}
		r.waiting++
		conn.Begin(number, ask.Line)
	}
}

// noteReplay has a request be known to its session, unless an UNLOCK is already, which has
// given something back (abandon).
func (r *restoration) noteReplay(ask *state.Request) {
	conn := r.conns[ask.Conn]
	if conn == nil {
		return
	}
	if _, known := conn.s.replays[ask.Number]; !known {
		conn.s.replays[ask.Number] = replayedRequest{since: ask.Since}
	}
}
