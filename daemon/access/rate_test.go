package access

import (
	"testing"
	"time"
)

// A connection may send the requests of one second at once, and then as many in each second. It never
// saves up more than one second's requests.
func TestRate(t *testing.T) {
	const perSecond = 10
	var r Rate
	allowed := func(now time.Duration) (n int) {
		for n <= 2*perSecond && r.Allow(perSecond, now) {
			n++
		}
		return n
	}
	for _, step := range []struct {
		now  time.Duration
		want int
	}{
		{time.Hour, 10},
		{time.Hour, 0},
		{time.Hour + 250*time.Millisecond, 2},
		{time.Hour + 500*time.Millisecond, 3}, // with the half request left over from the step before
		{2 * time.Hour, 10},
	} {
		if got := allowed(step.now); got != step.want {
			t.Errorf("at %v %d requests are allowed, want %d", step.now, got, step.want)
		}
	}
}
