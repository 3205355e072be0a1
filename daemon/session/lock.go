package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// lockRequest is one LOCK or TRY under way.
type lockRequest struct {
	*heldLease // what it will be; a lease only once granted
	session    *session
	call       *server.Call
	ttl        time.Duration
	wait       time.Duration // ipc.Forever: no end
	guard      time.Duration
	max        time.Duration

	intent         *redlock.Intent // nil: the nodes need not know that it waits
	earlierFailure error           // what the LOCK ended with that it waited with before; nil: it did not

	done   chan struct{} // closed when the request has come to its end; nil while nobody wants to know (under the desk's mu)
	failed error         // then: why there is no lease
}

// start begins a LOCK, or one that goes on: limits, then the local queue, in the order of
// arrival. The rest waits.
func (s *session) start(a *lockRequest) server.Work {
	call := a.call
	if h := s.host.unclaimed.take(a); h != nil {
		return &resumeWork{s: s, call: call, h: h, again: a}
	}
	after, err := s.enter(a)
	if after != nil || err != nil {
		s.host.Processes.release(a.process)
	}
	switch {
	case err != nil:
		return s.refuse(call, err)
	case after != nil:
		return after
	}
	if err := redact(s.view(), s.host.Queue.Join(&a.waiter)); err != nil {
		a.complete(err)
		return s.refuse(call, err)
	}
	if a.waiter.Patient && a.waiter.Ready() != nil {
		s.host.Store.Prefer(&s.stored) // it has a place to lose now
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
		return nil, badOption("guard=0: LOST would come at the deadline, not before; at least 1 ms")
	}
	lease := &s.host.Cfg.Lease
	a := &lockRequest{
		heldLease: &heldLease{
			Requester: waitqueue.Requester{
				UID: s.uid, PID: s.pid, User: s.user,
				Owner: call.Owner, Note: call.Note, ID: call.ID,
				Asked: s.since(call),
			},
			number:    call.Number,
			hold:      call.Hold,
			heartbeat: newHeartbeat(call.Beat),
			index:     &s.desk,
			linger:    given(call, ipc.OptLinger, call.Linger, lease.Linger),
			session:   s,
		},
		session: s,
		call:    call,
		ttl:     given(call, ipc.OptTTL, call.TTL, lease.TTL),
		wait:    given(call, ipc.OptWait, call.Wait, ipc.Forever),
		guard:   call.Guard,
		max:     given(call, ipc.OptMax, call.Max, lease.MaxHold),
	}
	if call.Verb == ipc.VerbTry {
		a.wait = 0
	}
	a.waiter.Init(call.Names, k, a.wait != 0, &a.Requester, a)
	a.waiter.Owner = waitqueue.Owner{Client: s, Name: a.Owner}
	if err := a.checkOptions(s.host.Cfg); err != nil || a.hold != ipc.HoldPID {
		return a, err
	}
	return a, a.bindToProcess()
}

// bindToProcess has the lease be a process's, which is used until the end of the
// request (end) at least.
func (a *lockRequest) bindToProcess() error {
	p, err := a.session.useProcess(a.call)
	if err != nil {
		return err
	}
	a.process, a.index, a.PID = p, &p.desk, p.pid
	a.waiter.Owner = waitqueue.Owner{Client: p, Name: a.Owner}
	return nil
}

func given(call *server.Call, option ipc.OptionSet, value, otherwise time.Duration) time.Duration {
	if call.Has(option) {
		return value
	}
	return otherwise
}

