package session

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/process"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/systemd"
)

// restoration continues the work of an earlier daemon, from its records (package state). It ends
// before the daemon accepts a connection.
type restoration struct {
	d         *Host
	manager   *systemd.Manager
	server    *server.Server
	recovered *state.Recovered
	marked    bool // the service manager kept its store: a stored connection that is missing was ended by its client
	conns     map[uint64]*restoredConn

	adopted   []*restoredLease
	waiting   int // requests that are restarted
	cut       int // connections that were cut
	abandoned int // attempts and releases that were under way
	gone      int // leases whose holder ended, and which a client could resume

	startOf map[int]time.Duration // when the living process with a pid was started: see hasEnded
}

// restoredConn is a connection that outlasted an earlier daemon.
type restoredConn struct {
	*server.Restored
	s      *session
	record *state.Conn
}

// Restore opens the journal, and continues what an earlier process left there and with the service
// manager. It must be called before the daemon accepts connections.
func (d *Host) Restore(srv *server.Server, manager *systemd.Manager, stored state.Inherited, socket string) {
	recovered := d.Journal.Open(d.journalOptions(socket))
	d.Store = state.NewConnStore(state.ConnStoreOptions{Manager: manager, Journal: d.Journal, Log: d.Log, Clock: d.Clock, Marked: stored.Marked, Failed: d.LogManagerError})
	r := restoration{d: d, manager: manager, server: srv, recovered: recovered, marked: stored.Marked, conns: map[uint64]*restoredConn{}}
	r.run(stored.Conns)
}

// journalOptions returns the journal's options for a daemon that listens at path.
func (d *Host) journalOptions(path string) state.Options {
	nodes := make([]state.Node, len(d.Cfg.Quorum.Nodes))
	for i, node := range d.Cfg.Quorum.Nodes {
		nodes[i] = state.Node{Name: node.Name, Joining: node.Joining, Leaving: node.Leaving}
	}
	return state.Options{Socket: path, KeyPrefix: d.Cfg.Quorum.KeyPrefix, Nodes: nodes}
}

// restoreTimeout bounds how long the daemon waits for the confirmation of leases before it serves.
const restoreTimeout = time.Second

// run restores connections, leases and requests. If a part of the state file is missing, the daemon
// cannot know what the clients were answered: it ends their connections, and the known leases wait
// for RESUME.
func (r *restoration) run(stored []systemd.StoredConn) {
	d := r.d
	r.takeConns(stored)
	for _, conn := range r.conns {
		conn.Conn().Send(new(ipc.Response).Notice(ipc.EventBack).Say("the daemon was restarted; this connection and its leases continue"))
	}
	r.takeLeases()
	r.forgetConns()
	for _, l := range r.adopted {
		l.settle(d)
	}
	r.beginAgain()
	for _, conn := range r.conns {
		conn.Serve(conn.record.Unread, conn.record.Skipping)
	}
	r.log()
}

// log logs what was restored, if anything was.
func (r *restoration) log() {
	if len(r.conns)+len(r.adopted)+r.cut+r.abandoned > 0 {
		r.d.Log.Info("continued after a restart", "connections", len(r.conns), "leases", len(r.adopted),
			"requests_resumed", r.waiting, "connections_cut", r.cut, "releases_repeated", r.abandoned, "holders_gone", r.gone)
	}
}

// takeConns opens sessions for the connections that still exist.
func (r *restoration) takeConns(stored []systemd.StoredConn) {
	for _, c := range stored {
		number := state.ConnNumber(c.Name)
		known := r.recovered.Conns[number]
		switch {
		case c.Err != nil:
			r.discardDescriptor(c, known)
		case !r.recovered.Complete || known == nil || r.conns[number] != nil:
			r.endConn(c, number)
		case !known.Stored && !state.IsUnstored(c.Name) && server.HungUp(c.Conn):
			r.endConn(c, number) // an earlier daemon cut it, or could not use it: see markNotStored
		default:
			r.takeConn(c, known)
		}
	}
}

