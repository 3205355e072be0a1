package top

import (
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

func TestFrameThatEndsEarly(t *testing.T) {
	cmdtest.FailsWithoutRoom(t, "top", func(out io.Writer) error { return (&Loop{Out: out}).show(&Frame{status: cmdtest.TwoDown()}, nil, true) })
}

// redlock top queries the daemon once per interval, and not more often.
func TestTopInterval(t *testing.T) {
	f := cmdtest.StartFake(t, cmdtest.NothingHeld)
	t.Setenv(cmdtest.SocketVariable, f.Socket)
	synctest.Test(t, func(t *testing.T) {
		var shown []time.Duration
		start := time.Now()
		top := &Loop{Every: time.Minute, Count: 3, Out: cmdtest.Writing(func() error {
			shown = append(shown, time.Since(start))
			return nil
		})}
		if err := top.Run(t.Context()); err != nil || !slices.Equal(shown, []time.Duration{0, time.Minute, 2 * time.Minute}) {
			t.Errorf("%v; shown after %v, want one at once, and one after each minute", err, shown)
		}
	})
}

// Waiters come first, because the screen may not have room for all entries.
func TestLongestFirst(t *testing.T) {
	p := &Frame{entries: []client.Entry{
		{PID: 5, Since: time.Hour}, {PID: 3, Since: time.Second, Waits: true}, {PID: 6, Since: 2 * time.Second},
		{PID: 1, Since: time.Minute, Waits: true}, {PID: 2, Since: time.Minute, Waits: true}, {PID: 4, Since: 2 * time.Hour},
	}}
	for i, e := range p.sortedLocks() {
		if e.PID != i+1 {
			t.Errorf("shown is %+v, want 1 to 6", p.sortedLocks())
			break
		}
	}
}

func TestRates(t *testing.T) {
	at := func(seconds int, counts map[string]int64) *Frame {
		return &Frame{at: time.Unix(int64(seconds), 0), status: &client.Status{Counts: counts}}
	}
	before := at(10, map[string]int64{"leases": 3, "grants": 100, "lost": 5})
	now := at(12, map[string]int64{"leases": 9, "grants": 105, "lost": 2, "repairs": 4})
	now.computeRates(before)
	for name, want := range map[string]float64{"grants": 2.5, "lost": 1 /* redlockd began anew */, "repairs": 2} {
		if got := now.rates[name]; got != want {
			t.Errorf("%s: %v/s, want %v", name, got, want)
		}
	}
	if got := now.totalsLine(); got != "grants 105 (2.5/s), lost 2 (1.0/s), repairs 4 (2.0/s)" {
		t.Errorf("shown are %q", got)
	}
}
