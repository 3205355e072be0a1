package session

import (
	"fmt"
	"testing"

	"github.com/redlockd/redlockd/daemon/state"
)

// The daemon restarts requests while it still registers others of the same connection. The wait of
// each first LOCK ended while no daemon ran, and a further LOCK waits with it. An error here ended
// the process, or fails only with -race.
func TestLocksContinueDuringReplay(t *testing.T) {
	s := newSuccession(t)
	holder, w, look := s.dial(), s.dial(), s.dial()
	holder.Say("LOCK a ttl=20s", granted5)
	const n = 400
	for i := range n {
		w.Send("@first%d LOCK a owner=%d reentrant=yes wait=20s", i, i)
		w.Send("@further%d LOCK a owner=%d reentrant=yes", i, i)
	}
	look.Until("STATUS", fmt.Sprintf(`waiters=%d\b`, n))
	s.end()
	s.found = func(p *state.Recovered) {
		for _, ask := range p.Requests {
			ask.Since = 1 // long ago: a wait of 20 s has ended
		}
	}
	s.start(holder, w)
	w.Want(`BACK .*`)
	for range n {
		w.Want(`@first\d+ ERR HELD .*`)
	}
	holder.Want(`BACK .*`)
	holder.Until("STATUS", fmt.Sprintf(`waiters=%d\b`, n))
}
