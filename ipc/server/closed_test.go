package server

import (
	"strings"
	"testing"
)

func TestServerClosedWhileWaiting(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, "@a LOCK x\nLOCK y\nLOCK z\n")
	d.waiting(t, "x")
	d.waiting(t, "y")
	nc.Close()
	d.hearEnds(t, "input gone=true", "close") // after all three requests have ended
	d.wantNotCut(t)
}

func TestServerClosedAfterHalfClose(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, "LOCK x\n")
	d.waiting(t, "x")
	if err := nc.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	d.hearEnds(t, "input gone=false")
	nc.Close()
	d.hearEnds(t, "close")
}

// The server notices that a client closes even while a full queue pauses reading.
func TestServerClosedWhilePaused(t *testing.T) {
	d := startFake(t, func(d *fakeDaemon) { d.MaxQueued = 20 })
	nc := d.dial(t)
	say(t, nc, "LOCK x\n"+strings.Repeat("PING\n", 10000))
	d.waiting(t, "x")
	nc.Close()
	d.hearEnds(t, "input gone=true", "close")
}

// If the client closes while a request waits for its turn, the request begins with a context that
// has ended.
func TestServerClosedBeforeItsTurn(t *testing.T) {
	d := startFake(t, nil)
	nc := d.dial(t)
	say(t, nc, "LOCK x\nLOCK y\n")
	d.waiting(t, "x")
	nc.Close()
	d.waiting(t, "y")
	d.hearEnds(t, "input gone=true", "close")
}
