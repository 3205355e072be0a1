package admission

import (
	"testing"
	"time"
)

// Nodes that were read before and after a jump show whose clock jumped. Nodes that kept time only
// after the jump was seen show nothing. This host's clock may run at a wrong rate, which a
// distant node shows later. Guards clockJumps.note: before.
func TestWitnessesSawTheJump(t *testing.T) {
	const ms = time.Millisecond
	read := func(at, moved, trip time.Duration, turn uint64) ClockSample {
		return ClockSample{At: at, Low: moved - trip/2, High: moved + trip/2, Known: true, Turn: turn}
	}
	rate := func(at time.Duration) time.Duration { return at / 20 } // all nodes are this much faster than this host
	j := clockJumps{nodes: make([]nodeClock, 4)}
	for i := range 3 {
		j.nodes[i].samples = []ClockSample{read(993*ms, rate(993*ms), ms, 2), read(1003*ms, rate(1003*ms), ms, 4)}
	}
	far := &j.nodes[3]
	far.samples = []ClockSample{read(175*ms, rate(175*ms), 9*ms, 1), read(1002*ms, rate(1002*ms), 9*ms, 3), read(1310*ms, rate(1310*ms), 9*ms, 5)}
	for i, later := range far.samples[1:] {
		before := far.samples[i]
		j.note(3, later.jumpSince(before), later.At, before.Turn, later.Turn)
	}
	if nodes, missed := j.judge(3); nodes || missed == 0 {
		t.Errorf("jump of the node: %v, missed by this host: %v; want a jump of this host", nodes, missed)
	}
}
