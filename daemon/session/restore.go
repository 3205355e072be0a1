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
	marked    bool // see locktable.Restart
	conns     map[uint64]*restoredConn

	adopted   []*restoredLease
	released  map[uint64]*restoredLease // by the UNLOCKs that released them
	waiting   int                       // requests that are restarted
	cut       int                       // connections that were cut
	abandoned int                       // attempts and releases that were under way
	gone      int                       // leases whose holder ended, and which a client could resume

	until   map[uint64]time.Duration // see resumableUntil; nil: not needed yet
	startOf map[int]time.Duration    // when the living process with a pid was started: see hasEnded
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
	d.Nodes.NoteReplacedList(recovered.ReplacedList)
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
	r.takeConns(stored)
	for _, conn := range r.conns {
		conn.Conn().Send(new(ipc.Response).Notice(ipc.EventBack).Say("the daemon was restarted; this connection and its leases continue"))
	}
	r.takeLeases()
	r.beginAgain()
	for _, conn := range r.conns {
		conn.Serve(conn.record.Unread, conn.record.Skipping)
	}
	if len(r.conns)+len(r.adopted)+r.cut+r.abandoned > 0 {
		r.d.Log.Info("continued after a restart", "connections", len(r.conns), "leases", len(r.adopted),
			"requests_resumed", r.waiting, "connections_cut", r.cut, "releases_repeated", r.abandoned, "holders_gone", r.gone)
	}
}

// takeConns opens sessions for the connections that still exist, under their previous numbers.
func (r *restoration) takeConns(stored []systemd.StoredConn) {
	for _, c := range stored {
		number := state.ConnNumber(c.Name)
		known := r.recovered.Conns[number]
		switch {
		case c.Err != nil: // for example, too few descriptors are left; the client may be alive, so its leases stay until their deadlines
			r.d.Log.Error("a connection from before the restart cannot be continued", "error", c.Err)
			if known != nil {
				r.markNotStored(known)
			}
			r.d.LogManagerError(r.manager.Unstore(c.Name))
			continue
		case !r.recovered.Complete, known == nil, r.conns[number] != nil,
			!known.Stored && !state.IsUnstored(c.Name) && server.HungUp(c.Conn): // an earlier daemon cut it, or could not use it: see markNotStored
			r.endConn(c, number)
			continue
		}
		r.d.restoring, r.d.restoringUnstored = number, state.IsUnstored(c.Name)
		restored, err := r.server.Restore(c.Conn)
		r.d.restoring = 0
		if err != nil {
			r.d.Log.Warn("a connection from before the restart is not kept", "error", err)
			r.markNotStored(known)
			continue
		}
		s := restored.Session().(*session)
		s.replays = map[uint64]replayedRequest{}
		r.conns[number] = &restoredConn{Restored: restored, s: s, record: known}
	}
}

// markNotStored records that a connection is no longer stored, and that its client did not end it.
// The client may resume its leases, even with a later daemon.
func (r *restoration) markNotStored(known *state.Conn) {
	known.Stored = false
	r.d.Journal.ConnOpened(known.Number, false)
}

// endConn ends a connection that cannot be continued, with BYE.
func (r *restoration) endConn(c systemd.StoredConn, number uint64) {
	r.cut++
	if known := r.recovered.Conns[number]; known != nil && r.conns[number] == nil {
		r.markNotStored(known)
	}
	if r.until == nil { // once: thousands of connections can end here
		r.until = r.resumableUntil()
	}
	bye := byeFor(max(r.until[number]-r.d.Clock(), 0)).AppendTo(nil)
	server.Farewell(c.Conn, bye)
	_, _ = c.Conn.CloseRead(), c.Conn.CloseWrite() // this also ends the duplicate that the manager has
	c.Conn.Close()
	r.d.LogManagerError(r.manager.Unstore(c.Name))
}

// resumableUntil returns, for each connection, until when (BootTime) all its leases may be resumed, as
// session.resumableFor does: the first deadline that has not passed.
func (r *restoration) resumableUntil() map[uint64]time.Duration {
	first, now := map[uint64]time.Duration{}, r.d.Clock()
	for _, l := range r.recovered.Leases {
		if l.Life.State == locktable.Held && l.Record.Deadline > now && (first[l.Conn] == 0 || l.Record.Deadline < first[l.Conn]) {
			first[l.Conn] = l.Record.Deadline
		}
	}
	return first
}

