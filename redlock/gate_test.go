package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// full is a gate with nobody waiting, and no room.
func full(t *testing.T) *gate {
	t.Helper()
	g := &gate{timeout: time.Second}
	for range mostInside {
		if !g.enter(t.Context(), 0, nil, nil) {
			t.Fatal("there is no room")
		}
	}
	return g
}

func wantOpen(t *testing.T, what string, e *entry, open bool) {
	t.Helper()
	if e == nil || isClosed(e.open) != open {
		t.Errorf("%s: %+v, want one who waits: %v", what, e, !open)
	}
}

// Who gives up is not inside, however he does; who was let in meanwhile has the next let in.
func TestGateGivenUp(t *testing.T) {
	g := full(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	enough, until := make(chan struct{}), make(chan time.Time, 1)
	close(enough)
	until <- time.Time{}
	for what, inside := range map[string]bool{
		"his context has ended": g.enter(ended, 0, nil, nil),
		"somebody has enough":   g.enter(t.Context(), 0, enough, nil),
		"his time is over":      g.enter(t.Context(), 0, nil, until),
	} {
		if inside {
			t.Errorf("%s: he is inside", what)
		}
	}
	first, second := g.ask(0), g.ask(0)
	g.leave()
	wantOpen(t, "the first", first, true)
	wantOpen(t, "the second", second, false)
	g.withdraw(first)
	wantOpen(t, "the second, when the first has gone", second, true)
	g.withdraw(second)
	if g.inside != mostInside-1 {
		t.Errorf("%d are inside, want %d", g.inside, mostInside-1)
	}
}

// Users take turns, and those of one come in their order.
func TestGateTurns(t *testing.T) {
	g := full(t)
	waiting := []*entry{g.ask(1), g.ask(1), g.ask(1), g.ask(2), g.ask(2)}
	for _, next := range []int{0, 3, 1, 4, 2} {
		wantOpen(t, "before his turn", waiting[next], false)
		g.leave()
		wantOpen(t, "in his turn", waiting[next], true)
	}
	if len(g.lines) != 0 || len(g.next) != 0 {
		t.Errorf("lines %v, turns %v, want none", g.lines, g.next)
	}
}

// There is half the room when attempts meet no quorum, once in a node timeout, and more
// again, step by step, as they do.
func TestGateRoom(t *testing.T) {
	g := full(t)
	now := time.Hour
	in := func() { g.inside++ } // as if there were room
	for room := mostInside / 2; room >= leastInside/2; room /= 2 {
		for _, later := range []time.Duration{0, g.timeout - 1} {
			in()
			g.leftInVain(now + later)
			if want := max(room, leastInside); g.room != want {
				t.Fatalf("room for %d, want %d", g.room, want)
			}
		}
		now += g.timeout
	}
	for room := leastInside; room <= mostInside; room += insideStep {
		for i := range room {
			if g.room != room {
				t.Fatalf("room for %d after %d, want %d until as many have met a quorum", g.room, i, room)
			}
			in()
			g.leave()
		}
		if g.room != min(room+insideStep, mostInside) {
			t.Fatalf("room for %d after %d, want %d more, up to %d", g.room, room, insideStep, mostInside)
		}
	}
	in()
	g.leftInVain(now)
	for range mostInside/2 - 1 {
		in()
		g.leave()
	}
	in()
	now += g.timeout
	g.leftInVain(now) // which begins the count anew
	in()
	g.leave()
	if g.room != mostInside/4 {
		t.Errorf("room for %d, want %d: one has met a quorum since", g.room, mostInside/4)
	}
}

// Who met no quorum keeps his place for a while, or the thousands would be told at once,
// and come again.
func TestGateRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t)
		start := time.Hour
		g.shrunk = start // nothing of that here
		next := g.ask(0)
		g.leaveInVain(start, start+g.timeout/restShare-1)
		synctest.Wait()
		wantOpen(t, "too soon", next, false)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantOpen(t, "then", next, true)
		next = g.ask(0)
		g.leaveInVain(start, start+g.timeout/restShare)
		wantOpen(t, "at once", next, true)
	})
}
