package daemon

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

// ask is one LOCK or TRY under way.
type ask struct {
	*holding // what it will be; a lease only once granted
	s        *session
	call     *server.Call
	ttl      time.Duration
	wait     time.Duration // ipc.Forever: no end
	guard    time.Duration
	max      time.Duration

	intent *redlock.Intent // nil: the nodes need not know that it waits
	past   error           // what the LOCK ended with that it waited with before; nil: it did not

	done   chan struct{} // closed when the request has come to its end; nil while nobody wants to know (under the desk's mu)
	failed error         // then: why there is no lease
}

// lock is for a LOCK that is allowed (Begin): its options, and then start.
func (s *session) lock(call *server.Call) server.Work {
	a, err := s.newAsk(call)
	if err != nil {
		return s.refuse(call, err)
	}
	return s.start(a)
}

// start begins a LOCK, or one that goes on: limits, then the local queue, in the order of
// arrival. The rest waits.
func (s *session) start(a *ask) server.Work {
	call := a.call
	if h := s.d.orphans.take(a); h != nil {
		return &resume{s: s, call: call, h: h, again: a}
	}
	after, err := s.enter(a)
	if after != nil || err != nil {
		s.d.processes.release(a.process)
	}
	switch {
	case err != nil:
		return s.refuse(call, err)
	case after != nil:
		return after
	}
	if err := redact(s.view(), s.d.queue.Join(&a.waiter)); err != nil {
		a.end(err)
		return s.refuse(call, err)
	}
	if a.waiter.Patient && a.waiter.Ready() != nil {
		s.d.store.Prefer(&s.stored) // it has a place to lose now
	}
	return a
}

// newAsk reads the options, with the defaults of the config.
func (s *session) newAsk(call *server.Call) (*ask, error) {
	k, err := kindOf(call)
	if err != nil {
		return nil, err
	}
	if call.Has(ipc.OptGuard) && call.Guard == 0 {
		return nil, badOption("guard=0: LOST would come at the deadline, not before; at least 1 ms")
	}
	lease := &s.d.cfg.Lease
	a := &ask{
		holding: &holding{
			Requester: waitqueue.Requester{
				UID: s.uid, PID: s.pid, User: s.user,
				Owner: call.Owner, Note: call.Note, ID: call.ID,
				Asked: s.since(call),
			},
			number:  call.Number,
			hold:    call.Hold,
			pulse:   newPulse(call.Beat),
			first:   &s.desk,
			linger:  given(call, ipc.OptLinger, call.Linger, lease.Linger),
			session: s,
		},
		s:     s,
		call:  call,
		ttl:   given(call, ipc.OptTTL, call.TTL, lease.TTL),
		wait:  given(call, ipc.OptWait, call.Wait, ipc.Forever),
		guard: call.Guard,
		max:   given(call, ipc.OptMax, call.Max, lease.MaxHold),
	}
	if call.Verb == ipc.VerbTry {
		a.wait = 0
	}
	a.waiter.Init(call.Names, k, a.wait != 0, &a.Requester, a)
	a.waiter.Owner = waitqueue.Owner{Client: s, Name: a.Owner}
	if err := a.check(s.d.cfg); err != nil || a.hold != ipc.HoldPID {
		return a, err
	}
	return a, a.entrust()
}

// entrust has the lease be a process's, which is used until the end of the
// request (end) at least.
func (a *ask) entrust() error {
	p, err := a.s.useProcess(a.call)
	if err != nil {
		return err
	}
	a.process, a.first, a.PID = p, &p.desk, p.pid
	a.waiter.Owner = waitqueue.Owner{Client: p, Name: a.Owner}
	return nil
}

func given(call *server.Call, option ipc.OptionSet, value, otherwise time.Duration) time.Duration {
	if call.Has(option) {
		return value
	}
	return otherwise
}

// check holds the options against the config's bounds.
func (a *ask) check(cfg *config.Config) error {
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
	case a.call.Has(ipc.OptBeat) && a.beat() < leastBeat:
		return badOption("beat=%d: at least %d ms; leave it out for none", ms(a.beat()), ms(leastBeat))
	case a.linger > longest:
		return badOption("linger=%d: at most %d ms (max_ttl of the config)", ms(a.linger), ms(longest))
	}
	return nil
}

