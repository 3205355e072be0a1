package locktable

import (
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// Bounds of a streak while other hosts wait. The first one keeps most of what a hand-over
// saves: one grant of 16 needs a contest between hosts. The second one bounds how long other
// hosts wait if each client holds the lock for long. The third one is for other Redlock
// clients, which cannot tell that they wait: they get a moment now and then in any case.
const (
	maxStreak         = 16
	maxStreakTime     = 100 * time.Millisecond
	maxUnwantedStreak = time.Second
)

// Streak counts the consecutive grants of a lock to clients of this host.
type Streak struct {
	Started time.Duration // BootTime of the first grant
	Grants  int32
	Yields  bool // the streak was long enough: the next waiter lets other hosts go first
}

// Next returns the streak after one more lease, which was granted at an instant. wanted is whether
// the nodes reported that other hosts wait.
func (s Streak) Next(granted time.Duration, wanted bool, now time.Duration) Streak {
	if s.Grants == 0 {
		s.Started = granted
	}
	s.Grants++
	if wanted && (s.Grants >= maxStreak || now-s.Started >= maxStreakTime) || now-s.Started >= maxUnwantedStreak {
		return Streak{Yields: true}
	}
	return Streak{Grants: s.Grants, Started: s.Started}
}

// Streak returns the streak of w.
func (q *Queue) Streak(w *Waiter) Streak { return w.streak }

// SetStreak sets the streak of w, which the next waiters continue when w leaves.
func (q *Queue) SetStreak(w *Waiter, s Streak) {
	w.streak = s
}

// ClaimNext counts the lease of w, which is about to be released, in the streak of this host. It returns
// the follower of w if both are the first in all of their queues, unless other hosts go first now. The
// caller must then call Deliver or Unclaim. granted is when the lease was granted, and wanted is whether
// the nodes reported that other hosts wait.
func (q *Queue) ClaimNext(w *Waiter, granted time.Duration, wanted bool, now time.Duration) *Waiter {
	w.streak = w.streak.Next(granted, wanted, now)
	next := q.follower(w)
	if w.streak.Yields || next == nil || next.isReady || next.grant == isWithdrawn {
		return nil
	}
	for _, name := range w.Names {
		if queue := q.names[name]; queue.entries[0].waiter != w || queue.following(w) != next {
			return nil
		}
	}
	next.isReady, next.streak = true, w.streak
	return next
}

// HasFollower reports whether the waiter directly behind w wants exactly the same names, exclusively like
// w.
func (q *Queue) HasFollower(w *Waiter) bool { return q.follower(w) != nil }

// follower returns the waiter directly behind w, in the queue of its first name, if it wants exactly the
// same names, exclusively like w, or nil.
func (q *Queue) follower(w *Waiter) *Waiter {
	next := q.names[w.Names[0]].following(w)
	if next != nil && next.Patient && w.mode().Exclusive() && next.mode().Exclusive() && slices.Equal(next.Names, w.Names) {
		return next
	}
	return nil
}

// Deliver makes a claimed waiter ready, with the attempt that was begun for it. It is false
// if w has withdrawn: the caller must abandon the attempt then.
func (q *Queue) Deliver(w *Waiter, attempt *redlock.PendingAttempt) bool {
	if w.grant == isWithdrawn {
		return false
	}
	w.attempt = attempt
	close(w.ready)
	return true
}

// Unclaim returns a claimed waiter to the queue: no attempt was begun for it.
func (q *Queue) Unclaim(w *Waiter) {
	if w.isReady = false; w.grant != isWithdrawn {
		q.makeReadyIfFree(w) // the one before it may have left in between
	}
}

// TakeAttempt returns the attempt that was begun for w, which w owns from now on, or nil;
// and whether w lets other hosts go first.
func (q *Queue) TakeAttempt(w *Waiter) (attempt *redlock.PendingAttempt, yields bool) {
	attempt, w.attempt = w.attempt, nil
	return attempt, w.streak.Yields
}

// Withdraw ends the wait of w: no attempt is delivered to it later. It returns an attempt
// that was delivered and not taken, which the caller must abandon.
func (q *Queue) Withdraw(w *Waiter) *redlock.PendingAttempt {
	w.grant = isWithdrawn
	attempt := w.attempt
	w.attempt = nil
	return attempt
}