// restoredLease is a recorded lease, or an attempt or release that was under way.
type restoredLease struct {
	*heldLease // without a holder until claim
	locktable.Recorded
	recorded  *state.Lease
	wasPassed bool // see locktable.Fate

	// See locktable.Table.Restore.
	due  locktable.Due
	open bool
}

// takeLeases does what locktable.Restart decides: it adopts leases that were held, and releases what
// attempts and releases may have left. It waits until the nodes have confirmed the adopted ones.
func (r *restoration) takeLeases() {
	d := r.d
	r.released = map[uint64]*restoredLease{}
	restart := locktable.Restart{Complete: r.recovered.Complete, Marked: r.marked, Conns: map[uint64]locktable.RecordedConn{}}
	for number, known := range r.recovered.Conns {
		recorded := locktable.RecordedConn{Stored: known.Stored}
		if conn := r.conns[number]; conn != nil {
			recorded.Client = &conn.s.client
		}
		restart.Conns[number] = recorded
	}
	var all []*restoredLease
	var facts []*locktable.Recorded
	for _, number := range slices.Sorted(maps.Keys(r.recovered.Leases)) {
		l := newRestoredLease(r.recovered.Leases[number], d.Clock())
		all, facts = append(all, l), append(facts, &l.Recorded)
	}
	var records []redlock.Record
	var continued []*restoredLease
	for i, fate := range restart.Fates(facts) {
		switch l := all[i]; fate {
		case locktable.Continues:
			r.claim(&restart, l)
			continued, records = append(continued, l), append(records, l.recorded.Record)
		case locktable.WasPassed:
			l.wasPassed = true
			d.Journal.Forgotten(l.recorded.Number, 0)
			r.released[l.recorded.ReleasedBy] = l
		case locktable.Abandoned:
			r.abandon(l)
		}
	}
	registered := make(chan struct{})
	adoption := d.Nodes.Adopt(records, func(i int, l *redlock.Lease) {
		<-registered
		d.leaseLost(continued[i].heldLease, l)
	})
	facts = nil
	for i, l := range continued {
		if l.lease = adoption.Leases[i]; l.lease == nil {
			r.adoptionFailed(l, adoption.Errs[i])
			continue
		}
		l.register(d)
		r.adopted, facts = append(r.adopted, l), append(facts, &l.Recorded)
	}
	close(registered)
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	if err := adoption.Wait(ctx); err != nil {
		d.Log.Warn("not all leases from before the restart are confirmed yet", "error", err)
	}
	ended, unstored := restart.EndedConns(facts)
	for _, number := range ended {
		d.Journal.ConnClosed(number)
	}
	for _, number := range unstored {
		d.Journal.ConnOpened(number, false)
	}
	for _, l := range r.adopted {
		l.settle(d)
	}
}

// settle does what became due for a lease while no daemon ran.
func (l *restoredLease) settle(d *Host) {
	h, client := l.heldLease, l.Holder()
	d.perform(h, l.due, nil)
	ending := locked(d, func() locktable.Ending { return l.Ending(&h.Lease) })
	switch {
	case ending == locktable.Linger && l.recorded.LingerSince != 0:
		d.releaseAfterLinger(h, client)
	case ending == locktable.ReleaseUnclaimed:
		d.keepUntil(h, l.recorded.Record.Deadline) // its client may work until the last deadline that it was given
		fallthrough
	default:
		d.endWithout(h, client, ending)
	}
	if !l.open {
		d.holderEnded(h)
	}
}

// newRestoredLease returns what is recorded of a lease. If it continues, it has no holder yet.
func newRestoredLease(l *state.Lease, now time.Duration) *restoredLease {
	of := &l.Holder
	h := &heldLease{
		recording: &recording{number: l.Number, isGranted: true, conn: l.Conn},
		hold:      of.Hold,
		delays:    newEndDelays(of.Linger, l.Min),
		heartbeat: newHeartbeat(of.Beat),
	}
	if h.delays != nil {
		h.delays.since = l.LingerSince
	}
	h.Requester = locktable.Requester{UID: of.UID, PID: of.PID, User: of.User, Owner: of.Owner, Note: of.Note, ID: of.ID, Asked: of.Since}
	h.SetFurthers(l.Reentrants)
	h.Init(l.Record.Names, locktable.Kind{Shared: l.Record.Shared, Slots: int16(l.Record.Slots)}, false, h)
	return &restoredLease{heldLease: h, recorded: l, Recorded: locktable.Recorded{
		Token: l.Record.Token, Former: l.Record.Former, Conn: l.Conn, Was: l.Life,
		NeedsConn: of.Hold == ipc.HoldConn,
		OfProcess: of.Hold == ipc.HoldPID,
		Lingers:   of.Linger > 0,
		MinLeft:   l.Min > now-l.Record.Since,
	}}
}