// discardDescriptor handles a descriptor that cannot be used, for example because too few are left.
// The client may be alive, so its leases stay until their deadlines.
func (r *restoration) discardDescriptor(c systemd.StoredConn, known *state.Conn) {
	r.d.Log.Error("a connection from before the restart cannot be continued", "error", c.Err)
	if known != nil {
		r.markNotStored(known)
	}
	r.d.LogManagerError(r.manager.Unstore(c.Name))
}

// markNotStored records that a connection is no longer stored, and that its client did not end it.
// The client may resume its leases, even with a later daemon.
func (r *restoration) markNotStored(known *state.Conn) {
	known.Stored = false
	r.d.Journal.ConnOpened(known.Number, false)
}

// takeConn opens the session of a connection, under its previous number.
func (r *restoration) takeConn(c systemd.StoredConn, known *state.Conn) {
	r.d.restoring, r.d.restoringUnstored = known.Number, state.IsUnstored(c.Name)
	restored, err := r.server.Restore(c.Conn)
	r.d.restoring = 0
	if err != nil {
		r.d.Log.Warn("a connection from before the restart is not kept", "error", err)
		r.markNotStored(known)
		return
	}
	s := restored.Session().(*session)
	s.replays = map[uint64]replayedRequest{}
	r.conns[known.Number] = &restoredConn{Restored: restored, s: s, record: known}
}

// endConn ends a connection that cannot be continued, with BYE.
func (r *restoration) endConn(c systemd.StoredConn, number uint64) {
	r.cut++
	if known := r.recovered.Conns[number]; known != nil && r.conns[number] == nil {
		r.markNotStored(known)
	}
	bye := byeFor(r.resumableFor(number)).AppendTo(nil)
	server.Farewell(c.Conn, bye)
	_, _ = c.Conn.CloseRead(), c.Conn.CloseWrite() // this also ends the duplicate that the manager has
	c.Conn.Close()
	r.d.LogManagerError(r.manager.Unstore(c.Name))
}

// resumableFor returns how long the leases of a connection may be resumed, as session.resumableFor
// does: the shortest validity.
func (r *restoration) resumableFor(conn uint64) (shortest time.Duration) {
	for _, l := range r.recovered.Leases {
		if l.Conn != conn || l.Phase != state.PhaseHeld {
			continue
		}
		if left := l.Record.Deadline - r.d.Clock(); left > 0 && (shortest == 0 || left < shortest) {
			shortest = left
		}
	}
	return shortest
}

// restoredLease is a lease that the daemon continues.
type restoredLease struct {
	*heldLease
	recorded    *state.Lease
	hasNoHolder bool // nobody holds it
}

