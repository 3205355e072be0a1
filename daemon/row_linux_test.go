package daemon

import "testing"

// Whoever is called by a release, and not by a hand-over, goes on with the row of this host:
// where it was long enough he lets others go first, who cannot tell that they wait.
func TestLongRowEndsWithARelease(t *testing.T) {
	s := newSuccession(t)
	w, next, look := s.dial(), s.dial(), s.dial()
	w.say("LOCK a", granted5)
	next.waits(look, "LOCK a", 1)
	s.d.queue.setRow(&s.d.leases.all()[0].place, row{n: 1, since: s.d.clock() - longestUnwanted})
	w.say("UNLOCK a", `OK lock=a`)
	next.want(granted5)
	if got := s.d.queue.rowOf(&s.d.leases.all()[0].place); got != (row{yields: true}) {
		t.Errorf("the next one goes on with %+v, want that it yields", got)
	}
}
