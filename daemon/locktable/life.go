package locktable

// State is the state of a lease.
type State uint8

const (
	Acquiring State = iota // its LOCK is under way
	Held                   // it was granted, and was neither lost nor released
	Lost                   // its client must not use it any more, but may still be stopping; it stays in the queue
	Kept                   // nobody holds it any more, and it stays taken until min= has passed
	Releasing              // its release has begun
	Gone                   // its LOCK got no lease, or it was lost and has left the queue
	stateCount
)

// ClientKnows is what the client knows about a lease.
type ClientKnows uint8

const (
	KnowsNothing ClientKnows = iota // its LOCK is not answered yet
	KnowsGrant                      // its LOCK was answered with OK
	MissesLoss                      // the lease was lost before the answer: LOST must follow the OK
	HearsLoss                       // LOST is being sent: after a restart, nobody knows whether it was
	KnowsLoss                       // LOST was sent
)

// LossMemory is whether a client can ask about a lost lease.
type LossMemory uint8

const (
	NotRemembered LossMemory = iota // it was not lost, or no client knows of it
	Remembered                      // a client can ask, and a limit counts the lease
	Forgotten                       // no client can ask any more; also after a release
)

// Life is the state of a lease, with what must be remembered about its loss. The zero value belongs
// to a LOCK under way.
type Life struct {
	State  State
	Knows  ClientKnows
	Memory LossMemory
}

// Event is what happens to a lease.
type Event uint8

const (
	WasGranted      Event = iota // a quorum granted it
	NotGranted                   // its LOCK ended without it
	GrantReported                // a client was answered with OK
	WasLost                      // redlock reported its loss
	ExtensionsEnded              // its extensions ended, because the daemon cut its client's connection
	DeadlinePassed               // it is lost, and the last deadline that its client was given has passed
	LastUnlock                   // all LOCKs that counted on it were unlocked
	ClientIsGone                 // its client is gone, and linger= has passed
	ProcessEnded                 // the process that held it has ended, after its loss
	MinNotPassed                 // nobody holds it any more, and min= has not passed
	MinPassed                    // min= has passed
	ReleaseBegun                 // its release is under way to the nodes
	ReleaseRefused               // its release could not begin, because it was lost
	LossRemembered               // its client may ask about its loss
	LossReported                 // LOST was sent
	Dropped                      // no client can ask about it any more
	Restarted                    // the daemon was restarted: it has the lease from the state file
	eventCount
)

// Effects is what must be done after an event. More than one effect can be due: they are in the order
// in which they are done.
type Effects uint32

const (
	StartHeartbeat  Effects = 1 << iota
	SendLost                // tell the client that the lease is lost
	LogCut                  // log that the lease ended with a connection that the daemon cut
	ReleaseRevoked          // release the names that FORCE did not take
	ForgetLoss              // forget the loss as soon as other clients can get the lock: no client can ask about it
	BeginRelease            // record the release, and begin it
	LeaveAtDeadline         // let it leave the queue when other clients can get the lock
	CountLoss               // count and log the loss
	LeaveQueue              // take it out of the queue, so that the next waiters continue
	CountHeldTime           // count in the metrics for how long its client held it
	RememberLoss            // remember it for questions
	LeaveProcess            // its process no longer holds it
	DeleteRecord            // delete its record in the state file
	DelayRelease            // begin the release later

	leaveClient // no client finds it by its names any more: Table.Apply does it
	unregister  // remove it from the leases by id: Table.Apply does it
	uncountLoss // remove it from the user's limit of remembered losses: Table.Apply does it
)

// Has reports whether an effect is due.
func (e Effects) Has(effect Effects) bool { return e&effect != 0 }

// rule changes what the client knows, or whether it can ask about a loss. It may add effects: see
// After.
type rule uint8

