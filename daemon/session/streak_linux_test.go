package session

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
)

// A waiter that gets its turn by a release, and not by a hand-over, continues this host's streak.
// After a long streak, it lets other hosts go first, even those that cannot show that they wait.
func TestLongStreakEndsWithARelease(t *testing.T) {
	s := newSuccession(t)
	w, next, look := s.dial(), s.dial(), s.dial()
	w.Say("LOCK a", granted5)
	next.sendWaiting(look, "LOCK a", 1)
	first := &s.d.allLeases()[0].Waiter
	s.d.inQueue(first, func(q *locktable.Queue) {
		q.SetStreak(first, locktable.Streak{Grants: 1, Started: s.d.Clock() - time.Minute})
	})
	w.Say("UNLOCK a", `OK lock=a`)
	next.Want(granted5)
	second := &s.d.allLeases()[0].Waiter
	var got locktable.Streak
	s.d.inQueue(second, func(q *locktable.Queue) { got = q.Streak(second) })
	if got != (locktable.Streak{Yields: true}) {
		t.Errorf("the next grant has the streak %+v, want Yields", got)
	}
}
