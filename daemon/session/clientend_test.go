package session

import (
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

// When a client's connection ends, its lease is kept, released or forgotten.
func TestClientEndAction(t *testing.T) {
	const conn, pid, ttl = ipc.HoldConn, ipc.HoldPID, ipc.HoldTTL
	for _, test := range []struct {
		end  clientEnd
		want endAction
	}{
		{clientEnd{hold: conn}, releaseNow},
		{clientEnd{hold: conn, lingers: true}, lingerFirst},
		{clientEnd{hold: conn, cut: true}, letExpire},
		{clientEnd{hold: conn, cut: true, lingers: true}, letExpire},
		{clientEnd{hold: conn, stopping: true}, keepLease},
		{clientEnd{hold: conn, stopping: true, cut: true}, keepLease},
		{clientEnd{hold: conn, stopping: true, lingers: true}, keepLease},
		{clientEnd{hold: pid}, keepLease},
		{clientEnd{hold: pid, cut: true}, keepLease},
		{clientEnd{hold: ttl}, keepLease},
		{clientEnd{hold: ttl, lingers: true}, keepLease},
		{clientEnd{hold: conn, lost: true}, forgetForced},
		{clientEnd{hold: conn, lost: true, lingers: true}, forgetForced},
		{clientEnd{hold: conn, lost: true, cut: true}, forgetLoss},
		{clientEnd{hold: conn, lost: true, stopping: true}, forgetLoss},
		{clientEnd{hold: pid, lost: true}, forgetLoss},
		{clientEnd{hold: ttl, lost: true}, forgetLoss},
	} {
		if got := test.end.action(); got != test.want {
			t.Errorf("%+v: action %d, want %d", test.end, got, test.want)
		}
	}
}

// A lease is never released while its client may still work.
func TestNoReleaseWhileClientMayWork(t *testing.T) {
	for bits := range 32 {
		e := clientEnd{lost: bits&1 != 0, lingers: bits&2 != 0, cut: bits&4 != 0, stopping: bits&8 != 0}
		if bits&16 != 0 {
			e.hold = ipc.HoldTTL
		}
		if got := e.action(); (e.cut || e.stopping) && (got == releaseNow || got == lingerFirst || got == forgetForced) {
			t.Errorf("%+v: action %d", e, got)
		}
	}
}