const (
	tellGrant       rule = iota + 1 // the client was told of the grant: LOST follows if the lease was lost before
	tellLoss                        // LOST is due, once, and not before the client knows of the grant
	ignoreLoss                      // no client is to be told of the loss
	tellOrForget                    // tellLoss if a connection has it; else no client can ask about it
	countKnown                      // its time counts as held if the client knew of it
	remember                        // its client may ask about its loss from now on, unless it was forgotten
	lossSent                        // the client knows of the loss if it was being told
	tellAgain                       // LOST is due if it may not have been sent; then its client may ask, if it has one
	forget                          // no client can ask about it any more
	deleteForgotten                 // its record had stayed for the release: it goes if no client can ask
)

// step is what an event does to a lease in one state.
type step struct {
	to   State // Acquiring: the state stays; no event leads to Acquiring
	do   Effects
	rule rule
}

// What is due after each loss.
const (
	lost = LeaveAtDeadline | CountLoss
	cut  = LeaveAtDeadline | LogCut
)

// steps has what each event does in each state. An event that is missing for a state comes too late,
// and changes nothing: a released lease is not lost, a lost lease is not released, and both leave
// the queue once.
var steps = [eventCount][stateCount]step{
	WasGranted:    {Acquiring: {to: Held, do: StartHeartbeat}}, // else it was lost at once
	NotGranted:    {Acquiring: {to: Gone}},
	GrantReported: inEachState(step{rule: tellGrant}),
	WasLost: {
		Acquiring: {to: Lost, rule: tellLoss, do: lost},
		Held:      {to: Lost, rule: tellLoss, do: lost},
		Lost:      {rule: tellLoss, do: lost}, // its extensions had ended
		Kept:      {to: Lost, rule: ignoreLoss, do: lost | ReleaseRevoked | ForgetLoss},
		Releasing: {to: Lost, rule: tellLoss, do: lost},
		Gone:      {rule: tellLoss, do: lost},
	},
	ExtensionsEnded: {
		Acquiring: {to: Lost, rule: tellOrForget, do: cut},
		Held:      {to: Lost, rule: tellOrForget, do: cut},
		Lost:      {rule: tellOrForget, do: cut}, // it was lost at the same time
		Kept:      {to: Lost, rule: tellOrForget, do: cut},
		Releasing: {to: Lost, rule: tellOrForget, do: cut},
		Gone:      {rule: tellOrForget, do: cut},
	},
	DeadlinePassed: {Lost: {to: Gone, do: LeaveQueue, rule: countKnown}},
	LastUnlock:     {Held: {to: Releasing, do: BeginRelease}},
	MinNotPassed:   {Held: {to: Kept, do: leaveClient | DelayRelease}},
	ClientIsGone: {
		Held: {to: Releasing, do: BeginRelease},
		Lost: {rule: forget},
		Gone: {rule: forget},
	},
	ProcessEnded:   inEachState(step{do: leaveClient}),
	MinPassed:      {Kept: {to: Releasing, do: BeginRelease}},
	ReleaseBegun:   {Releasing: {do: LeaveQueue | CountHeldTime, rule: forget}},
	ReleaseRefused: {Releasing: {to: Lost, rule: deleteForgotten}},
	LossRemembered: inEachState(step{rule: remember}),
	LossReported:   inEachState(step{rule: lossSent}),
	Dropped:        inEachState(step{rule: forget}),
	Restarted: {
		Held: {rule: tellGrant}, // the record of a grant answers its LOCK
		Lost: {to: Gone, rule: tellAgain},
		Kept: {do: DelayRelease},
	},
}

func inEachState(s step) (row [stateCount]step) {
	for state := range row {
		row[state] = s
	}
	return row
}

// Continues reports whether a later daemon continues a lease that it finds in this state: it was granted,
// and its release has not begun.
func (s State) Continues() bool { return s != Acquiring && s != Releasing }