// checkOptions holds the options against the config's bounds.
func (a *lockRequest) checkOptions(cfg *config.Config) error {
	longest := cfg.Quorum.MaxTTL
	switch {
	case a.ttl < redlock.MinTTL || a.ttl > longest:
		return badOption("ttl=%d: must be between %d and %d ms (max_ttl of the config)", ms(a.ttl), ms(redlock.MinTTL), ms(longest))
	case a.guard > a.ttl/2:
		return badOption("guard=%d: at most half of the ttl, %d ms", ms(a.guard), ms(a.ttl/2))
	case a.max != 0 && a.guard > a.max/2:
		return badOption("guard=%d: at most half of max, %d ms", ms(a.guard), ms(a.max/2))
	case a.max != 0 && a.max < redlock.MinTTL:
		return badOption("max=%d: at least %d ms", ms(a.max), ms(redlock.MinTTL))
	case cfg.Lease.MaxHold != 0 && (a.max == 0 || a.max > cfg.Lease.MaxHold):
		return badOption("max=%d: at most %d ms (lease.max_hold of the config)", ms(a.max), ms(cfg.Lease.MaxHold))
	case a.call.Has(ipc.OptBeat) && a.beatInterval() < minBeat:
		return badOption("beat=%d: at least %d ms; leave it out for none", ms(a.beatInterval()), ms(minBeat))
	case a.linger > longest:
		return badOption("linger=%d: at most %d ms (max_ttl of the config)", ms(a.linger), ms(longest))
	}
	return nil
}

// enter takes the request in. One owner cannot hold or want a name twice, except by a LOCK
// that joins the first one: the same LOCK with the same id=, or one with reentrant=yes. For
// these, it returns the work that waits with the first one.
func (s *session) enter(a *lockRequest) (after server.Work, err error) {
	if s.heldInOtherWay(a) {
		return nil, fmt.Errorf("%s: %w on this connection, with another hold=", a.waiter.Label(), errAlready)
	}
	var over map[*heldLease]bool
	for firsts := a.index.enter(a, over); firsts != nil; firsts = a.index.enter(a, over) {
		for _, first := range firsts {
			after, err = a.joinFirst(first)
			if !errors.Is(err, redlock.ErrReleased) {
				return after, err
			}
			if over == nil {
				over = map[*heldLease]bool{}
			}
			over[first.heldLease] = true
		}
	}
	if err := s.host.Limits.BeginLock(a.UID, len(a.names()), a.waiter.Patient, a.call.Replayed || a.earlierFailure != nil); err != nil {
		a.finish(err)
		return nil, err
	}
	a.countForProcess(1)
	return nil, nil
}

// countForProcess counts LOCKs under way that do not go by the connection, which has them to lose as well.
func (a *lockRequest) countForProcess(n int32) {
	if a.process != nil {
		a.session.processRequests.Add(n)
	}
}

// heldInOtherWay tells whether a connection that has the name itself wants it for a
// process, or the other way round: it would wait for itself.
func (s *session) heldInOtherWay(a *lockRequest) bool {
	others := s.leasesOfProcesses
	if a.process != nil {
		others = s.desk.all
	}
	for _, h := range others() {
		if h.Owner == a.Owner && h.lease.Err() == nil && waitqueue.Overlap(&h.waiter, &a.waiter) {
			return true
		}
	}
	return false
}

// grantedBefore is an ask that came to h already.
func grantedBefore(h *heldLease) *lockRequest {
	a := &lockRequest{heldLease: h, done: make(chan struct{})}
	close(a.done)
	return a
}

// Run waits for its turn, contends on the nodes, and answers.
func (a *lockRequest) Run() {
	err := a.acquire(a.call.Context())
	a.settle(err)
	a.answer()
}

// answer tells what the request came to, when it has left.
func (a *lockRequest) answer() {
	if err := a.outcome(); err != nil {
		a.session.refuse(a.call, err)
		if a.failed == nil { // it was granted, and lost since: CHECK tells, too
			a.session.host.rememberLoss(a.heldLease)
		}
		return
	}
	a.call.Reply(grantFields(a.call, a.heldLease))
	a.session.host.reportGranted(a.heldLease)
	a.session.host.logGranted(a)
}

// logGranted logs a grant, if the config asks for that.
func (d *Host) logGranted(a *lockRequest) {
	if d.LeaseLog.LogsGrants() {
		d.LeaseLog.Granted(leaseFacts(a.heldLease, a.lease), a.waited())
	}
}

// reportGranted notes that a client was answered: of a lease that was lost since LOST comes
// behind the OK.
func (d *Host) reportGranted(h *heldLease) {
	if h.markReported() {
		d.reportLoss(h)
	}
}