// takeLeases adopts the leases that were held, and releases the leases whose attempt or release was
// under way. It waits until the nodes have confirmed the adopted ones.
func (r *restoration) takeLeases() {
	tokens := map[string]bool{}
	for _, l := range r.recovered.Leases {
		if wasHeld(l) {
			tokens[l.Record.Token], tokens[l.Record.Former] = true, true
		}
	}
	for _, number := range slices.Sorted(maps.Keys(r.recovered.Leases)) {
		switch l := r.recovered.Leases[number]; {
		case wasHeld(l):
			r.take(l)
		case tokens[l.Record.Token]:
			r.passedOn(l)
		default:
			r.abandon(l)
		}
	}
	registered := make(chan struct{})
	all := r.adopted // register removes the refused leases from r.adopted
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

// wasHeld reports whether a lease was granted and not released.
func wasHeld(l *state.Lease) bool {
	return l.Phase == state.PhaseHeld || l.Phase == state.PhaseLost && l.Record.Fence != 0
}

// passedOn forgets a lease that was released by a pass. Another granted lease has its token now, so
// nothing may be released.
func (r *restoration) passedOn(l *state.Lease) {
	r.d.Journal.Forgotten(l.Number, 0)
	r.noteReleased(l, true)
}

// abandon releases what an attempt may have taken, or a release may have left. The client got no
// answer to the attempt, even if it was granted and lost. If the state file is incomplete, nothing
// is released: the attempt may have been granted.
func (r *restoration) abandon(l *state.Lease) {
	if !r.recovered.Complete {
		return
	}
	r.abandoned++
	r.d.forgetAfterMaxTTL(r.noteAbandoned(l))
	if err := r.d.Nodes.Abandon(l.Record); err != nil {
		r.d.Log.Error("an attempt from before the restart is not released", "error", err)
	}
	r.noteReleased(l, false)
}

// noteReleased records in the replays that an unanswered UNLOCK released the lease. settled means
// that no node needs to be asked any more.
func (r *restoration) noteReleased(l *state.Lease, settled bool) {
	if by := r.recovered.Requests[l.ReleasedBy]; by != nil && r.conns[by.Conn] != nil {
		r.conns[by.Conn].s.replays[by.Number] = replayedRequest{since: by.Since, released: l.Record.Names, settled: settled}
	}
}

// noteAbandoned records the release for a later daemon until the lock has expired, because this
// daemon may reach too few nodes. It returns the number of the record. An attempt gets a new
// number, because its LOCK starts again under the previous one.
func (r *restoration) noteAbandoned(l *state.Lease) uint64 {
	if l.Phase == state.PhaseReleased {
		return l.Number
	}
	number := r.d.Journal.NextNumber()
	r.d.Journal.Granted(&state.Lease{Number: number, Phase: state.PhaseReleased, Record: l.Record})
	if l.Record.Former != "" {
		r.d.Journal.Exchanging(number, l.Record)
	}
	r.d.Journal.Forgotten(l.Number, 0)
	return number
}

// take makes the heldLease of a recorded lease, and decides whether a client or a process holds it.
func (r *restoration) take(l *state.Lease) {
	h := newRestoredLease(l)
	conn := r.conns[l.Conn]
	holder, reporter := &locktable.Client{}, (*locktable.Client)(nil)
	if conn != nil {
		reporter = &conn.s.client
	}
	switch {
	case l.Kept:
		h.hasNoHolder = true
	case h.hold == ipc.HoldPID:
		var p *heldProcess
		if p, h.hasNoHolder = r.takeProcess(h, l); p != nil {
			holder = &p.client
		}
	case h.hold == ipc.HoldConn && conn == nil:
		known := r.recovered.Conns[l.Conn]
		h.hasNoHolder = r.recovered.Complete && (known == nil || known.Stored && r.marked)
		l.Record.Keep = h.hasNoHolder && h.linger() > 0 // otherwise RESUME starts the extensions
		if h.holderGone = !h.hasNoHolder && l.Conn < l.Number && r.hasEnded(h.PID, h.Asked); h.holderGone {
			r.gone++
		}
	}
	if unclaimed := h.hold == ipc.HoldConn && conn == nil; (h.hasNoHolder || unclaimed) && l.Min > r.d.Clock()-l.Record.Since {
		l.Record.Keep = true // whether or not it is resumed
	}
	switch {
	case h.hasNoHolder:
		reporter = nil
	case conn != nil && !holder.IsProcess:
		holder = reporter
	}
	h.SetHolder(holder, reporter)
	if l.Phase == state.PhaseLost {
		l.Record.Lost = l.Reason
	}
	r.adopted = append(r.adopted, h)
}

// hasEnded reports whether the process that had a pid at an instant has certainly ended. It needs no
// record of the process: another process that has the pid now was started later.
//
// Callers compare the numbers of connection and LOCK first: a connection with the larger one has resumed
// the lease, perhaps for another process.
func (r *restoration) hasEnded(pid int, then time.Duration) bool {
	if pid == 0 {
		return false // the earlier daemon did not see it
	}
	started, known := r.startOf[pid]
	if !known {
		fd, err := process.OpenIf(pid, func(f process.Facts) error {
			started = f.Started
			return nil
		})
		switch {
		case err == nil:
			process.Close(fd)
		case errors.Is(err, process.ErrNoProcess), errors.Is(err, process.ErrThread):
			started = math.MaxInt64
		}
		if r.startOf == nil {
			r.startOf = map[int]time.Duration{}
		}
		r.startOf[pid] = started
	}
	return started > then
}

// newRestoredLease returns a recorded lease, without a holder.
func newRestoredLease(l *state.Lease) *restoredLease {
	of := &l.Holder
	h := &heldLease{
		number:    l.Number,
		hold:      of.Hold,
		delays:    newEndDelays(of.Linger, l.Min),
		heartbeat: newHeartbeat(of.Beat),
	}
	h.Requester = locktable.Requester{UID: of.UID, PID: of.PID, User: of.User, Owner: of.Owner, Note: of.Note, ID: of.ID, Asked: of.Since}
	h.Life = locktable.Life{State: locktable.Held, Knows: locktable.KnowsGrant}
	h.SetFurthers(slices.Clone(l.Reentrants))
	if l.Kept && l.Phase == state.PhaseHeld {
		h.Life.State = locktable.Kept
	}
	h.Init(l.Record.Names, locktable.Kind{Shared: l.Record.Shared, Slots: int16(l.Record.Slots)}, false, h)
	return &restoredLease{heldLease: h, recorded: l}
}

// takeProcess makes the lease belong to its process again, unless the process has ended. If that is
// unknown, the lease is not extended, but stays until its deadline.
func (r *restoration) takeProcess(h *restoredLease, l *state.Lease) (p *heldProcess, hasEnded bool) {
	fd, err := process.OpenIf(h.PID, func(f process.Facts) error {
		if then := l.Holder.ProcessStarted; then != 0 && f.Started != then || f.Started > l.Record.Since {
			return process.ErrNoProcess // another process got the pid
		}
		return nil
	})
	if err == nil {
		p, err = r.d.Processes.use(fd, h.PID)
	}
	switch {
	case err == nil:
		return p, false
	case !errors.Is(err, process.ErrNoProcess) && !errors.Is(err, process.ErrThread):
		l.Record.Keep = false
		r.d.Log.Error("a lease from before the restart is not extended: its process may have ended",
			"lock", h.Waiter.Label(), "pid", h.PID, "error", err)
	default:
		return nil, true
	}
	return nil, false
}

func (r *restoration) leaseRecords() []redlock.Record {
	records := make([]redlock.Record, len(r.adopted))
	for i, l := range r.adopted {
		if records[i] = l.recorded.Record; !l.hasNoHolder {
			records[i].Holder = r.d.holderOf(&l.Requester, l.recorded.Record.Since)
		}
	}
	return records
}

// register adds the adopted leases to the indexes and the wait queue.
func (r *restoration) register(adoption *redlock.Adoption) {
	var adopted []*restoredLease
	for i, l := range r.adopted {
		if l.lease = adoption.Leases[i]; l.lease == nil {
			r.adoptionFailed(l, adoption.Errs[i])
			continue
		}
		adopted = append(adopted, l)
		l.register(r.d)
		if l.Reporter() == nil && !l.hasNoHolder && l.hold == ipc.HoldConn { // with hold=ttl a later LOCK is not a repeat
			r.d.mu.Lock()
			r.d.table.AddUnclaimed(&l.Lease)
			r.d.mu.Unlock()
		}
	}
	r.adopted = adopted
}

// adoptionFailed handles a lease that cannot be adopted. It expires with its ttl, and its client
// gets LOST now.
func (r *restoration) adoptionFailed(l *restoredLease, err error) {
	r.d.Log.Error("a lease from before the restart is not kept", "lock", l.Waiter.Label(), "error", err)
	r.d.Journal.Forgotten(l.number, 0)
	r.d.Processes.release(l.process())
	if s := sessionOf(l.Reporter()); s != nil {
		s.sendLostEvent(l.Waiter.Names, l.recorded.Record.ID(), redlock.LostQuorum, err.Error())
	}
}

// register makes a lease known, as a granted LOCK does. If its process has ended meanwhile, the
// process's index is closed, and the lease has no holder.
func (l *restoredLease) register(d *Host) {
	h, isLost, charged := l.heldLease, l.recorded.Phase == state.PhaseLost, 0
	d.mu.Lock()
	d.table.Register(&h.Lease)
	replaced, open := d.table.Name(&h.Lease)
	if isLost {
		h.ClearCounts()
		h.lostAt, h.Life = d.Clock(), locktable.Life{State: locktable.Gone, Knows: locktable.KnowsLoss}
	} else {
		charged = len(h.Waiter.Names) + h.ChargeAll()
	}
	d.mu.Unlock()
	d.startHeartbeat(h)                                   // unless it was lost
	if h.lease.Deadline() != l.recorded.Record.Deadline { // it was confirmed before recordDeadline could find it
		d.Journal.Deadline(h.number, h.lease)
	}
	d.forgetReplaced(replaced)
	l.hasNoHolder = l.hasNoHolder || !open
	if !isLost {
		d.Limits.Restore(h.UID, charged)
		d.lockQueue(&h.Waiter)
		d.queue.Restore(&h.Waiter, l.recorded.Kept)
		d.unlockQueue(&h.Waiter)
	}
}

// settle does what became due for a lease while no daemon ran.
func (l *restoredLease) settle(d *Host) {
	switch {
	case l.recorded.Phase == state.PhaseLost && !l.recorded.Reported:
		d.reportLoss(l.heldLease)
	case l.recorded.Phase == state.PhaseLost && (l.hasNoHolder || l.Reporter() == nil && !l.OfProcess):
		d.forget(l.heldLease)
	case l.recorded.Phase == state.PhaseLost:
		d.apply(l.heldLease, locktable.LossRemembered)
	case l.recorded.Kept:
		d.releaseWhenMinPassed(l.heldLease)
	case l.hasNoHolder && l.recorded.LingerSince != 0:
		d.lingerFrom(l.heldLease, l.recorded.LingerSince)
	case l.hasNoHolder:
		d.clientEnded(l.heldLease, locktable.ClientEnd{Process: true})
	case l.Reporter() == nil && !l.OfProcess && d.minLeft(l.heldLease) > 0:
		d.releaseUnclaimed(l.heldLease, l.recorded.Record.Deadline)
	}
}

// releaseUnclaimed releases a lease with min= that no client resumes. It waits until min= and
// lastReported, the last deadline that the client was given, have passed. A lease without min= is
// not extended.
func (d *Host) releaseUnclaimed(h *heldLease, lastReported time.Duration) {
	d.keepUntil(h, lastReported)
	nth := d.countDisconnect(h)
	d.timers.After(d.minLeft(h), func() {
		d.releaseAbandoned(h, func() bool {
			isUnclaimed := h.disconnects == nth && h.Reporter() == nil
			if isUnclaimed {
				d.table.ForgetUnclaimed(&h.Lease)
			}
			return isUnclaimed
		})
	})
}

// forgetConns records the end of the connections that were not handed over. It leaves those whose
// leases can be resumed: otherwise a later daemon would assume that their clients had ended them.
func (r *restoration) forgetConns() {
	resumable := map[uint64]bool{}
	for _, l := range r.adopted {
		if l.Reporter() == nil && !l.hasNoHolder {
			resumable[l.recorded.Conn] = true
		}
	}
	for number, known := range r.recovered.Conns {
		switch {
		case r.conns[number] != nil:
		case !resumable[number]:
			r.d.Journal.ConnClosed(number)
		case known.Stored: // it is no longer stored: a later daemon must not expect it
			r.d.Journal.ConnOpened(number, false)
		}
	}
}

// beginAgain restarts the unanswered requests in their previous order. It first records the replays
// of all of them, because a request that has begun reads them on another goroutine.
func (r *restoration) beginAgain() {
	numbers := slices.Sorted(maps.Keys(r.recovered.Requests))
	for _, number := range numbers {
		r.noteReplay(r.recovered.Requests[number])
	}
	for _, number := range numbers {
		ask := r.recovered.Requests[number]
		conn := r.conns[ask.Conn]
		if conn == nil {
			r.d.Journal.Answered(number) // its client is gone
			continue
		}
		r.waiting++
		conn.Begin(number, ask.Line)
	}
}

// noteReplay adds a request to the replays of its session. It keeps the entry of an UNLOCK that has
// released a lease (see abandon).
func (r *restoration) noteReplay(ask *state.Request) {
	conn := r.conns[ask.Conn]
	if conn == nil {
		return
	}
	if _, known := conn.s.replays[ask.Number]; !known {
		conn.s.replays[ask.Number] = replayedRequest{since: ask.Since}
	}
}
