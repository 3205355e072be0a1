package locktable

import "testing"

// When a client's connection or process ends, its lease is kept, released or forgotten.
func TestClientEndEffects(t *testing.T) {
	for _, test := range []struct {
		end  ClientEnd
		want Effects
	}{
		{ClientEnd{}, Release},
		{ClientEnd{Lingers: true}, Linger},
		{ClientEnd{Cut: true}, LetExpire},
		{ClientEnd{Cut: true, Lingers: true}, LetExpire},
		{ClientEnd{Stopping: true}, 0},
		{ClientEnd{Stopping: true, Cut: true}, 0},
		{ClientEnd{Stopping: true, Lingers: true}, 0},
		{ClientEnd{Outlives: true}, 0},
		{ClientEnd{Outlives: true, Cut: true}, 0},
		{ClientEnd{Outlives: true, Lingers: true}, 0},
		{ClientEnd{Lost: true}, ReleaseRevoked | ForgetLoss},
		{ClientEnd{Lost: true, Lingers: true}, ReleaseRevoked | ForgetLoss},
		{ClientEnd{Lost: true, Cut: true}, ForgetLoss},
		{ClientEnd{Lost: true, Stopping: true}, ForgetLoss},
		{ClientEnd{Lost: true, Outlives: true}, ForgetLoss},
		{ClientEnd{Process: true}, Release},
		{ClientEnd{Process: true, Lingers: true}, Linger},
		{ClientEnd{Process: true, Stopping: true, Lingers: true}, Linger}, // the next daemon continues it
		{ClientEnd{Process: true, Lost: true}, ReleaseRevoked | ForgetLoss},
		{ClientEnd{Process: true, Lost: true, Stopping: true}, ForgetLoss},
	} {
		if got := test.end.Effects(); got != test.want {
			t.Errorf("%+v: effects %b, want %b", test.end, got, test.want)
		}
	}
}

// A lease is never released while its client may still work.
func TestNoReleaseWhileClientMayWork(t *testing.T) {
	for bits := range 32 {
		e := ClientEnd{Lost: bits&1 != 0, Lingers: bits&2 != 0, Cut: bits&4 != 0, Stopping: bits&8 != 0, Outlives: bits&16 != 0}
		if got := e.Effects(); (e.Cut || e.Stopping) && got.Has(Release|Linger|ReleaseRevoked) {
			t.Errorf("%+v: effects %b", e, got)
		}
	}
}