func (a *lockRequest) acquire(ctx context.Context) error {
	if err := a.waitUntilReady(ctx); err != nil {
		a.endIntent()
		return err
	}
	r := a.Request()
	r.Intent = a.intent
	r.Pending, r.Yield = a.session.host.Queue.TakeAttempt(&a.waiter)
	lease, err := a.session.host.Nodes.Acquire(ctx, r)
	if a.lease = lease; err == nil {
		a.session.host.traceAttempt(a.heldLease, lease, nil)
	}
	if errors.Is(err, redlock.ErrHeld) && a.waitLeft() != 0 && isClosed(a.holderGone()) {
		return errInputEnded // or the process, as outcome says
	}
	return err
}

// Request is what is asked of the nodes. It is also for whoever hands the lock
// over to this one: it must not touch the call, which may be over by then.
func (a *lockRequest) Request() redlock.Request {
	d, h := a.session.host, a.heldLease
	r := redlock.Request{
		Shared: a.waiter.Kind.Shared,
		Slots:  int(a.waiter.Kind.Slots),
		TTL:    a.ttl,
		Wait:   a.waitLeft(),
		Dry:    a.withoutQuorum(),
		Held:   errors.Is(d.Queue.LastFailure(&h.waiter), redlock.ErrHeld),
		Enough: a.holderGone(),
		Failed: func(err error) { d.attemptFailed(h, err) },
		Keep:   a.hold != ipc.HoldTTL,
		Guard:  a.guard,
		Max:    a.max,
		Holder: redlock.Holder{Host: d.hostname, PID: a.PID, UID: a.UID, User: a.User},
		OnLost: func(l *redlock.Lease) { d.leaseLost(h, l) },
	}
	if h.number != 0 {
		r.Noting = func(taken redlock.Record) { d.Journal.Acquiring(h.number, taken) }
	}
	if names := a.names(); len(names) > 1 {
		r.Names = names
	} else {
		r.Name = names[0]
	}
	return r
}

// Undelivered forgets an attempt that a hand-over noted after this request was answered.
// Otherwise it would be noted as one that is under way.
func (a *lockRequest) Undelivered() { a.session.host.Journal.Forgotten(a.number, 0) }

// withoutQuorum is how long no quorum could vote already for who stood behind one that
// met none, or waited with it: for longer than its ttl nobody waits for a quorum.
func (a *lockRequest) withoutQuorum() time.Duration {
	if errors.Is(a.earlierFailure, redlock.ErrNoQuorum) || errors.Is(a.session.host.Queue.LastFailure(&a.waiter), redlock.ErrNoQuorum) {
		return a.waited()
	}
	return 0
}

// waitLeft is what is left of wait=.
func (a *lockRequest) waitLeft() time.Duration {
	if a.wait <= 0 { // none at all, or for ever
		return a.wait
	}
	return max(a.wait-a.waited(), 0)
}

func (a *lockRequest) waited() time.Duration { return a.session.host.Clock() - a.Asked }

