package session

// leaseState is the state of a lease.
type leaseState uint8

const (
	acquiring leaseState = iota // its LOCK is under way
	held                        // it was granted, and was neither lost nor released
	lost                        // its client must not use it any more, but may still be stopping; it stays in the queue
	kept                        // nobody holds it any more, and it stays taken until min= has passed
	releasing                   // its release has begun; its record stays until the nodes have answered
	gone                        // nothing more will happen to it
)

// clientKnows is what the client knows about a lease.
type clientKnows uint8

const (
	knowsNothing clientKnows = iota // its LOCK is not answered yet
	knowsGrant                      // its LOCK was answered with OK
	missesLoss                      // the lease was lost before the answer: LOST must follow the OK
	knowsLoss                       // LOST was sent
)

// lossMemory is whether a client can ask about a lost lease.
type lossMemory uint8

const (
	notRemembered lossMemory = iota // it was not lost, or no client knows of it
	remembered                      // a client can ask, and a limit counts the lease
	forgotten                       // no client can ask any more; also after a release
)

// leaseLife is the state of a lease, with what must be remembered about its loss. The zero value
// belongs to a LOCK under way.
type leaseLife struct {
	state  leaseState
	knows  clientKnows
	memory lossMemory
}

// leaseEvent is what happens to a lease.
type leaseEvent uint8

const (
	wasGranted      leaseEvent = iota // a quorum granted it
	notGranted                        // its LOCK ended without it
	grantReported                     // a client was answered with OK
	wasLost                           // redlock reported its loss
	extensionsEnded                   // its extensions ended, because the daemon cut its client's connection
	deadlinePassed                    // it is lost, and the last deadline that its client was given has passed
	lastUnlock                        // all LOCKs that counted on it were unlocked
	clientIsGone                      // its client is gone, and linger= has passed
	minNotPassed                      // its release is due, and min= has not passed
	minPassed                         // min= has passed
	releaseBegun                      // its release is under way to the nodes
	releaseRefused                    // its release could not begin, because it was lost
	nodesReleased                     // its release need not be repeated after a restart, or only for a while
	lossRemembered                    // its client may ask about its loss
	dropped                           // no client can ask about it any more
	leaseEventCount
)

// leaseActions is what must be done after an event. More than one action can be due. Host.perform does
// them.
type leaseActions uint16

const (
	startHeartbeat leaseActions = 1 << iota
	sendLost                    // tell the client that the lease is lost
	beginRelease                // record the release, and begin it
	leaveQueue                  // take it out of the queue, so that the next waiters continue
	countHeldTime               // count in the metrics for how long its client held it
	rememberLoss                // remember it for questions, within the limit of its user
	unregister                  // remove it from the leases by id
	uncountLoss                 // remove it from the user's limit of remembered losses
	deleteRecord                // delete its record in the state file
	delayRelease                // begin the release later
	dropLoss                    // forget its loss: no client can ask about it
)

// has reports whether an action is due.
func (a leaseActions) has(action leaseActions) bool { return a&action != 0 }

// after returns the life of a lease after an event, and what must be done. It is the only place
// where a state changes. An event that comes too late changes nothing: a released lease is not
// lost, a lost lease is not released, and both leave the queue once.
func (l leaseLife) after(event leaseEvent) (leaseLife, leaseActions) {
	switch event {
	case wasGranted:
		return l.change(acquiring, held, startHeartbeat) // else it was lost at once
	case notGranted:
		return l.change(acquiring, gone, 0)
	case grantReported:
		return l.afterGrantReported()
	case wasLost:
		if l.state == kept {
			l.state, l.knows = lost, knowsLoss
			return l, dropLoss
		}
		return l.losing().afterLossReported()
	case extensionsEnded:
		return l.losing(), 0
	case deadlinePassed:
		return l.change(lost, gone, leaveQueue|l.heldTime())
	case lastUnlock:
		return l.change(held, releasing, beginRelease)
	case clientIsGone:
		switch l.state {
		case held:
			l.state = releasing
			return l, beginRelease
		case lost, gone:
			return l.afterDropped()
		}
	case minNotPassed:
		return l.change(releasing, kept, delayRelease)
	case minPassed:
		return l.change(kept, releasing, beginRelease)
	case releaseBegun:
		if l.state == releasing {
			next, do := l.afterDropped()
			return next, do | leaveQueue | countHeldTime
		}
	case releaseRefused:
		return l.afterReleaseRefused()
	case nodesReleased:
		return l.change(releasing, gone, 0)
	case lossRemembered:
		if l.memory == notRemembered {
			l.memory = remembered
			return l, rememberLoss
		}
	case dropped:
		return l.afterDropped()
	}
	return l, 0
}

// change moves a lease from one state to another, after which do is due. In any other state the
// event came too late.
func (l leaseLife) change(from, to leaseState, do leaseActions) (leaseLife, leaseActions) {
	if l.state != from {
		return l, 0
	}
	l.state = to
	return l, do
}

// mayBeResumed reports whether a client can resume the lease on another connection.
func (l leaseLife) mayBeResumed() bool {
	return l.state != kept && l.state != releasing && l.memory != forgotten
}

// losing returns the life of a lease that its client must not use any more.
func (l leaseLife) losing() leaseLife {
	if l.state != gone {
		l.state = lost
	}
	return l
}

// afterLossReported sends LOST once, and not before the client knows of the grant.
func (l leaseLife) afterLossReported() (leaseLife, leaseActions) {
	switch l.knows {
	case knowsNothing:
		l.knows = missesLoss
	case knowsGrant:
		l.knows = knowsLoss
		return l, sendLost
	}
	return l, 0
}

// afterGrantReported sends LOST after the OK if the lease was lost before the OK.
func (l leaseLife) afterGrantReported() (leaseLife, leaseActions) {
	switch l.knows {
	case knowsNothing:
		l.knows = knowsGrant
	case missesLoss:
		l.knows = knowsLoss
		return l, sendLost
	}
	return l, 0
}

// heldTime is countHeldTime if the client knew of the lease.
func (l leaseLife) heldTime() leaseActions {
	if l.knows == knowsGrant || l.knows == knowsLoss {
		return countHeldTime
	}
	return 0
}

// afterDropped ends all that a client can ask about a lease. The record of a release stays, so that
// the next daemon repeats the release.
func (l leaseLife) afterDropped() (leaseLife, leaseActions) {
	do := unregister
	switch l.memory {
	case forgotten:
		return l, 0
	case remembered:
		do |= uncountLoss
	}
	if l.state != releasing && l.state != kept {
		do |= deleteRecord
	}
	l.memory = forgotten
	return l, do
}

// afterReleaseRefused deletes the record of a lease that was dropped meanwhile. The record had
// stayed for the release.
func (l leaseLife) afterReleaseRefused() (leaseLife, leaseActions) {
	if l.state != releasing {
		return l, 0
	}
	l.state = lost
	if l.memory == forgotten {
		return l, deleteRecord
	}
	return l, 0
}