// enter takes the request in: the same owner cannot hold or ask for a name
// twice, but for what goes by its first LOCK (after): the same one with the same
// id=, and others with reentrant=yes.
func (s *session) enter(a *ask) (after server.Work, err error) {
	if s.crosses(a) {
		return nil, fmt.Errorf("%s: %w on this connection, with another hold=", a.waiter.Label(), errAlready)
	}
	var over map[*holding]bool
	for firsts := a.first.enter(a, over); firsts != nil; firsts = a.first.enter(a, over) {
		for _, first := range firsts {
			after, err = a.after(first)
			if !errors.Is(err, redlock.ErrReleased) {
				return after, err
			}
			if over == nil {
				over = map[*holding]bool{}
			}
			over[first.holding] = true
		}
	}
	if err := s.d.limits.BeginLock(a.UID, len(a.names()), a.waiter.Patient, a.call.Replayed || a.past != nil); err != nil {
		a.over(err)
		return nil, err
	}
	a.awaited(1)
	return nil, nil
}

// awaited counts LOCKs under way that do not go by the connection, which has them to lose as well.
func (a *ask) awaited(n int32) {
	if a.process != nil {
		a.s.awaits.Add(n)
	}
}

// crosses tells whether a connection that has the name itself wants it for a
// process, or the other way round: it would wait for itself.
func (s *session) crosses(a *ask) bool {
	others := s.entrusted
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
func grantedBefore(h *holding) *ask {
	a := &ask{holding: h, done: make(chan struct{})}
	close(a.done)
	return a
}

// Run waits for its turn, contends on the nodes, and answers.
func (a *ask) Run() {
	err := a.acquire(a.call.Context())
	a.leave(err)
	a.answer()
}

// answer tells what the request came to, when it has left.
func (a *ask) answer() {
	if err := a.outcome(); err != nil {
		a.s.refuse(a.call, err)
		if a.failed == nil { // it was granted, and lost since: CHECK tells, too
			a.s.d.remember(a.holding)
		}
		return
	}
	a.call.Reply(grantFields(a.call, a.holding))
	a.s.d.granted(a.holding)
}

// granted notes that a client was answered: of a lease that was lost since LOST comes
// behind the OK.
func (d *daemon) granted(h *holding) {
	if h.granted() {
		d.tellLost(h)
	}
}

func (a *ask) acquire(ctx context.Context) error {
	if err := a.waitForTurn(ctx); err != nil {
		a.forgetIntent()
		return err
	}
	r := a.Request()
	r.Intent = a.intent
	r.Begun, r.Yield = a.s.d.queue.TakeAttempt(&a.waiter)
	lease, err := a.s.d.nodes.Acquire(ctx, r)
	if a.lease = lease; err == nil {
		a.s.d.traceAttempt(a.holding, lease, nil)
	}
	if errors.Is(err, redlock.ErrHeld) && a.waitLeft() != 0 && isClosed(a.enough()) {
		return errInputEnded // or the process, as outcome says
	}
	return err
}

// Request is what is asked of the nodes. It is also for whoever hands the lock
// over to this one: it must not touch the call, which may be over by then.
func (a *ask) Request() redlock.Request {
	d, h := a.s.d, a.holding
	r := redlock.Request{
		Shared: a.waiter.Kind.Shared,
		Slots:  int(a.waiter.Kind.Slots),
		TTL:    a.ttl,
		Wait:   a.waitLeft(),
		Dry:    a.dry(),
		Held:   errors.Is(d.queue.LastFailure(&h.waiter), redlock.ErrHeld),
		Enough: a.enough(),
		Failed: func(err error) { d.attemptFailed(h, err) },
		Keep:   a.hold != ipc.HoldTTL,
		Guard:  a.guard,
		Max:    a.max,
		Holder: redlock.Holder{Host: d.host, PID: a.PID, UID: a.UID, User: a.User},
		OnLost: func(l *redlock.Lease) { d.lost(h, l) },
	}
	if h.number != 0 {
		r.Noting = func(taken redlock.Record) { d.journal.Acquiring(h.number, taken) }
	}
	if names := a.names(); len(names) > 1 {
		r.Names = names
	} else {
		r.Name = names[0]
	}
	return r
}

// Undelivered forgets an attempt that a hand-over noted after this request was answered, which
// else would be noted as one that is under way.
func (a *ask) Undelivered() { a.s.d.journal.Forgotten(a.number, 0) }

// dry is how long no quorum could vote already for who stood behind one that
// met none, or waited with it: for longer than its ttl nobody waits for a quorum.
func (a *ask) dry() time.Duration {
	if errors.Is(a.past, redlock.ErrNoQuorum) || errors.Is(a.s.d.queue.LastFailure(&a.waiter), redlock.ErrNoQuorum) {
		return a.waited()
	}
	return 0
}

// waitLeft is what is left of wait=.
func (a *ask) waitLeft() time.Duration {
	if a.wait <= 0 { // none at all, or for ever
		return a.wait
	}
	return max(a.wait-a.waited(), 0)
}

func (a *ask) waited() time.Duration { return a.s.d.clock() - a.Asked }

// waitForTurn waits until nothing in the local queue is in its way any more.
func (a *ask) waitForTurn(ctx context.Context) error {
	if a.waiter.Ready() == nil || isClosed(a.waiter.Ready()) {
		return nil
	}
	if a.wait == 0 {
		return a.ahead()
	}
	timer := time.NewTimer(a.alarm())
	defer timer.Stop()
	near, renewal := a.waiter.NextInLine(), (<-chan time.Time)(nil)
	for {
		select {
		case <-a.waiter.Ready():
			return nil
		case <-near:
			near = nil
			a.intend()
			ticker := time.NewTicker(a.ttl / intentShare)
			defer ticker.Stop()
			renewal = ticker.C
		case <-renewal:
			a.intend()
		case <-timer.C:
			return a.ahead()
		case <-a.enough():
			return errInputEnded // or the process, as outcome says
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// intentShare: what the nodes know of one who waits lasts for his ttl, and is
// renewed as often as a lease is.
const intentShare = 3

// enough is closed when nobody is left to hold the lease: the client's input, or
// the process, has ended, and the lease would end with it.
func (a *ask) enough() <-chan struct{} {
	switch a.hold {
	case ipc.HoldConn:
		return a.s.inputEnded
	case ipc.HoldPID:
		return a.process.gone
	}
	return nil
}

// alarm is when waiting for a turn ends.
func (a *ask) alarm() time.Duration {
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

// leave ends the request: with a lease, its place stays in the queue.
func (a *ask) leave(err error) {
	d := a.s.d
	if begun := d.queue.Withdraw(&a.waiter); begun != nil {
		begun.Abandon() // before anybody is called
	}
	if err == nil {
		a.begin(d)
		d.leases.add(a.holding)
		a.noteHeld()
		d.queue.Granted(&a.waiter, a.holding)
		d.keep(a.holding)
		d.store.Prefer(&a.s.stored)
	} else {
		d.queue.Leave(&a.waiter, ofNodes(err))
	}
	a.end(err)
}

// noteHeld notes the lease, with the answer to its LOCK.
func (a *ask) noteHeld() {
	if a.number != 0 {
		a.call.RecordingAnswer()
		a.s.d.noteGranted(a.holding)
	}
}

// end says that the request has come to its end.
func (a *ask) end(err error) {
	a.s.d.limits.EndLock(a.UID, len(a.names()), a.waiter.Patient, err == nil)
	a.s.d.recorder.Answered(a.waited(), err == nil)
	a.over(err)
	a.awaited(-1)
	a.s.d.processes.release(a.process)
}

// over tells those who count on it, or repeat it, what it came to.
func (a *ask) over(err error) {
	if a.failed = err; err != nil {
		a.countsOver()
	}
	a.first.answered(a)
	if err != nil {
		a.s.d.uncounted(a.holding)
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
