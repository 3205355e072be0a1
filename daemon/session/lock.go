package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// lockRequest is one LOCK or TRY under way.
type lockRequest struct {
	*heldLease // becomes a lease when it is granted
	session    *session
	call       *server.Call
	ttl        time.Duration
	wait       time.Duration // ipc.Forever: no end
	guard      time.Duration
	max        time.Duration

	entry    *redlock.Entry // its place in the nodes' queues before it asks them for the lock; nil: none
	rejoined bool           // it had joined another LOCK, which got an error

	done    chan struct{} // closed when the request has ended; nil while no other request waits for it; guarded by the Host's mu
	failure error         // after the end: why there is no lease
}

// lock handles a LOCK that Begin allowed: it reads the options, then calls start.
func (s *session) lock(call *server.Call) server.Work {
	a, err := s.newLockRequest(call)
	if err != nil {
		return s.refuse(call, err)
	}
	return s.start(a)
}

// start begins a LOCK, or continues one. It checks the limits, then joins the wait queue, in the
// order of arrival. The returned Work does the rest.
func (s *session) start(a *lockRequest) server.Work {
	call := a.call
	if h := s.host.takeUnclaimed(a); h != nil {
		return &resumeWork{s: s, call: call, h: h, repeatedLock: a}
	}
	after, err := s.registerRequest(a)
	if after != nil || err != nil {
		s.host.Processes.release(a.process())
	}
	switch {
	case err != nil:
		return s.refuse(call, err)
	case after != nil:
		return after
	}
	s.host.inQueue(&a.Waiter, func(q *locktable.Queue) { err = q.Join(&a.Waiter) })
	if err != nil {
		a.endUngranted(err)
		return s.refuse(call, redact(s.view(), err))
	}
	if a.Waiter.Patient && a.Waiter.Ready() != nil {
		s.host.Store.Prefer(&s.stored) // the client would lose its position in the queue
	}
	return a
}

// newLockRequest reads the options, with the defaults of the config.
func (s *session) newLockRequest(call *server.Call) (*lockRequest, error) {
	k, err := kindOf(call)
	if err != nil {
		return nil, err
	}
	if call.Has(ipc.OptGuard) && call.Guard == 0 {
		return nil, badOption("guard=0s: LOST would come at the deadline, not before; at least 1ms")
	}
	lease := &s.host.Cfg.Lease
	a := &lockRequest{
		heldLease: &heldLease{
			recording: &recording{number: call.Number, conn: s.number},
			hold:      call.Hold,
			heartbeat: newHeartbeat(call.Beat),
			delays:    newEndDelays(optionOr(call, ipc.OptLinger, call.Linger, lease.Linger), call.Min),
		},
		session: s,
		call:    call,
		ttl:     optionOr(call, ipc.OptTTL, call.TTL, lease.TTL),
		wait:    optionOr(call, ipc.OptWait, call.Wait, ipc.Forever),
		guard:   call.Guard,
		max:     optionOr(call, ipc.OptMax, call.Max, lease.MaxHold),
	}
	if call.Verb == ipc.VerbTry {
		a.wait = 0
	}
	a.Requester = locktable.Requester{
		UID: s.uid, PID: s.pid, User: s.user,
		Owner: call.Owner, Note: call.Note, ID: call.ID,
		Asked: s.since(call),
	}
	a.request = a
	a.Init(call.Names, k, a.wait != 0, a.heldLease)
	a.SetHolder(&s.client, &s.client)
	if err := a.checkOptions(s.host.Cfg); err != nil || a.hold != ipc.HoldPID {
		return a, err
	}
	p, err := s.useProcess(call) // it is watched at least until the request is complete
	if err == nil {
		a.PID = p.pid
		a.SetHolder(&p.client, &s.client)
	}
	return a, err
}

func optionOr(call *server.Call, option ipc.OptionSet, value, otherwise time.Duration) time.Duration {
	if call.Has(option) {
		return value
	}
	return otherwise
}

