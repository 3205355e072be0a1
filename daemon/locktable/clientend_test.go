package locktable

import "testing"

// When a client's connection or process ends, its lease is kept, released or forgotten.
func TestClientEndDecides(t *testing.T) {
	for _, test := range []struct {
		end  ClientEnd
		want Ending
	}{
		{ClientEnd{}, Release},
		{ClientEnd{Lingers: true}, Linger},
		{ClientEnd{Cut: true}, LetExpire},
		{ClientEnd{Cut: true, Lingers: true}, LetExpire},
		{ClientEnd{Stopping: true}, LeaveAlone},
		{ClientEnd{Stopping: true, Cut: true}, LeaveAlone},
		{ClientEnd{Stopping: true, Lingers: true}, LeaveAlone},
		{ClientEnd{Outlives: true}, LeaveAlone},
		{ClientEnd{Outlives: true, Cut: true}, LeaveAlone},
		{ClientEnd{Outlives: true, Lingers: true}, LeaveAlone},
		{ClientEnd{Lost: true}, EndRevoked},
		{ClientEnd{Lost: true, Lingers: true}, EndRevoked},
		{ClientEnd{Lost: true, Cut: true}, EndLoss},
		{ClientEnd{Lost: true, Stopping: true}, EndLoss},
		{ClientEnd{Lost: true, Outlives: true}, EndLoss},
		{ClientEnd{Process: true}, Release},
		{ClientEnd{Process: true, Lingers: true}, Linger},
		{ClientEnd{Process: true, Stopping: true, Lingers: true}, Linger}, // the next daemon continues it
		{ClientEnd{Process: true, Lost: true}, EndRevoked},
		{ClientEnd{Process: true, Lost: true, Stopping: true}, EndLoss},
	} {
		if got := test.end.Ending(); got != test.want {
			t.Errorf("%+v: ending %d, want %d", test.end, got, test.want)
		}
	}
}

// A lease is never released while its client may still work.
func TestNoReleaseWhileClientMayWork(t *testing.T) {
	for bits := range 32 {
		e := ClientEnd{Lost: bits&1 != 0, Lingers: bits&2 != 0, Cut: bits&4 != 0, Stopping: bits&8 != 0, Outlives: bits&16 != 0}
		if got := e.Ending(); (e.Cut || e.Stopping) && (got == Release || got == Linger || got == EndRevoked) {
			t.Errorf("%+v: ending %d", e, got)
		}
	}
}
