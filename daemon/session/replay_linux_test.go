package session

import (
	"fmt"
	"testing"

	"github.com/redlockd/redlockd/daemon/state"
)

// Requests that are begun again may ask for what is known of them while others of their
// connection are only about to begin: a LOCK goes on beside one that it waited with, whose
// own wait was over while there was no daemon. (It ended the process, or -race tells.)
func TestLocksGoOnWhileOthersBeginAgain(t *testing.T) {
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
			ask.Since = 1 // so long ago that a wait of 20 s is over
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