// checkOptions checks the options against the bounds of the config.
func (a *lockRequest) checkOptions(cfg *config.Config) error {
	longest := cfg.Quorum.MaxTTL
	if err := checkTTL(a.ttl, longest); err != nil {
		return err
	}
	switch {
	case a.guard > a.ttl/2:
		return badOption("guard=%v: at most half of the ttl, %v", a.guard, a.ttl/2)
	case a.max != 0 && a.guard > a.max/2:
		return badOption("guard=%v: at most half of max, %v", a.guard, a.max/2)
	case a.max != 0 && a.max < redlock.MinTTL:
		return badOption("max=%v: at least %v", a.max, redlock.MinTTL)
	case cfg.Lease.MaxHold != 0 && (a.max == 0 || a.max > cfg.Lease.MaxHold):
		return badOption("max=%v: at most %v (lease.max_hold of the config)", a.max, cfg.Lease.MaxHold)
	case a.call.Has(ipc.OptBeat) && a.beatInterval() < minBeat:
		return badOption("beat=%v: at least %v; leave it out for none", a.beatInterval(), minBeat)
	case a.linger() > longest:
		return badOption("linger=%v: at most %v (max_ttl of the config)", a.linger(), longest)
	case a.call.Min == 0:
	case a.hold == ipc.HoldTTL:
		return badOption("min= with hold=ttl: nothing extends such a lease; give it a longer ttl=")
	case a.call.Has(ipc.OptBeat):
		return badOption("min= with beat=: without a BEAT the lock is lost, even before min= has passed; use only one of the two")
	case a.max != 0 && a.call.Min > a.max:
		return badOption("min=%v: at most %v (max=, or lease.max_hold of the config)", a.call.Min, a.max)
	}
	return nil
}

// checkTTL checks a ttl against the bounds of redlock and of the config.
func checkTTL(ttl, longest time.Duration) error {
	if ttl < redlock.MinTTL || ttl > longest {
		return badOption("ttl=%v: must be between %v and %v (max_ttl of the config)", ttl, redlock.MinTTL, longest)
	}
	return nil
}

// registerRequest registers the request until it ends. An owner cannot hold or want a name twice,
// unless the second LOCK joins the first one: it has the same id=, or reentrant=yes. For such a LOCK,
// registerRequest returns the work that waits for the first one.
func (s *session) registerRequest(a *lockRequest) (server.Work, error) {
	var ended map[*locktable.Lease]bool
	for {
		firsts, err := s.addRequest(a, ended)
		if firsts == nil || err != nil {
			return nil, err
		}
		for _, first := range firsts {
			work, err := a.joinFirst(first)
			if !errors.Is(err, redlock.ErrReleased) {
				return work, err
			}
			if ended == nil {
				ended = map[*locktable.Lease]bool{}
			}
			ended[&first.Lease] = true
		}
	}
}

// wasAllowed reports whether the limits have allowed the LOCK already: before a restart, or before it
// joined another LOCK.
func (a *lockRequest) wasAllowed() bool { return a.call.Replayed || a.rejoined }

// addRequest adds the request to those of its owner, if a drain or a limit does not refuse it. If earlier
// LOCKs of the owner have some of its names (see locktable.Client.Begin), it returns these instead.
func (s *session) addRequest(a *lockRequest, ended map[*locktable.Lease]bool) (firsts []*lockRequest, err error) {
	d := s.host
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.client.HoldsOtherwise(&a.Lease) {
		return nil, fmt.Errorf("%s: %w on this connection, with another hold=", a.Waiter.Label(), errAlready)
	}
	for _, l := range a.Holder().Begin(&a.Lease, ended) {
		firsts = append(firsts, leaseOf(l).lockLocked())
	}
	if firsts != nil {
		return firsts, nil
	}
	if left, drains := d.drainLeft(); drains {
		err = &drainError{left}
	} else {
		err = d.table.Charge(&a.Lease, a.wasAllowed())
	}
	if err != nil {
		a.Holder().End(&a.Lease)
		return nil, err
	}
	a.countForProcess(1)
	return nil, nil
}