// abandon releases what an attempt may have taken, or a release may have left. It records the release
// for a later daemon until the lock has expired, because this daemon may reach too few nodes. An
// attempt gets a new number there, because its LOCK starts again under the previous one.
func (r *restoration) abandon(l *restoredLease) {
	r.abandoned++
	number, record := l.recorded.Number, l.recorded.Record
	if l.Was.State == locktable.Acquiring {
		number = r.d.Journal.NextNumber()
		r.d.Journal.Lease(&state.Lease{Number: number, Record: record}, 0)
		r.d.Journal.Forgotten(l.recorded.Number, 0)
	}
	r.d.forgetAfterMaxTTL(number)
	if err := r.d.Nodes.Abandon(record); err != nil {
		r.d.Log.Error("an attempt from before the restart is not released", "error", err)
	}
	r.released[l.recorded.ReleasedBy] = l
}

// claim makes the lease belong to its process again, unless the process has ended, or else to its
// connection. If it is unknown whether the process has ended, the lease is not extended, but stays until
// its deadline.
func (r *restoration) claim(restart *locktable.Restart, l *restoredLease) {
	record, by := &l.recorded.Record, (*locktable.Client)(nil)
	var err error
	if l.OfProcess && l.Was.State != locktable.Kept {
		var fd int
		var p *heldProcess
		fd, err = process.OpenIf(l.PID, func(f process.Facts) error {
			if then := l.recorded.Holder.ProcessStarted; then != 0 && f.Started != then || f.Started > record.Since {
				return process.ErrNoProcess // another process got the pid
			}
			return nil
		})
		if err == nil {
			if p, err = r.d.Processes.use(fd, l.PID); err == nil {
				by = &p.client
			}
		}
	}
	isGone := errors.Is(err, process.ErrNoProcess) || errors.Is(err, process.ErrThread)
	if err != nil && !isGone {
		r.d.Log.Error("a lease from before the restart is not extended: its process may have ended",
			"lock", l.Waiter.Label(), "pid", l.PID, "error", err)
	}
	record.Keep = restart.Claim(&l.Lease, &l.Recorded, by, isGone, record.Keep)
	if l.IsUnclaimed && l.Conn < l.recorded.Number && r.hasEnded(l.PID, l.Asked) {
		l.holderGone = true
		r.gone++
	}
	if !l.IsFree {
		record.Holder = r.d.holderOf(&l.Requester, record.Since)
	}
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

// register makes a lease known, as a granted LOCK does.
func (l *restoredLease) register(d *Host) {
	h := l.heldLease
	if l.Was.State == locktable.Lost {
		h.lostAt.Store(int64(d.Clock()))
	}
	d.mu.Lock()
	var replaced []*locktable.Lease
	l.due, replaced, l.open = d.table.Restore(&h.Lease, &l.Recorded)
	d.mu.Unlock()
	d.startHeartbeat(h)                                   // unless it was lost
	if h.lease.Deadline() != l.recorded.Record.Deadline { // it was confirmed before recordDeadline could find it
		d.record(h, unchanged)
	}
	d.forgetReplaced(replaced)
	if l.Was.State != locktable.Lost {
		d.inQueue(&h.Waiter, func(q *locktable.Queue) { q.Restore(&h.Waiter, l.Was.State == locktable.Kept) })
	}
}

// beginAgain restarts the unanswered requests in their previous order. It first records the replays
// of all of them, because a request that has begun reads them on another goroutine.
func (r *restoration) beginAgain() {
	numbers := slices.Sorted(maps.Keys(r.recovered.Requests))
	for _, number := range numbers {
		ask := r.recovered.Requests[number]
		conn := r.conns[ask.Conn]
		if conn == nil {
			r.d.Journal.Answered(number) // its client is gone
			continue
		}
		replay := replayedRequest{since: ask.Since}
		if l := r.released[number]; l != nil {
			replay.released, replay.settled = l.recorded.Record.Names, l.wasPassed
		}
		conn.s.replays[number] = replay
	}
	for _, number := range numbers {
		ask := r.recovered.Requests[number]
		if conn := r.conns[ask.Conn]; conn != nil {
			r.waiting++
			conn.Begin(number, ask.Line)
		}
	}
}
