package redlock

import (
	"fmt"
	"time"
)

// OverdueError is why a lease was lost whose extension came too late: not for want of
// nodes alone, but because this process had not come to it (one that adopted the lease may
// not have run yet), or had to wait for them for long, be it for the grant. It matches
// what Err matches.
type OverdueError struct {
	Name  string
	Took  time.Duration // the grant, where its extension was due before that came; 0: it was not
	Due   time.Duration // before the loss: when its extension was due
	Asked time.Duration // before the loss: when the nodes were first asked; 0: they were not
	Tries int           // that failed
	Err   error         // of the last of them; nil: none did
}

func (e *OverdueError) Error() string {
	if e.Err == nil {
		return e.text()
	}
	return fmt.Sprintf("%s; the last of %d tries: %v", e.text(), e.Tries, e.Err)
}

func (e *OverdueError) text() string {
	due, asked := e.Due.Round(time.Millisecond), e.Asked.Round(time.Millisecond)
	switch {
	case e.Took != 0:
		return fmt.Sprintf("%s: it was granted %v after it was asked for, when its extension was overdue: its nodes are too slow for so short a ttl, or the host is overloaded, or was stopped",
			e.Name, e.Took.Round(time.Millisecond))
	case e.Asked == 0:
		return fmt.Sprintf("%s: its extension was due %v before, and this process has not come to it: the host is overloaded, or was stopped, or no redlockd ran", e.Name, due)
	}
	return fmt.Sprintf("%s: its extension was due %v before, and this process came to it %v late: the host is overloaded, or was stopped, or no redlockd ran, or its nodes are too slow for what they are asked",
		e.Name, due, due-asked)
}

func (e *OverdueError) Unwrap() error { return e.Err }

// lateShare of the ttl is how late an extension may be asked for before that is part of
// why the lease was lost.
const lateShare = 10

// noteAsked notes when the nodes were asked to extend the lease, the first time since
// it was extended.
func (l *Lease) noteAsked(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == 0 {
		l.asked = now
	}
}

// why is the cause of a loss at now. The caller holds mu.
func (l *Lease) why(now time.Duration) error {
	asked := l.asked
	if asked == 0 {
		asked = now
	}
	_, aged := l.cause.(*agedError)
	switch {
	case !aged && l.next != 0 && asked-l.next >= l.ttl/lateShare:
		return &OverdueError{Name: l.name(), Took: l.tookTooLong(), Due: now - l.next, Asked: now - asked, Tries: int(l.tries.Load()), Err: l.cause}
	case l.cause == nil && l.asked != 0:
		return fmt.Errorf("%s: %w: the nodes were asked to extend it %v before, and too few have answered yet: they hang, and node_timeout is long for its ttl, or this host is overloaded, or was stopped",
			l.name(), ErrNoQuorum, (now - l.asked).Round(time.Millisecond))
	}
	return l.cause
}

// tookTooLong is how long the grant took, where the first extension was due before it. Of
// one that was adopted that was an earlier process's. The caller holds mu.
func (l *Lease) tookTooLong() time.Duration {
	if l.settled != nil || l.since < l.next {
		return 0
	}
	return l.since - (l.next - l.ttl/extendShare)
}

// agedError is why a lease was lost of which no extension failed.
type agedError struct {
	name string
	by   time.Duration
}

func (e *agedError) Error() string {
	return fmt.Sprintf("%s: nodes' clocks moved by %v against this host's, and not one node's alone for certain, so it counts as so much older: this host was paused (a virtual machine that was suspended or moved), or nodes' clocks were stepped",
		e.name, e.by.Round(time.Millisecond))
}