// lockLocked returns the LOCK of a lease, with a done channel, so that another LOCK can wait for it. It
// may have ended.
func (h *heldLease) lockLocked() *lockRequest {
	a := h.request
	switch {
	case a == nil:
		a = &lockRequest{heldLease: h, done: make(chan struct{})}
		close(a.done)
	case a.done == nil:
		a.done = make(chan struct{})
	}
	return a
}

// endLocked ends the request for other LOCKs of its owner.
func (a *lockRequest) endLocked() {
	a.Holder().End(&a.Lease)
	if a.done != nil {
		close(a.done)
	}
}

// countForProcess counts the connection's LOCKs under way with hold=pid. They end with the
// connection, although they are in the index of the process.
func (a *lockRequest) countForProcess(n int32) {
	if a.OfProcess {
		a.session.processRequests.Add(n)
	}
}

// Run waits until the request is next on this host, takes the lock on the nodes, and answers.
func (a *lockRequest) Run() {
	err := a.acquire(a.call.Context())
	a.settle(err)
	a.answer()
}

// answer answers the request, which has ended.
func (a *lockRequest) answer() {
	if err := a.outcome(); err != nil {
		a.logRefused(err)
		a.session.refuse(a.call, err)
		if a.failure == nil { // it was granted, and lost since: CHECK must report the loss
			a.session.host.apply(a.heldLease, locktable.LossRemembered)
		}
		return
	}
	a.call.Reply(a.session.host.grantFields(a.call, a.heldLease))
	a.session.host.apply(a.heldLease, locktable.GrantReported) // if the lease was lost meanwhile, LOST follows
	if d := a.session.host; d.LeaseLog.LogsGrants() {
		d.LeaseLog.Granted(d.logFacts(a.heldLease, a.lease), a.waited())
	}
}

// logRefused logs a request that did not get the lock because of another client or the nodes, if the
// config asks for that. So an operator can see why a job was skipped.
func (a *lockRequest) logRefused(err error) {
	d, code := a.session.host, codeOf(err)
	if code != ipc.CodeHeld && code != ipc.CodeNoQuorum || !d.LeaseLog.LogsGrants() {
		return
	}
	var by logging.Holder
	if held, ok := errors.AsType[*redlock.HeldError](err); ok {
		by = logging.Holder{Host: held.Holder.Host, User: held.Holder.User, PID: held.Holder.PID}
	}
	d.LeaseLog.Refused(d.logFacts(a.heldLease, nil), a.waited(), string(code), by)
}

func (a *lockRequest) acquire(ctx context.Context) error {
	if err := a.waitUntilReady(ctx); err != nil {
		if a.entry != nil { // it never asked the nodes for the lock
			a.entry.End()
		}
		return err
	}
	d := a.session.host
	var r redlock.Request
	d.inQueue(&a.Waiter, func(q *locktable.Queue) {
		r = a.requestLocked(q)
		r.Pending, r.Yield = q.TakeAttempt(&a.Waiter)
	})
	r.Entry, r.Yield = a.entry, r.Yield && a.Waiter.Patient
	lease, err := d.Nodes.Acquire(ctx, r)
	if a.lease = lease; err == nil {
		d.traceAttempt(a.heldLease, lease, nil)
	}
	if errors.Is(err, redlock.ErrHeld) && a.waitLeft() != 0 && isClosed(a.holderGone()) {
		return errInputEnded // or the process, as outcome says
	}
	return err
}