// After returns the life of a lease after an event, and what must be done. It is the only place
// where a life changes. canAsk is whether a client can ask about its loss: a connection reports it, or a
// process holds it.
func (l Life) After(event Event, canAsk bool) (Life, Effects) {
	s := steps[event][l.State]
	switch {
	case s.rule == tellOrForget && canAsk:
		s.rule = tellLoss
	case s.rule == tellOrForget:
		s.rule, s.do = 0, s.do|ForgetLoss
	case s.rule == tellAgain && l.Knows == KnowsLoss && canAsk:
		s.rule = remember
	case s.rule == tellAgain && l.Knows == KnowsLoss:
		s.rule = forget
	}
	if s.to != Acquiring {
		l.State = s.to
	}
	told := s.rule == tellGrant && l.Knows == MissesLoss || s.rule == tellLoss && l.Knows == KnowsGrant || s.rule == tellAgain
	switch {
	case !told:
	case canAsk:
		l.Knows, s.do, s.rule = HearsLoss, s.do|SendLost, remember
	default:
		l.Knows, s.do = HearsLoss, s.do|SendLost|ForgetLoss
	}
	switch s.rule {
	case tellGrant:
		if l.Knows == KnowsNothing {
			l.Knows = KnowsGrant
		}
	case tellLoss:
		if l.Knows == KnowsNothing {
			l.Knows = MissesLoss
		}
	case ignoreLoss:
		l.Knows = KnowsLoss
	case lossSent:
		if l.Knows == HearsLoss {
			l.Knows = KnowsLoss
		}
	case countKnown:
		if l.Knows == KnowsGrant || l.Knows == HearsLoss || l.Knows == KnowsLoss {
			s.do |= CountHeldTime
		}
	case remember:
		if l.Memory == NotRemembered {
			l.Memory, s.do = Remembered, s.do|RememberLoss
		}
	case forget: // once; the record of a release stays, so that the next daemon repeats the release
		if l.Memory == Forgotten {
			break
		}
		if s.do |= leaveClient | unregister; l.Memory == Remembered {
			s.do |= uncountLoss
		}
		if l.State != Releasing && l.State != Kept {
			s.do |= DeleteRecord
		}
		l.Memory = Forgotten
	case deleteForgotten:
		if l.Memory == Forgotten {
			s.do |= DeleteRecord
		}
	}
	return l, s.do
}

// MayBeResumed reports whether a client can resume the lease on another connection.
func (l Life) MayBeResumed() bool {
	return l.State != Kept && l.State != Releasing && l.Memory != Forgotten
}

// ClientEnd describes the end of a connection, or of a process, for one of its leases.
type ClientEnd struct {
	Process  bool // it is the process that holds the lease
	Outlives bool // the lease outlives its connection: its ttl or its process decides
	Lost     bool // the lease was lost before
	Lingers  bool // it has linger=
	Cut      bool // the daemon cut the connection: the client may still work, and not know of the cut
	Stopping bool // the daemon stops: the client can resume the lease with the next one
}

// Ending is what becomes of a lease whose client is gone.
type Ending uint8

const (
	LeaveAlone       Ending = iota // its ttl, its process, or the next daemon decides
	EndLoss                        // it was lost: forget the loss as soon as other clients can get the lock
	EndRevoked                     // the same, and its client has stopped: release the names that FORCE did not take
	LetExpire                      // stop extending it, so that it ends with the last deadline that its client was given
	Linger                         // release it after linger=, unless a client resumes it
	Release                        // release it, unless a client has resumed it
	ReleaseUnclaimed               // release it when min= and the last deadline that its client was given have passed, unless a client resumes it
)

// Ending decides what becomes of the lease. It never releases the lease of a client that may still work.
func (e ClientEnd) Ending() Ending {
	switch {
	case e.Lost && !e.Outlives && !e.Cut && !e.Stopping:
		return EndRevoked
	case e.Lost:
		return EndLoss
	case !e.Process && (e.Outlives || e.Stopping):
		return LeaveAlone
	case e.Cut:
		return LetExpire
	case e.Lingers:
		return Linger
	}
	return Release
}
