package daemon

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// The log has each step of a change of the nodes once, and says that one is stuck if it takes longer
// than it can, but not if it waits for an operator.
func TestChangeLog(t *testing.T) {
	const maxTTL = 30 * time.Second
	var l changeLog
	for i, e := range []struct {
		at   time.Duration
		step redlock.ChangeStep
		want changeNews
	}{
		{0, redlock.ChangeBegins, newStep},
		{time.Second, redlock.ChangeBegins, noNews},
		{150 * time.Second, redlock.ChangeBegins, stuckStep},
		{151 * time.Second, redlock.ChangeBegins, noNews},
		{300 * time.Second, redlock.ChangeBegins, stuckStep},
		{301 * time.Second, redlock.ChangeBegun, newStep},
		{time.Hour, redlock.ChangeBegun, noNews},
		{time.Hour, redlock.ChangeCommitted, newStep},
		{time.Hour + maxTTL + stuckAfter - 1, redlock.ChangeCommitted, noNews},
		{time.Hour + maxTTL + stuckAfter, redlock.ChangeCommitted, stuckStep},
		{2 * time.Hour, redlock.ChangeDone, newStep},
		{3 * time.Hour, redlock.ChangeDone, noNews},
	} {
		if got := l.update(e.step, maxTTL, e.at); got != e.want {
			t.Errorf("event %d, %s at %v: got %d, want %d", i, e.step, e.at, got, e.want)
		}
	}
}