// waitUntilReady waits until nothing in the wait queue blocks the request.
func (a *lockRequest) waitUntilReady(ctx context.Context) error {
	if a.Waiter.Ready() == nil || isClosed(a.Waiter.Ready()) {
		return nil
	}
	if a.wait == 0 {
		return a.notReadyError()
	}
	timer := time.NewTimer(a.timeLeft())
	defer timer.Stop()
	nextInLine, renewal := a.Waiter.NextInLine(), (<-chan time.Time)(nil)
	for {
		select {
		case <-a.Waiter.Ready():
			return nil
		case <-nextInLine:
			nextInLine = nil
			a.enter()
			ticker := time.NewTicker(redlock.RenewEntry)
			defer ticker.Stop()
			renewal = ticker.C
		case <-renewal:
			a.enter()
		case <-timer.C:
			return a.notReadyError()
		case <-a.holderGone():
			return errInputEnded // or the process, as outcome says
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// holderGone returns a channel that is closed when a lease would end at once, because the client's
// input or the process has ended. It is nil if the lease does not depend on these.
func (a *lockRequest) holderGone() <-chan struct{} {
	switch a.hold {
	case ipc.HoldConn:
		return a.session.inputEnded
	case ipc.HoldPID:
		return a.process().ended
	}
	return nil
}

// timeLeft returns how long the request may wait in the queue.
func (a *lockRequest) timeLeft() time.Duration {
	if a.wait == ipc.Forever {
		return math.MaxInt64
	}
	return a.waitLeft()
}

// enter puts the request into the nodes' queues, or makes sure that it is there. An exclusive request
// waits in the daemon for the readers of this host, and readers of other hosts must not overtake it:
// see locktable.Waiter.NextInLine.
func (a *lockRequest) enter() {
	if a.entry != nil {
		a.entry.Renew()
		return
	}
	entry, err := a.session.host.Nodes.Enter(a.Request())
	if err != nil { // a bad request: Acquire returns the error
		return
	}
	a.entry = entry
}

// Request returns the request to the nodes.
func (a *lockRequest) Request() (r redlock.Request) {
	a.session.host.inQueue(&a.Waiter, func(q *locktable.Queue) { r = a.requestLocked(q) })
	return r
}

// requestLocked is Request for a caller that has locked the queue. The client that hands the lock over
// to this one also calls it, so it must not use a.call, which may have ended by then.
func (a *lockRequest) requestLocked(q *locktable.Queue) redlock.Request {
	d, h := a.session.host, a.heldLease
	r := redlock.Request{
		Shared:       a.Waiter.Kind.Shared,
		Slots:        int(a.Waiter.Kind.Slots),
		TTL:          a.ttl,
		Wait:         a.waitLeft(),
		Asked:        a.Asked,
		Held:         errors.Is(q.LastFailure(&h.Waiter), redlock.ErrHeld),
		StopRetrying: a.holderGone(),
		Failed: func(err error) {
			d.traceAttempt(h, nil, err)
			d.inQueue(&h.Waiter, func(q *locktable.Queue) { q.NoteFailure(&h.Waiter, err) })
		},
		Keep:   a.hold != ipc.HoldTTL,
		Block:  a.blockSize(q.HasFollower(&h.Waiter)),
		Guard:  a.guard,
		Max:    a.max,
		Holder: redlock.Holder{Host: d.hostname, PID: a.PID, UID: a.UID, User: a.User},
		OnLost: func(l *redlock.Lease) { d.leaseLost(h, l) },
	}
	if h.number != 0 {
		r.BeforeAttempt = func(taken redlock.Record) { d.Journal.Lease(&state.Lease{Number: h.number, Record: taken}, 0) }
	}
	if names := a.Waiter.Names; len(names) > 1 {
		r.Names = names
	} else {
		r.Name = names[0]
	}
	return r
}

// blockSize returns how many fencing tokens the nodes reserve for passes: MaxBlock or none. A block
// must last until the next confirmation, and the same clients can request the lock several times
// until then. If the request had to wait on this host, other clients want the lock, and may want it
// again soon. So they do if another waiter of this host wants exactly the same names (isFollowed).
func (a *lockRequest) blockSize(isFollowed bool) int {
	switch {
	case a.hold == ipc.HoldTTL || !a.Waiter.Kind.Exclusive():
		return 0
	case a.Waiter.Ready() != nil, isFollowed:
		return redlock.MaxBlock
	}
	return 0
}

// waitLeft returns the rest of wait=.
func (a *lockRequest) waitLeft() time.Duration {
	if a.wait <= 0 { // 0, or ipc.Forever
		return a.wait
	}
	return max(a.wait-a.waited(), 0)
}

func (a *lockRequest) waited() time.Duration { return a.session.host.Clock() - a.Asked }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// settle ends the request. If it was granted, it stays in the queue as a holder.
func (a *lockRequest) settle(err error) {
	d := a.session.host
	if err == nil {
		a.settleGranted()
		return
	}
	var begun *redlock.PendingAttempt
	d.inQueue(&a.Waiter, func(q *locktable.Queue) { begun = q.Withdraw(&a.Waiter) })
	if begun != nil {
		begun.Abandon() // before another waiter becomes ready
	}
	d.inQueue(&a.Waiter, func(q *locktable.Queue) { q.Leave(&a.Waiter, nodesError(err)) })
	a.endUngranted(err)
}

// settleGranted makes the lease known by its id, records it together with the answer to its LOCK,
// and only then makes it known by its names.
func (a *lockRequest) settleGranted() {
	d, h := a.session.host, a.heldLease
	if h.number != 0 {
		a.call.RecordingAnswer()
	}
	var due locktable.Due
	d.record(h, func() (by uint64) {
		due, h.recording.isGranted = d.table.Grant(&h.Lease), h.number != 0
		return h.number
	})
	d.perform(h, due, nil)
	if h.OfProcess {
		d.Processes.keep(h.process())
	}
	a.countEnd(true)
	d.inQueue(&a.Waiter, func(q *locktable.Queue) { q.Granted(&a.Waiter) })
	d.mu.Lock()
	replaced, open := d.table.Name(&h.Lease)
	a.endLocked()
	h.request = nil
	d.mu.Unlock()
	d.forgetReplaced(replaced)
	if !open {
		d.holderEnded(h)
	}
	d.Store.Prefer(&a.session.stored)
	d.Processes.release(h.process())
}

// endUngranted ends a request that start has begun, and that is not in the queue any more. Requests that
// joined it, or repeat it, learn why.
func (a *lockRequest) endUngranted(err error) {
	d := a.session.host
	a.countEnd(false)
	d.mu.Lock()
	a.failure = err
	a.endLocked()
	due := d.table.Apply(&a.Lease, locktable.NotGranted)
	d.mu.Unlock()
	d.perform(a.heldLease, due, nil)
	d.Processes.release(a.process())
}

// countEnd counts the end of the request.
func (a *lockRequest) countEnd(granted bool) {
	a.session.host.recorder.Answered(a.waited(), granted)
	a.countForProcess(-1)
}

// kindOf reads the kind of the lock from the options. It refuses impossible combinations.
func kindOf(call *server.Call) (locktable.Kind, error) {
	k := locktable.Kind{Shared: call.Mode == ipc.Shared}
	if call.Slots > 1 { // a single slot is an exclusive lock
		k.Slots = int16(call.Slots) // at most ipc.MaxSlots
	}
	switch {
	case k.Slots > 0 && k.Shared:
		return k, badOption("slots=%d with mode=shared: the number of readers has no limit; use only one of the two", k.Slots)
	case k.Slots > 0 && len(call.Names) > 1:
		return k, badOption("slots=%d with %d names: a slot belongs to one name; LOCK the names one after the other", k.Slots, len(call.Names))
	}
	return k, nil
}

// modeOf returns the word for a mode in LIST and WHO.
func modeOf(shared bool) string {
	if shared {
		return ipc.Shared.String()
	}
	return ipc.Exclusive.String()
}

// traceAttempt logs the result of an attempt: a lease or an error.
func (d *Host) traceAttempt(h *heldLease, lease *redlock.Lease, err error) {
	switch {
	case !d.Log.IsTrace():
	case err != nil:
		d.Log.Trace("attempt failed", "lock", h.Waiter.Label(), "user", h.User, "pid", h.PID, "error", err)
	default:
		d.Log.Trace("attempt granted", "lock", h.Waiter.Label(), "user", h.User, "pid", h.PID,
			"fence", lease.Fence(), "validity", lease.Validity())
	}
}

// notReadyError returns why the request cannot have the lock, if a client of this host blocks it and
// no node was asked.
func (a *lockRequest) notReadyError() error {
	d := a.session.host
	var obstacle locktable.Obstacle
	d.inQueue(&a.Waiter, func(q *locktable.Queue) { obstacle = q.Obstacle(&a.Waiter) })
	switch {
	case obstacle.Holder != nil:
		return a.session.heldHereError(&a.Waiter, obstacle)
	case obstacle.Waiter != nil:
		return a.session.blockedByWaiterError(&a.Waiter, obstacle)
	case obstacle.Failure != nil:
		return renameError(a.session.view(), obstacle.Failure, &a.Waiter)
	}
	return &redlock.HeldError{Name: a.Waiter.Label()} // the obstacle has just gone, but the wait has ended
}

// blockedByWaiterError returns the error for a waiter behind another waiter of this host, which
// waits for readers, for another of its names, or for the nodes.
func (s *session) blockedByWaiterError(p *locktable.Waiter, obstacle locktable.Obstacle) error {
	held := &redlock.HeldError{
		Name: p.Label(), Blocked: blockedName(p, obstacle.Name),
		Holder: s.host.holderOf(obstacle.Waiter.Requester, obstacle.Waiter.Requester.Asked), Waiting: true,
	}
	if obstacle.Blockage != nil && obstacle.Blockage.Together {
		held.Shared = true
		return held
	}
	return &behindError{held, s.blockedText(obstacle)}
}

// blockedText returns what the earlier waiter waits for, without the names that the client may not
// see.
func (s *session) blockedText(obstacle locktable.Obstacle) string {
	by, view := obstacle.Blockage, s.view()
	switch {
	case by != nil && by.Held:
		return fmt.Sprintf("and waits for %s, which %v holds", view.Name(by.Name), by.Requester)
	case by != nil:
		return fmt.Sprintf("and waits for %s, which %v asked for earlier", view.Name(by.Name), by.Requester)
	case obstacle.Failure != nil:
		return fmt.Sprintf("and waits for %s, which others hold, at least in part", view.Label(obstacle.Waiter.Names))
	}
	return "and is asking the nodes for it"
}

// heldHereError returns the error for a waiter if a client of this daemon holds its lock.
func (s *session) heldHereError(p *locktable.Waiter, obstacle locktable.Obstacle) error {
	w, kind, lease := obstacle.Holder, obstacle.Kind, obstacle.Grant
	return &redlock.HeldError{
		Name:    s.view().Label(w.Names),
		Blocked: blockedName(p, obstacle.Name),
		Holder:  s.host.holderOf(w.Requester, lease.Since()),
		Shared:  kind.Shared,
		Slots:   int(kind.Slots),
		TTL:     max(lease.Validity(), time.Millisecond),
	}
}

// blockedName returns the name that another client has, if a waiter wants several names; otherwise "".
func blockedName(p *locktable.Waiter, name string) string {
	if len(p.Names) == 1 {
		return ""
	}
	return name
}

// holderOf describes a client that has held or wanted a lock since a BootTime.
func (d *Host) holderOf(requester *locktable.Requester, since time.Duration) redlock.Holder {
	return redlock.Holder{
		Host: d.hostname, PID: requester.PID, UID: requester.UID, User: requester.User,
		Since: time.Now().Add(since - d.Clock()),
	}
}