// waitUntilReady waits until nothing in the wait queue blocks the request.
func (a *lockRequest) waitUntilReady(ctx context.Context) error {
	if a.waiter.Ready() == nil || isClosed(a.waiter.Ready()) {
		return nil
	}
	if a.wait == 0 {
		return a.whyNotReady()
	}
	timer := time.NewTimer(a.timeLeft())
	defer timer.Stop()
	near, renewal := a.waiter.NextInLine(), (<-chan time.Time)(nil)
	for {
		select {
		case <-a.waiter.Ready():
			return nil
		case <-near:
			near = nil
			a.announceIntent()
			ticker := time.NewTicker(a.ttl / intentRenewals)
			defer ticker.Stop()
			renewal = ticker.C
		case <-renewal:
			a.announceIntent()
		case <-timer.C:
			return a.whyNotReady()
		case <-a.holderGone():
			return errInputEnded // or the process, as outcome says
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// intentRenewals is how often a writer intent is renewed during a ttl: as often as a lease is
// extended.
const intentRenewals = 3

// holderGone is closed when nobody is left to hold the lease: the client's input, or
// the process, has ended, and the lease would end with it.
func (a *lockRequest) holderGone() <-chan struct{} {
	switch a.hold {
	case ipc.HoldConn:
		return a.session.inputEnded
	case ipc.HoldPID:
		return a.process.gone
	}
	return nil
}

// timeLeft is when waiting for a turn ends.
func (a *lockRequest) timeLeft() time.Duration {
	if a.wait == ipc.Forever {
		return math.MaxInt64
	}
	return a.waitLeft()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// settle ends the request: with a lease, its place stays in the queue.
func (a *lockRequest) settle(err error) {
	d := a.session.host
	if begun := d.Queue.Withdraw(&a.waiter); begun != nil {
		begun.Abandon() // before anybody is called
	}
	if err == nil {
		a.granted(d)
		d.Leases.add(a.heldLease)
		a.noteGranted()
		d.Queue.Granted(&a.waiter, a.heldLease)
		d.index(a.heldLease)
		d.Store.Prefer(&a.session.stored)
	} else {
		d.Queue.Leave(&a.waiter, ofNodes(err))
	}
	a.complete(err)
}

// noteGranted notes the lease, with the answer to its LOCK.
func (a *lockRequest) noteGranted() {
	if a.number != 0 {
		a.call.RecordingAnswer()
		a.session.host.noteGranted(a.heldLease)
	}
}

// complete says that the request has come to its end.
func (a *lockRequest) complete(err error) {
	a.session.host.Limits.EndLock(a.UID, len(a.names()), a.waiter.Patient, err == nil)
	a.session.host.recorder.Answered(a.waited(), err == nil)
	a.finish(err)
	a.countForProcess(-1)
	a.session.host.Processes.release(a.process)
}

// finish tells the requests that joined this one, or repeat it, how it ended.
func (a *lockRequest) finish(err error) {
	if a.failed = err; err != nil {
		a.clearCounts()
	}
	a.index.removeRequest(a)
	if err != nil {
		a.session.host.settleReentrancy(a.heldLease)
	}
}

// ofNodes is what an attempt met on the nodes, which the next in line meets as
// well; nil where it ended for a reason of its own.
func ofNodes(err error) error {
	if errors.Is(err, redlock.ErrHeld) || errors.Is(err, redlock.ErrNoQuorum) {
		return err
	}
	return nil
}

var errUndone = fmt.Errorf("%w: the LOCK that it repeats was given up, or unlocked since", server.ErrCancelled)

var errInputEnded = fmt.Errorf("%w: the input ended while it waited", server.ErrCancelled)

// kindOf reads the options, and refuses what no node could keep.
func kindOf(call *server.Call) (waitqueue.Kind, error) {
	k := waitqueue.Kind{Shared: call.Mode == ipc.Shared}
	if call.Slots > 1 { // one slot is what one alone has
		k.Slots = int16(call.Slots) // at most ipc.MaxSlots
	}
	switch {
	case k.Slots > 0 && k.Shared:
		return k, badOption("slots=%d with mode=shared: readers are as many as there are; leave one of the two out", k.Slots)
	case k.Slots > 0 && len(call.Names) > 1:
		return k, badOption("slots=%d with %d names: a slot is one of one name; LOCK them one after the other", k.Slots, len(call.Names))
	}
	return k, nil
}

// modeOf is the word for a mode in LIST and WHO.
func modeOf(shared bool) string {
	if shared {
		return ipc.Shared.String()
	}
	return ipc.Exclusive.String()
}

// traceAttempt is told how one attempt to get a lock ended: with a lease, or why not.
func (d *Host) traceAttempt(h *heldLease, lease *redlock.Lease, err error) {
	switch {
	case !d.Log.IsTrace():
	case err != nil:
		d.Log.Trace("attempt failed", "lock", h.waiter.Label(), "user", h.User, "pid", h.PID, "error", err)
	default:
		d.Log.Trace("attempt granted", "lock", h.waiter.Label(), "user", h.User, "pid", h.PID,
			"fence", lease.Fence(), "validity", lease.Validity())
	}
}

func (d *Host) attemptFailed(h *heldLease, err error) {
	d.traceAttempt(h, nil, err)
	d.Queue.NoteFailure(&h.waiter, err)
}
