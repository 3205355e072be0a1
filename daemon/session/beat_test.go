package session

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// A client that sends no BEAT loses its lock, whatever else it requests. Other clients get the lock
// at the deadline, not before.
func TestLostWithoutBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w, other := d.dial(), d.dial()
		asked := d.now()
		w.Say("LOCK a beat=400ms ttl=3s", granted5)
		w.Say("EXTEND a ttl=2s", granted5)
		other.Send("LOCK a")
		deadline := duration(t, w.Say("CHECK a", granted5)[2])
		w.Want(`LOST lock=a lease=\S+ reason=beat : no BEAT came in the time of beat=: .*`)
		if lost := d.now() - asked; lost != 400*time.Millisecond {
			t.Errorf("LOST %v after the request, want beat=400ms", lost)
		}
		w.Say("BEAT a", `ERR LOST lock=a reason=beat : .*\(beat\)`)
		w.Say("UNLOCK a", `ERR LOST lock=a reason=beat : .*`)
		other.Want(granted5)
		if now := d.now(); now < deadline {
			t.Errorf("another client has the lock %v before the deadline of the lost lease", deadline-now)
		}
	})
}

// Each BEAT starts the interval again when it arrives.
func TestBeatKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const beat = 500 * time.Millisecond
		d := startSims(t, 3, nil)
		w := d.dial()
		id := w.Say("LOCK a beat=500ms", granted5)[0]
		begin := d.now()
		ticker := time.NewTicker(beat / 5)
		defer ticker.Stop()
		for d.now() < begin+3*beat {
			<-ticker.C
			w.Say("BEAT a", `OK lock=a`)
		}
		last := d.now()
		d.dial().Say("BEAT lease="+id, `OK lock=a`)
		w.Want(`LOST lock=a .* reason=beat : .*`)
		if lost := d.now() - last; lost != beat {
			t.Errorf("LOST %v after the last BEAT, want %v", lost, beat)
		}
	})
}

func TestBeatNeedsItsOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 1, nil)
		w := d.dial()
		w.Say("LOCK a,b", `OK lock=a,b .*`)
		w.Say("BEAT a,b", `ERR OPTION lock=a,b : a,b: BEAT for a lock that was taken without beat=`)
		w.Say("BEAT a", `ERR NOTHELD lock=a : .*`)
		w.Say("LOCK c beat=100ms", granted5)
		w.Say("UNLOCK c", `OK lock=c`)
		w.Say("BEAT c", `ERR NOTHELD lock=c : .*`)
	})
}

// The longest interval that a request can state does not overflow.
func TestLongestBeatInterval(t *testing.T) {
	h := &heldLease{heartbeat: &heartbeat{interval: math.MaxInt64, lastBeat: time.Hour}}
	if h.heartbeat.isMissedLocked(2*time.Hour) || h.heartbeat.noteBeatLocked(3*time.Hour) || h.heartbeat.isMissedLocked(4*time.Hour) {
		t.Error("an interval of 292 years has ended")
	}
}

// A BEAT after the interval is too late, whether the timer has run or not. A timer that fires after
// a newer BEAT keeps waiting.
func TestBeatInterval(t *testing.T) {
	h := &heldLease{heartbeat: &heartbeat{interval: time.Second, lastBeat: 10 * time.Second}}
	if h.heartbeat.noteBeatLocked(10900 * time.Millisecond) {
		t.Error("a BEAT in time counts as late")
	}
	if h.heartbeat.isMissedLocked(11 * time.Second) {
		t.Error("the timer ignores the newer BEAT")
	}
	if !h.heartbeat.noteBeatLocked(11900 * time.Millisecond) {
		t.Error("a BEAT at the end of the interval counts as in time")
	}
	if !h.heartbeat.noteBeatLocked(11901 * time.Millisecond) {
		t.Error("a BEAT after a late one counts as in time")
	}
	if !h.heartbeat.isMissedLocked(11902 * time.Millisecond) {
		t.Error("the timer keeps waiting after a late BEAT")
	}
}

// LIST and WHO show a lost lock as lost while no other client can have it, even after its client
// has disconnected.
func TestLostIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w, look := d.dial(), d.dial()
		w.Say("LOCK a beat=100ms ttl=3s note=job", granted5)
		w.Want(`LOST lock=a .* reason=beat : .*`)
		w.Conn.Close()
		look.Until("STATUS", `connections=1\b`)
		look.Send("LIST")
		left := duration(t, look.Want(`- lock=a state=lost .*note=job .*ttl=(\S+)`)[0])
		look.Want(`OK n=1`)
		look.Send("WHO a")
		look.Want(`- lock=a .*note=job.* : it was lost \(beat\), and stays taken .*`)
		look.Want(`OK n=1`)
		look.Send("STATUS") // counts only leases that are held
		for range 3 {
			look.Want(`- node=.*`)
		}
		look.Want(`OK .* leases=0 .*`)
		if left <= 0 || left > 3*time.Second {
			t.Errorf("listed with ttl=%v, want the rest of 3s", left)
		}
		look.Say("LOCK a", granted5)
		look.Say("UNLOCK a", `OK lock=a`)
		look.Until("LIST", `^OK n=0`)
	})
}
