package attempts

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// fullLimiter returns a full limiter without waiters.
func fullLimiter(t *testing.T) *Limiter {
	t.Helper()
	g := NewLimiter(time.Second)
	for range maxAttempts {
		if !g.Enter(t.Context(), 0, nil, nil) {
			t.Fatal("an attempt was not admitted to a limiter that is not full")
		}
	}
	return g
}

func wantAdmitted(t *testing.T, what string, e *waitingAttempt, admitted bool) {
	t.Helper()
	if e == nil || isClosed(e.admitted) != admitted {
		t.Errorf("%s: %+v, want waiting: %v", what, e, !admitted)
	}
}

// An attempt that stops waiting takes no turn, however it stops. If it was admitted meanwhile,
// the next one is admitted instead.
func TestLimiterWaitEnds(t *testing.T) {
	g := fullLimiter(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	stop, until := make(chan struct{}), make(chan time.Time, 1)
	close(stop)
	until <- time.Time{}
	for what, inside := range map[string]bool{
		"its context has ended": g.Enter(ended, 0, nil, nil),
		"stop is closed":        g.Enter(t.Context(), 0, stop, nil),
		"its time is over":      g.Enter(t.Context(), 0, nil, until),
	} {
		if inside {
			t.Errorf("%s: it was admitted", what)
		}
	}
	first, second := g.takeOrQueue(0), g.takeOrQueue(0)
	g.Leave()
	wantAdmitted(t, "the first", first, true)
	wantAdmitted(t, "the second", second, false)
	g.withdraw(first)
	wantAdmitted(t, "the second, when the first is withdrawn", second, true)
	g.withdraw(second)
	if g.underWay != maxAttempts-1 {
		t.Errorf("%d attempts are in progress, want %d", g.underWay, maxAttempts-1)
	}
}

// Users take turns, and the attempts of one user keep their order.
func TestLimiterUsersTakeTurns(t *testing.T) {
	g := fullLimiter(t)
	waiting := []*waitingAttempt{g.takeOrQueue(1), g.takeOrQueue(1), g.takeOrQueue(1), g.takeOrQueue(2), g.takeOrQueue(2)}
	for _, next := range []int{0, 3, 1, 4, 2} {
		wantAdmitted(t, "before its turn", waiting[next], false)
		g.Leave()
		wantAdmitted(t, "in its turn", waiting[next], true)
	}
	if len(g.waiting) != 0 || len(g.users) != 0 {
		t.Errorf("waiting %v, users %v, want none", g.waiting, g.users)
	}
}

// The limit is halved when attempts meet no quorum, once per node timeout. It grows again step by
// step while they meet one.
func TestLimiterFollowsQuorums(t *testing.T) {
	g := fullLimiter(t)
	now := time.Hour
	in := func() { g.underWay++ } // as if it were admitted
	for room := maxAttempts / 2; room >= minAttempts/2; room /= 2 {
		for _, later := range []time.Duration{0, g.timeout - 1} {
			in()
			g.leftWithoutQuorum(now + later)
			if want := max(room, minAttempts); g.limit != want {
				t.Fatalf("limit %d, want %d", g.limit, want)
			}
		}
		now += g.timeout
	}
	for room := minAttempts; room <= maxAttempts; room += attemptsStep {
		for i := range room {
			if g.limit != room {
				t.Fatalf("limit %d after %d, want %d until that many have met a quorum", g.limit, i, room)
			}
			in()
			g.Leave()
		}
		if g.limit != min(room+attemptsStep, maxAttempts) {
			t.Fatalf("limit %d after %d, want %d more, up to %d", g.limit, room, attemptsStep, maxAttempts)
		}
	}
	in()
	g.leftWithoutQuorum(now)
	for range maxAttempts/2 - 1 {
		in()
		g.Leave()
	}
	in()
	now += g.timeout
	g.leftWithoutQuorum(now) // restarts the count
	in()
	g.Leave()
	if g.limit != maxAttempts/4 {
		t.Errorf("limit %d, want %d, because one has met a quorum since", g.limit, maxAttempts/4)
	}
}

// An attempt without a quorum still counts for a while. Otherwise thousands would fail at once,
// and retry.
func TestLimiterRestsAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fullLimiter(t)
		start := time.Hour
		g.shrunkAt = start // no other reduction in this test
		next := g.takeOrQueue(0)
		g.LeaveWithoutQuorum(start, start+g.timeout/restShare-1)
		synctest.Wait()
		wantAdmitted(t, "too soon", next, false)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantAdmitted(t, "after the rest", next, true)
		next = g.takeOrQueue(0)
		g.LeaveWithoutQuorum(start, start+g.timeout/restShare)
		wantAdmitted(t, "at once", next, true)
	})
}

// A first attempt waits for its turn for at most the node timeout, unless some attempts meet a
// quorum meanwhile. Then it continues to wait.
func TestLimiterFirstAttemptIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		wait   time.Duration
		quorum bool // another attempt meets one after half of the node timeout
		want   time.Duration
	}{
		"no quorum":                {0, false, time.Second},
		"a quorum meanwhile":       {0, true, 1500 * time.Millisecond},
		"no quorum, a longer wait": {3 * time.Second, false, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, began := fullLimiter(t), time.Now()
			if c.quorum {
				go func() {
					time.Sleep(500 * time.Millisecond)
					l.mu.Lock()
					l.limit-- // no room for the next attempt
					l.mu.Unlock()
					l.Leave()
				}()
			}
			if l.EnterFirst(t.Context(), 0, nil, c.wait) {
				t.Errorf("%s: it was admitted", name)
			}
			if took := time.Since(began); took != c.want {
				t.Errorf("%s: it waited %v, want %v", name, took, c.want)
			}
			if l.EnterFirst(t.Context(), 0, closed(), c.wait) {
				t.Errorf("%s: it was admitted although stop is closed", name)
			}
		})
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Close ends the timers of attempts that still count.
func TestLimiterCloseStopsTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fullLimiter(t)
		l.LeaveWithoutQuorum(time.Hour, time.Hour)
		l.Close()
		l.LeaveWithoutQuorum(time.Hour, time.Hour)
		time.Sleep(l.timeout)
		if l.underWay != maxAttempts {
			t.Errorf("%d attempts are in progress after Close, want no change from %d", l.underWay, maxAttempts)
		}
	})
}
